/** Texts of the page for every state, on the screen and for screen readers. Foreign text is inserted as text, never as HTML. */

/** Headline and sentence of each state without an answer. */
const TEXTS = {
    idle: ["Point the camera at an exhibit", "Pictures are sent to the museum's server, which recognises the exhibit."],
    starting: ["Starting the camera …", "If the browser asks, allow the camera."],
    connecting: ["Connecting …", "This takes a moment."],
    looking: ["Looking …", "Hold the camera so that the whole exhibit is in the picture."],
    unknown: ["No known exhibit", "Go nearer, and hold the camera so that the whole exhibit is in the picture."],
    asking: ["Looking at the photo …", "This takes a moment."],
    unknownPhoto: ["No known exhibit in this photo", "Take one from nearer that shows the whole exhibit."],
    denied: ["The camera is not allowed", "Allow it for this page in the browser's settings and start it again, or choose a photo."],
    missing: ["No camera was found", "Connect one and start it again, or choose a photo."],
    taken: ["The camera does not start", "Close other applications that use it and start it again, or choose a photo."],
    insecure: ["The camera needs https", "Open this page with https:// before its address, or choose a photo."],
    unplugged: ["The camera was disconnected", "Connect it and start it again, or choose a photo."],
    offline: ["You are offline", "Connect to the museum's network."],
    away: ["The museum's server is unavailable", "It does not answer at the moment."],
    busy: ["The museum's server is busy", "Answers take longer at the moment."],
    refused: ["This page has no access", "Scan the museum's QR code to open it again."],
};
/** States that change often while a visitor walks: screen readers announce each of them once per start. */
const ORDINARY = ["starting", "connecting", "looking", "unknown"];

/** Errors that are displayed as a state, without details.  @type {Record<string, "away" | "busy" | "refused">} */
const STATES_OF_ERRORS = {
    UNAVAILABLE: "away",
    DEADLINE_EXCEEDED: "away",
    OVERLOADED: "busy",
    UNAUTHENTICATED: "refused",
    PERMISSION_DENIED: "refused",
};

/** @param {string} id  @returns {HTMLElement} */
const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

export class Panel {
    /** @type {string | null} Id of the displayed object. */
    #shown = null;
    /** The last label that was announced to screen readers. */
    #label = "";
    #announced = new Set();

    /** Reset the announcements when the visitor starts a new action. */
    begin() {
        this.#announced.clear();
        this.#label = "";
    }

    /** @param {keyof typeof TEXTS} state */
    showState(state) {
        const [headline, sentence] = TEXTS[state];
        this.#state(headline, sentence, ORDINARY.includes(state));
    }

    /** @param {import("./nearsight.js").NearsightError} error  @param {string} next  a sentence about the next step */
    showError(error, next) {
        const state = STATES_OF_ERRORS[error.code];
        if (state === "refused") {
            this.showState(state);
            return;
        }
        if (state) {
            const [headline, sentence] = TEXTS[navigator.onLine ? state : "offline"];
            this.#state(headline, `${sentence} ${next}`, false);
            return;
        }
        const text = error.advice ? `${error.message}; ${error.advice}` : error.message;
        this.#state("No answer", `${text[0].toUpperCase()}${text.slice(1)}.`, false);
    }

    /** @param {import("./nearsight.js").Answer} answer  that is known */
    show(answer) {
        if (this.#shown === answer.object_id) return;
        const label = answer.label || answer.object_id || "";
        this.#write(label, "");
        this.#shown = answer.object_id;
        for (const [name, value] of Object.entries(answer.metadata).sort()) {
            part("metadata").append(textual("dt", name), textual("dd", value));
        }
        part("metadata").hidden = !part("metadata").childElementCount;
        const sure = answer.confidence === null ? "" : `${Math.round(answer.confidence * 100)} % sure, `;
        part("footnote").textContent = `${sure}answered by the ${answer.answered_by} in ${Math.round(answer.latency_ms)} ms`;
        part("footnote").hidden = false;
        if (label !== this.#label) this.#announce(label);
        this.#label = label;
    }

    /** @param {string} headline  @param {string} sentence  @param {boolean} ordinary */
    #state(headline, sentence, ordinary) {
        const same = part("headline").textContent === headline && part("sentence").textContent === sentence;
        if (this.#shown === null && same) return;
        this.#write(headline, sentence);
        if (ordinary && this.#announced.has(headline)) return;
        this.#announced.add(headline);
        this.#announce(`${headline}. ${sentence}`);
        if (!ordinary) this.#label = ""; // after a problem, announce the same label again
    }

    /** @param {string} headline  @param {string} sentence */
    #write(headline, sentence) {
        this.#shown = null;
        part("headline").textContent = headline;
        part("sentence").textContent = sentence;
        part("metadata").replaceChildren();
        part("metadata").hidden = part("footnote").hidden = true;
        part("answer").scrollTop = 0;
    }

    /** @param {string} text */
    #announce(text) {
        part("announcement").textContent = text;
    }
}

/** @param {string} tag  @param {string} text */
function textual(tag, text) {
    const element = document.createElement(tag);
    element.textContent = text;
    return element;
}
