/**
 * Recognise what a camera sees, through a nearsight gateway. An ES module without dependencies or a build step.
 *
 *     import { Recognizer } from "https://gateway.example/nearsight.js";
 *     const recognizer = new Recognizer("https://gateway.example", { catalogue: "museum" });
 *     const answer = await recognizer.recognize(file);
 *     const stream = recognizer.stream(video, ({ state, answer }) => console.log(state, answer?.label));
 *
 * It needs the modules beside it: `frame_stream.js` (the decisions of a stream), `pictures.js`, `errors.js`.
 */
import { NearsightError, refusal, unreachable } from "./errors.js";
import { FrameStream } from "./frame_stream.js";
import { scaledDown, withScaledCorners } from "./pictures.js";

export { NearsightError };

const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

/**
 * The answer to a photo, as in the gateway's `/openapi.json`.
 *
 * @typedef {object} Answer
 * @property {boolean} known  whether an object was found and verified
 * @property {string | null} object_id
 * @property {string | null} label
 * @property {Record<string, string>} metadata
 * @property {number | null} confidence  in [0, 1]
 * @property {[number, number][] | null} corners  four (x, y) pairs, in pixels of the upright photo or of the video
 * @property {"edge" | "cloud"} answered_by
 * @property {"object" | "result" | "network"} grain
 * @property {number} latency_ms
 * @property {object[]} hops  times and bytes of each tier
 * @property {string} trace_id
 */

/**
 * An event for the callback of a stream.
 *
 * @typedef {object} StreamEvent
 * @property {"connecting" | "looking" | "known" | "unknown" | "failing" | "reconnecting" | "offline" | "refused" | "ended"} state
 *   `looking`: connected, no answer yet; `failing`: connected, but a frame failed;
 *   `refused` (the token) and `ended` (the camera or video) are the last event of a stream
 * @property {Answer | null} answer  with `known` and `unknown`,
 *   and again for each frame that shows the same picture as the answered one
 * @property {number | null} ageMs  age of the answered frame
 * @property {NearsightError | null} error  with `failing`, `reconnecting`, `offline`, `refused` and `ended`
 */

/** A client of one gateway. */
export class Recognizer {
    #base;
    #catalogue;
    #token;
    #timeoutMs;

    /**
     * @param {string | URL} url  of the gateway; may be relative to the page
     * @param {object} [options]
     * @param {string} [options.catalogue]  optional if the gateway has only one
     * @param {string} [options.token]
     * @param {number} [options.timeoutMs]  of a request, and of a connection
     */
    constructor(url, { catalogue = "", token = "", timeoutMs = 10_000 } = {}) {
        if (typeof url !== "string" && !(url instanceof URL)) throw new TypeError("the address of the gateway is a string or a URL");
        if (typeof catalogue !== "string" || typeof token !== "string") throw new TypeError("catalogue and token are strings");
        this.#base = new URL(url, document.baseURI);
        if (!/^https?:$/.test(this.#base.protocol)) throw new TypeError(`a gateway is at http: or https:; got ${this.#base}`);
        if (!this.#base.pathname.endsWith("/")) this.#base.pathname += "/";
        this.#catalogue = catalogue;
        this.#token = token;
        this.#timeoutMs = checkedTimeout(timeoutMs);
    }

    /**
     * Recognise the object in a photo. Large photos are scaled down first; corners are in pixels of the given photo.
     *
     * @param {Blob} photo  an image file that the browser or the gateway can read
     * @param {object} [options]
     * @param {AbortSignal} [options.signal]  rejects with the signal's reason
     * @param {number} [options.timeoutMs]
     * @returns {Promise<Answer>}
     * @throws {NearsightError}
     */
    async recognize(photo, { signal, timeoutMs = this.#timeoutMs } = {}) {
        if (!(photo instanceof Blob)) throw new TypeError("a photo is a Blob or a File");
        return withinTime(checkedTimeout(timeoutMs), signal, async (limit) => {
            const { image, zoom } = await scaledDown(photo);
            const path = await this.#pathOf("recognize", limit);
            const headers = { "Content-Type": "application/octet-stream" }; // the gateway detects the format
            return withScaledCorners(await this.#fetch(path, { method: "POST", body: image, headers }, limit), zoom);
        });
    }

    /**
     * Names of the gateway's catalogues.
     *
     * @param {object} [options]
     * @param {AbortSignal} [options.signal]
     * @returns {Promise<string[]>}
     * @throws {NearsightError}
     */
    async catalogues({ signal } = {}) {
        return withinTime(this.#timeoutMs, signal, (limit) => this.#list(limit));
    }

    /**
     * Recognise the objects in a video until `close()`, the end of the video or of the camera, or a rejected token.
     * The stream reconnects by itself. An exception in the callback is reported, and the stream continues.
     *
     * @param {HTMLVideoElement} video  that plays a camera or a file
     * @param {(event: StreamEvent) => void} callback  for each answer and each change of the connection
     * @param {object} [options]
     * @param {number} [options.framesPerSecond]  maximum number of frames that are sent
     * @param {number} [options.unchangedEveryMs]  interval of sending an unchanged picture; 0: as any other
     * @returns {{close: () => void}}  `close` ends the stream; no callback runs afterwards
     */
    stream(video, callback, { framesPerSecond = 5, unchangedEveryMs = 2000 } = {}) {
        if (video?.localName !== "video") throw new TypeError("a stream needs a video element");
        if (typeof callback !== "function") throw new TypeError("a stream needs a callback");
        if (!(framesPerSecond > 0 && framesPerSecond <= 60)) throw new RangeError("framesPerSecond is above 0, and at most 60");
        if (!(unchangedEveryMs >= 0)) throw new RangeError(`unchangedEveryMs is at least 0; got ${unchangedEveryMs}`);
        const connect = async () => {
            const path = await withinTime(this.#timeoutMs, undefined, (limit) => this.#pathOf("stream", limit));
            const url = new URL(path, this.#base);
            url.protocol = url.protocol.replace("http", "ws");
            const token = this.#sendableToken();
            return new WebSocket(url, token ? ["nearsight.v1", `token.${token}`] : ["nearsight.v1"]);
        };
        const times = { intervalMs: 1000 / framesPerSecond, unchangedEveryMs, timeoutMs: this.#timeoutMs };
        return new FrameStream(video, callback, connect, times);
    }

    #sendableToken() {
        if (/[^\w.~+-]/.test(this.#token)) throw refusal("the token has invalid characters");
        return this.#token;
    }

    /** @param {string} method  @param {AbortSignal} limit */
    async #pathOf(method, limit) {
        if (!this.#catalogue) this.#catalogue = onlyOne(await this.#list(limit));
        return `v1/catalogues/${encodeURIComponent(this.#catalogue)}/${method}`;
    }

    /** @param {AbortSignal} limit  @returns {Promise<string[]>} */
    async #list(limit) {
        const { catalogues } = await this.#fetch("v1/catalogues", {}, limit);
        return catalogues.map((/** @type {{name: string}} */ one) => one.name);
    }

    /** @param {string} path  @param {RequestInit} request  @param {AbortSignal} limit */
    async #fetch(path, request, limit) {
        const headers = new Headers(request.headers);
        const token = this.#sendableToken();
        if (token) headers.set("Authorization", `Bearer ${token}`);
        let response;
        try {
            response = await fetch(new URL(path, this.#base), { ...request, headers, cache: "no-store", signal: limit });
        } catch {
            throw unreachable();
        }
        const body = await response.json().catch((error) => {
            if (!(error instanceof SyntaxError)) throw unreachable(); // the connection ended within the answer
            return null;
        });
        if (response.ok && body) return body;
        const { code, message, advice } = body?.error ?? {};
        throw new NearsightError(
            code ?? (response.status >= 500 ? "UNAVAILABLE" : "INTERNAL"),
            message ?? `the address answers ${response.status}, but is not a gateway`,
            advice ?? (message ? "" : "check the address of the gateway"),
        );
    }
}

/**
 * Run work with a timeout and the caller's signal.
 *
 * @template T
 * @param {number} timeoutMs
 * @param {AbortSignal | undefined} signal
 * @param {(limit: AbortSignal) => Promise<T>} work
 * @returns {Promise<T>}
 */
async function withinTime(timeoutMs, signal, work) {
    signal?.throwIfAborted();
    const limit = new AbortController();
    const late = () => limit.abort(new NearsightError("DEADLINE_EXCEEDED", `no answer within ${timeoutMs} ms`, "try again"));
    const cancel = () => limit.abort(signal?.reason);
    const timer = setTimeout(late, timeoutMs);
    signal?.addEventListener("abort", cancel);
    try {
        return await work(limit.signal);
    } catch (error) {
        throw limit.signal.aborted ? limit.signal.reason : error;
    } finally {
        clearTimeout(timer);
        signal?.removeEventListener("abort", cancel);
    }
}

/** @param {number} timeoutMs */
function checkedTimeout(timeoutMs) {
    if (timeoutMs > 0 && timeoutMs <= LONGEST_TIMEOUT_MS) return timeoutMs;
    throw new RangeError(`timeoutMs is above 0, and at most ${LONGEST_TIMEOUT_MS}; got ${timeoutMs}`);
}

/** @param {string[]} names */
function onlyOne(names) {
    if (names.length === 1) return names[0];
    if (!names.length) throw new NearsightError("NOT_FOUND", "the gateway has no catalogue", "add one at the cloud");
    throw new NearsightError("INVALID_ARGUMENT", "the gateway has several catalogues", `choose one of ${names.join(", ")}`);
}

