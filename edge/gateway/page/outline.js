/** The outline on the picture. It moves smoothly between answers, which arrive only a few times per second. */

/** Without a new answer, an outline on a moving picture is hidden after this time. */
const LONGEST_MS = 1000;
/** Time constant of the movement. */
const GLIDE_MS = 60;
const NEAR_PX = 0.5;

export class Outline {
    #overlay;
    /** @type {number[][] | null} */
    #drawn = null;
    /** @type {number[][]} */
    #goal = [];
    /** @type {number | null} Next step of the movement. */
    #step = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    #timer;

    /** @param {SVGSVGElement} overlay  that covers the picture, with its lines in it */
    constructor(overlay) {
        this.#overlay = overlay;
    }

    /**
     * @param {number[][]} corners  in pixels of the picture
     * @param {number} width  of the picture in its own pixels
     * @param {number} height
     * @param {boolean} moves  whether the picture is live
     */
    show(corners, width, height, moves) {
        // An SVG is scaled like `object-fit: contain`. With this view box, its units are the pixels of the picture.
        this.#overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
        this.#overlay.toggleAttribute("hidden", false);
        clearTimeout(this.#timer);
        if (moves) this.#timer = setTimeout(() => this.hide(), LONGEST_MS);
        this.#goal = corners;
        if (!this.#drawn || matchMedia("(prefers-reduced-motion: reduce)").matches) this.#draw(corners);
        else this.#step ??= requestAnimationFrame((nowMs) => this.#glide(nowMs, nowMs));
    }

    hide() {
        clearTimeout(this.#timer);
        if (this.#step !== null) cancelAnimationFrame(this.#step);
        this.#step = this.#drawn = null;
        this.#overlay.toggleAttribute("hidden", true);
    }

    /** @param {number} nowMs  @param {number} beforeMs  time of the last step */
    #glide(nowMs, beforeMs) {
        const goal = this.#goal.flat();
        const from = /** @type {number[][]} */ (this.#drawn).flat();
        const share = 1 - Math.exp((beforeMs - nowMs) / GLIDE_MS);
        const near = goal.every((value, index) => Math.abs(value - from[index]) < NEAR_PX);
        const next = near ? goal : goal.map((value, index) => from[index] + (value - from[index]) * share);
        this.#draw([0, 2, 4, 6].map((index) => next.slice(index, index + 2)));
        this.#step = near ? null : requestAnimationFrame((laterMs) => this.#glide(laterMs, nowMs));
    }

    /** @param {number[][]} corners */
    #draw(corners) {
        this.#drawn = corners;
        for (const line of this.#overlay.children) line.setAttribute("points", corners.join(" "));
    }
}
