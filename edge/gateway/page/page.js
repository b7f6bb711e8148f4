/** The visitor's page: starts and stops the camera or a photo, and passes the results to the panel and the outline. */
import { Recognizer } from "./nearsight.js";
import { Outline } from "./outline.js";
import { Panel } from "./panel.js";

const CAMERA = { facingMode: { ideal: "environment" }, width: { ideal: 1280 }, height: { ideal: 960 } };
/** @type {Record<string, "denied" | "missing">} */
const CAMERA_TROUBLES = { NotAllowedError: "denied", NotFoundError: "missing", OverconstrainedError: "missing" };
/** Number of such events in a row that replace the displayed answer; a single one may be due to a blurred frame. */
/** @type {Record<string, number>} */
const PATIENCE = { unknown: 3, failing: 2 };

/** @param {string} id  @returns {any} */
const part = (id) => document.getElementById(id);
const [video, photo, camera, choose, file, collection] = ["video", "photo", "camera", "choose", "file", "collection"].map(part);
const panel = new Panel();
const outline = new Outline(part("overlay"));
const token = takeToken();
let catalogue = new URLSearchParams(location.search).get("catalogue") ?? "";
/** Aborted when the visitor starts another action. */
let running = new AbortController();
/** @type {{close: () => void} | null} */
let stream = null;

/** The token is in the fragment, which browsers do not send. It is removed from the address and stored for this tab. */
function takeToken() {
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    if (given !== null) {
        sessionStorage.setItem("token", given);
        history.replaceState(null, "", location.pathname + location.search);
    }
    return sessionStorage.getItem("token") ?? "";
}

const recognizer = () => new Recognizer(".", { token, catalogue });

/** Let the visitor choose if there are several catalogues. If listing fails, the next request reports the error. */
async function offerCatalogues() {
    if (catalogue) return;
    const names = await recognizer().catalogues().catch(() => []);
    if (catalogue) return; // another listing arrived first, and the visitor may have chosen
    collection.lastElementChild.replaceChildren(...names.map((name) => new Option(name)));
    collection.hidden = names.length < 2;
    catalogue = names[0] ?? "";
}

/** Stop the present action. The returned signal is aborted when the visitor starts another action. */
function begin() {
    running.abort();
    running = new AbortController();
    stream?.close();
    stream = null;
    for (const track of video.srcObject?.getTracks() ?? []) track.stop();
    video.srcObject = null;
    URL.revokeObjectURL(photo.src);
    photo.removeAttribute("src");
    video.hidden = photo.hidden = true;
    labelCamera(false);
    outline.hide();
    panel.begin();
    return running.signal;
}

/** @param {boolean} runs */
function labelCamera(runs) {
    camera.textContent = runs ? "Stop camera" : "Start camera";
    camera.classList.toggle("main", !runs);
}

/** @param {Parameters<Panel["showState"]>[0]} state */
function end(state) {
    begin();
    panel.showState(state);
}

async function startCamera() {
    const signal = begin();
    labelCamera(true);
    panel.showState("starting");
    let media;
    try {
        media = await navigator.mediaDevices.getUserMedia({ video: CAMERA });
    } catch (error) {
        // Without https, mediaDevices is undefined.
        const trouble = CAMERA_TROUBLES[/** @type {Error} */ (error).name] ?? "taken";
        if (!signal.aborted) end(navigator.mediaDevices ? trouble : "insecure");
        return;
    }
    if (signal.aborted) {
        for (const track of media.getTracks()) track.stop();
        return;
    }
    video.srcObject = media;
    video.hidden = false;
    panel.showState("connecting");
    await openStream(signal);
}

/** @param {AbortSignal} signal */
async function openStream(signal) {
    await offerCatalogues();
    if (!signal.aborted) stream = recognizer().stream(video, eventHandler(signal));
}

/** Create the callback for the events of a stream.  @param {AbortSignal} signal */
function eventHandler(signal) {
    let before = "";
    let inARow = 0;
    return (/** @type {import("./nearsight.js").StreamEvent} */ { state, answer, error }) => {
        inARow = state === before ? inARow + 1 : 1;
        before = state;
        if (answer?.corners) outline.show(answer.corners, video.videoWidth, video.videoHeight, true);
        else outline.hide();
        if (state === "reconnecting" && error?.code === "INVALID_ARGUMENT" && !catalogue) {
            // There are several catalogues, which could not be listed before.
            stream?.close();
            openStream(signal);
        } else if (answer?.known) panel.show(answer);
        else if (state === "ended") end("unplugged");
        else if (state === "refused") end("refused");
        else if (inARow < (PATIENCE[state] ?? 1)) return;
        else if (error) panel.showError(error, "The camera continues by itself.");
        else panel.showState(/** @type {"connecting" | "looking" | "unknown"} */ (state));
    };
}

/** @param {Blob} image */
async function recognizePhoto(image) {
    const signal = begin();
    photo.src = URL.createObjectURL(image);
    photo.hidden = false;
    panel.showState("asking");
    try {
        await offerCatalogues();
        const answer = await recognizer().recognize(image, { signal });
        if (!answer.known) {
            panel.showState("unknownPhoto");
            return;
        }
        panel.show(answer);
        const readable = await photo.decode().then(() => true, () => false); // the browser may not support the format
        if (answer.corners && readable && !signal.aborted) outline.show(answer.corners, photo.naturalWidth, photo.naturalHeight, false);
    } catch (error) {
        const reason = /** @type {import("./nearsight.js").NearsightError} */ (error);
        if (!signal.aborted) panel.showError(reason, "Choose the photo again in a moment.");
    }
}

camera.addEventListener("click", () => (camera.classList.contains("main") ? startCamera() : end("idle")));
choose.addEventListener("click", () => file.click());
file.addEventListener("change", () => {
    if (file.files[0]) recognizePhoto(file.files[0]);
    file.value = ""; // the same photo may be chosen again
});
collection.addEventListener("change", () => {
    catalogue = collection.lastElementChild.value;
    if (!video.hidden) startCamera();
});
addEventListener("hashchange", () => location.reload()); // a new token
photo.addEventListener("error", () => (photo.hidden = true));
// Fails if the browser does not trust the certificate. Then the page works, but cannot be installed.
addEventListener("load", () => navigator.serviceWorker?.register("sw.js").catch(() => {}));

offerCatalogues();
camera.disabled = choose.disabled = false;
performance.mark("usable");
