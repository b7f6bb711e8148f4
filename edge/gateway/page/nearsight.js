/**
 * Recognise what a camera sees, through a nearsight gateway. An ES module without dependencies or a build step.
 *
 *     import { Recognizer } from "https://gateway.example/nearsight.js";
 *     const recognizer = new Recognizer("https://gateway.example", { catalogue: "museum" });
 *     const answer = await recognizer.recognize(file);
 *     const stream = recognizer.stream(video, ({ state, answer }) => console.log(state, answer?.label));
 *
 * A stream decides three things: which frame is sent (the newest, while a credit of the gateway is free), when
 * the connection counts as lost, and how long to wait before the next one.
 */

/** Longest side of the pictures that are sent, in pixels: what is recognised at this size is not seen better in a larger one. */
const LONGEST_SIDE_PX = 640;
/** Smaller files than this travel as they are. */
const SMALL_BYTES = 256 * 1024;
const JPEG_QUALITY = 0.85;
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;
/** Before the next connection: doubles up to the longest. Each wait is cut by chance, so that not all pages come at once. */
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;
/** Before the next frame after one that failed; doubles, too. */
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 1600;
/** A gateway that refuses the token says so by these: the close code of a WebSocket, the codes of its errors. */
const REFUSED = 1008;
const REFUSALS = ["UNAUTHENTICATED", "PERMISSION_DENIED"];

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
 * @property {object[]} hops  what each tier spent
 * @property {string} trace_id
 */

/**
 * What a stream tells its callback.
 *
 * @typedef {object} StreamEvent
 * @property {"connecting" | "looking" | "known" | "unknown" | "failing" | "reconnecting" | "offline" | "refused" | "ended"} state
 *   `looking`: connected, no answer yet; `failing`: the gateway is here, but could not answer a frame;
 *   `refused` (the token) and `ended` (the camera) are the last event of a stream
 * @property {Answer | null} answer  with `known` and `unknown`
 * @property {number | null} ageMs  how long ago the frame of the answer was taken
 * @property {NearsightError | null} error  with `failing`, `reconnecting`, `offline`, `refused` and `ended`
 */

/** An error with its code (that of the RPC, such as `UNAVAILABLE`) and the next step for a person. */
export class NearsightError extends Error {
    /**
     * @param {string} code
     * @param {string} message
     * @param {string} [advice]
     */
    constructor(code, message, advice = "") {
        super(message);
        this.name = "NearsightError";
        this.code = code;
        this.advice = advice;
    }
}

/** A client of one gateway. */
export class Recognizer {
    #base;
    #catalogue;
    #token;
    #timeoutMs;

    /**
     * @param {string | URL} url  of the gateway; may be relative to the page
     * @param {object} [options]
     * @param {string} [options.catalogue]  not needed where the gateway has only one
     * @param {string} [options.token]
     * @param {number} [options.timeoutMs]  for one question, and for a connection
     */
    constructor(url, { catalogue = "", token = "", timeoutMs = 10_000 } = {}) {
        this.#base = new URL(url, document.baseURI);
        if (!this.#base.pathname.endsWith("/")) this.#base.pathname += "/";
        this.#catalogue = catalogue;
        this.#token = token;
        this.#timeoutMs = checkedTimeout(timeoutMs);
    }

    /**
     * Say what a photo shows. A large one is scaled down first; corners are in pixels of the photo as given.
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
            const { image, zoom } = await shrunk(photo);
            const path = await this.#pathOf("recognize", limit);
            const headers = { "Content-Type": "application/octet-stream" }; // what it is, the gateway sees
            return zoomed(await this.#fetch(path, { method: "POST", body: image, headers }, limit), zoom);
        });
    }

    /**
     * Names of the catalogues that the gateway offers.
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
     * Recognise what a video shows until `close()`, the end of the video or of the camera, or a refused token.
     * The stream reconnects by itself. An exception in the callback is reported, and the stream goes on.
     *
     * @param {HTMLVideoElement} video  that plays a camera or a file
     * @param {(event: StreamEvent) => void} callback  of each answer and of each change of the connection
     * @param {object} [options]
     * @param {number} [options.framesPerSecond]  frames that are asked at most
     * @returns {{close: () => void}}  `close` ends it; no callback runs afterwards
     */
    stream(video, callback, { framesPerSecond = 5 } = {}) {
        if (typeof callback !== "function") throw new TypeError("a stream needs a callback");
        if (!(framesPerSecond > 0 && framesPerSecond <= 60)) throw new RangeError("framesPerSecond is above 0, and at most 60");
        const connect = async () => {
            const path = await withinTime(this.#timeoutMs, undefined, (limit) => this.#pathOf("stream", limit));
            const url = new URL(path, this.#base);
            url.protocol = url.protocol.replace("http", "ws");
            const token = this.#sendableToken();
            return new WebSocket(url, token ? ["nearsight.v1", `token.${token}`] : ["nearsight.v1"]);
        };
        return new FrameStream(video, callback, connect, 1000 / framesPerSecond, this.#timeoutMs);
    }

    #sendableToken() {
        if (/[^\w.~+-]/.test(this.#token)) throw refusal("the token has characters that no token has");
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
        } catch (error) {
            if (limit.aborted) throw error;
            throw unreachable();
        }
        const body = await response.json().catch(() => null);
        limit.throwIfAborted();
        if (response.ok && body) return body;
        const { code, message, advice } = body?.error ?? {};
        throw new NearsightError(
            code ?? (response.status >= 500 ? "UNAVAILABLE" : "INTERNAL"),
            message ?? `the address answers ${response.status}, and not as a gateway does`,
            advice ?? (message ? "" : "check the address of the gateway"),
        );
    }
}

/** The frames of one video over one WebSocket after the other. */
class FrameStream {
    #video;
    #callback;
    #connect;
    #timeoutMs;
    #canvas = document.createElement("canvas");
    /** @type {WebSocket | null} */
    #socket = null;
    /** @type {Map<number, {atMs: number, width: number, height: number, zoom: [number, number]}>} */
    #inFlight = new Map();
    #credits = 0;
    #mostBytes = Infinity;
    #number = 0;
    #newest = -1;
    #encoding = false;
    #failures = 0;
    #resumeMs = 0;
    #losses = 0;
    /** When a connection was begun that is not ready yet; Infinity while there is none. */
    #begunMs = Infinity;
    #closed = false;
    #ticks;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    #retry;
    #retryNow = () => this.#open();
    #dropNow = () => this.#lost(unreachable());

    /**
     * @param {HTMLVideoElement} video
     * @param {(event: StreamEvent) => void} callback
     * @param {() => Promise<WebSocket>} connect
     * @param {number} intervalMs
     * @param {number} timeoutMs
     */
    constructor(video, callback, connect, intervalMs, timeoutMs) {
        this.#video = video;
        this.#callback = callback;
        this.#connect = connect;
        this.#timeoutMs = timeoutMs;
        this.#ticks = setInterval(() => this.#tick(), intervalMs);
        addEventListener("online", this.#retryNow);
        addEventListener("offline", this.#dropNow);
        queueMicrotask(() => {
            this.#tell("connecting");
            this.#open();
        });
    }

    close() {
        this.#closed = true;
        clearInterval(this.#ticks);
        clearTimeout(this.#retry);
        removeEventListener("online", this.#retryNow);
        removeEventListener("offline", this.#dropNow);
        this.#drop();
    }

    async #open() {
        if (this.#closed || this.#socket || this.#begunMs !== Infinity) return;
        clearTimeout(this.#retry);
        const begunMs = (this.#begunMs = performance.now());
        let socket;
        try {
            socket = await this.#connect();
        } catch (error) {
            if (this.#begunMs !== begunMs) return;
            const reason = asNearsightError(error);
            if (REFUSALS.includes(reason.code)) this.#end("refused", reason);
            else this.#lost(reason);
            return;
        }
        if (this.#closed || this.#begunMs !== begunMs) {
            socket.close();
            return;
        }
        this.#socket = socket;
        socket.onmessage = ({ data }) => this.#received(socket, JSON.parse(data));
        socket.onclose = ({ code, reason }) => {
            if (socket !== this.#socket) return;
            if (code === REFUSED) this.#end("refused", refusal(reason));
            else this.#lost(unreachable());
        };
    }

    /** Forget the connection. What comes of it later is not heard. */
    #drop() {
        const socket = this.#socket;
        this.#socket = null;
        this.#begunMs = Infinity;
        this.#credits = 0;
        this.#inFlight.clear();
        socket?.close();
    }

    /** @param {NearsightError} error */
    #lost(error) {
        if (this.#closed) return;
        this.#drop();
        clearTimeout(this.#retry);
        const waitMs = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#losses++);
        this.#retry = setTimeout(this.#retryNow, waitMs * (0.5 + Math.random() / 2));
        this.#tell(navigator.onLine ? "reconnecting" : "offline", { error });
    }

    /** @param {"refused" | "ended"} state  @param {NearsightError} error */
    #end(state, error) {
        if (this.#closed) return;
        this.close();
        this.#report({ state, answer: null, ageMs: null, error });
    }

    /** @param {WebSocket} socket  @param {any} message */
    #received(socket, message) {
        if (socket !== this.#socket) return;
        if (message.type === "ready") {
            this.#credits = message.credits;
            this.#mostBytes = message.max_bytes;
            this.#begunMs = Infinity;
            this.#tell("looking");
            return;
        }
        const { type, frame, retry_after_s: retryAfterS = 0, ...answer } = message;
        const asked = this.#inFlight.get(frame);
        if (!asked) return;
        this.#inFlight.delete(frame);
        this.#losses = 0;
        if (type === "error") {
            const { code, message: text, advice } = message.error;
            this.#failed(new NearsightError(code, text, advice), 1000 * retryAfterS);
            return;
        }
        this.#failures = 0;
        // A later frame was answered already, or the phone was turned: its corners would be elsewhere.
        if (frame < this.#newest || asked.width !== this.#video.videoWidth || asked.height !== this.#video.videoHeight) return;
        this.#newest = frame;
        const ageMs = performance.now() - asked.atMs;
        this.#tell(answer.known ? "known" : "unknown", { answer: zoomed(answer, asked.zoom), ageMs });
    }

    /** @param {NearsightError} error  @param {number} [leastPauseMs] */
    #failed(error, leastPauseMs = 0) {
        const pauseMs = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.#failures++);
        this.#resumeMs = performance.now() + Math.max(pauseMs, leastPauseMs);
        this.#tell("failing", { error });
    }

    #tick() {
        const video = this.#video;
        if (video.ended || cameraIsGone(video)) {
            this.#end("ended", new NearsightError("UNAVAILABLE", "the video has ended", "start the camera again"));
            return;
        }
        const nowMs = performance.now();
        const [oldest] = this.#inFlight.values();
        if (nowMs - Math.min(this.#begunMs, oldest?.atMs ?? Infinity) > this.#timeoutMs) {
            this.#lost(new NearsightError("DEADLINE_EXCEEDED", "the gateway does not answer", "check the network"));
            return;
        }
        const free = this.#inFlight.size < this.#credits && !this.#encoding && nowMs >= this.#resumeMs;
        if (this.#socket && free && video.videoWidth && !document.hidden) this.#send(this.#socket);
    }

    /** @param {WebSocket} socket */
    async #send(socket) {
        const { videoWidth: width, videoHeight: height } = this.#video;
        const atMs = performance.now();
        this.#encoding = true;
        let picture;
        try {
            picture = await drawn(this.#video, width, height, this.#canvas);
        } catch (error) {
            // A video of another origin, which the browser does not give away.
            this.#end("ended", new NearsightError("INVALID_ARGUMENT", `the video cannot be read: ${error}`));
            return;
        } finally {
            this.#encoding = false;
        }
        if (socket !== this.#socket) return;
        const { image, zoom } = picture;
        if (image.size + 4 > this.#mostBytes) {
            this.#failed(new NearsightError("INVALID_ARGUMENT", `a frame has ${image.size} bytes, more than the gateway takes`));
            return;
        }
        const number = this.#number++;
        const head = new DataView(new ArrayBuffer(4));
        head.setUint32(0, number);
        this.#inFlight.set(number, { atMs, width, height, zoom });
        socket.send(new Blob([head, image]));
    }

    /** @param {StreamEvent["state"]} state  @param {Partial<StreamEvent>} [more] */
    #tell(state, more = {}) {
        if (!this.#closed) this.#report({ state, answer: null, ageMs: null, error: null, ...more });
    }

    /** @param {StreamEvent} event */
    #report(event) {
        try {
            this.#callback(event);
        } catch (error) {
            reportError(error);
        }
    }
}

/** @param {HTMLVideoElement} video */
function cameraIsGone(video) {
    const camera = video.srcObject;
    return camera instanceof MediaStream && camera.getVideoTracks().every((track) => track.readyState === "ended");
}

/** @param {Blob} photo  @returns {Promise<{image: Blob, zoom: [number, number]}>} */
async function shrunk(photo) {
    let bitmap;
    try {
        bitmap = await createImageBitmap(photo);
    } catch {
        return { image: photo, zoom: [1, 1] }; // the gateway says what is wrong with it, or can read it
    }
    const { width, height } = bitmap;
    try {
        if (photo.size <= SMALL_BYTES && Math.max(width, height) <= LONGEST_SIDE_PX) return { image: photo, zoom: [1, 1] };
        return await drawn(bitmap, width, height, document.createElement("canvas"));
    } finally {
        bitmap.close();
    }
}

/**
 * A JPEG of a picture, scaled down, and by how much.
 *
 * @param {HTMLVideoElement | ImageBitmap} source
 * @param {number} width
 * @param {number} height
 * @param {HTMLCanvasElement} canvas
 * @returns {Promise<{image: Blob, zoom: [number, number]}>}
 */
async function drawn(source, width, height, canvas) {
    const scale = Math.min(1, LONGEST_SIDE_PX / Math.max(width, height));
    canvas.width = Math.max(1, Math.round(width * scale));
    canvas.height = Math.max(1, Math.round(height * scale));
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    context.imageSmoothingQuality = "high";
    context.drawImage(source, 0, 0, canvas.width, canvas.height);
    const image = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", JPEG_QUALITY));
    if (!image) throw new NearsightError("INVALID_ARGUMENT", "the browser cannot encode this picture", "use a smaller one");
    return { image, zoom: [width / canvas.width, height / canvas.height] };
}

/** @param {Answer} answer  @param {[number, number]} zoom  @returns {Answer} */
function zoomed(answer, [across, down]) {
    return { ...answer, corners: answer.corners && answer.corners.map(([x, y]) => [x * across, y * down]) };
}

/**
 * Carry out work under a time limit and the caller's signal.
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

function unreachable() {
    return new NearsightError("UNAVAILABLE", "the gateway cannot be reached", "check the network and the address");
}

/** @param {string} reason */
function refusal(reason) {
    return new NearsightError("UNAUTHENTICATED", reason || "the gateway refuses the token", "get a new token");
}

/** @param {unknown} error */
function asNearsightError(error) {
    return error instanceof NearsightError ? error : new NearsightError("INTERNAL", String(error));
}
