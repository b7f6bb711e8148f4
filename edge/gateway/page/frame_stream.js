/**
 * Sends the frames of a video over a WebSocket, and reconnects after failures. Decides which frame is sent: the newest, if a
 * credit of the gateway is free, and the frame differs from the last answered one. Also decides when the connection counts
 * as lost, and the pause before the next one.
 */
import { asNearsightError, NearsightError, refusal, unreachable } from "./errors.js";
import { encoded, samePicture, thumbnailOf, withScaledCorners } from "./pictures.js";

/** Pause before a new connection: doubles up to the maximum. Random shortening prevents that all pages reconnect at once. */
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;
/** Pause after a failed frame; doubles as well. */
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 1600;
/** Unknown answers in a row before an unchanged picture counts as unknown; a single one may be due to a bad frame. */
const UNKNOWN_IN_A_ROW = 3;
/** Signs that the gateway rejects the token: close code of a WebSocket, codes of errors. */
const REFUSED = 1008;
const REFUSALS = ["UNAUTHENTICATED", "PERMISSION_DENIED"];

/** @typedef {import("./nearsight.js").Answer} Answer */
/** @typedef {import("./nearsight.js").StreamEvent} StreamEvent */

/**
 * A frame that was sent: time, size in the video, scale factors, and thumbnail.
 *
 * @typedef {{atMs: number, width: number, height: number, zoom: [number, number], thumbnail: Uint8ClampedArray}} SentFrame
 */

/**
 * An answer that is valid while the picture does not change.
 *
 * @typedef {{state: "known" | "unknown", answer: Answer, sent: SentFrame}} Held
 */

export class FrameStream {
    #video;
    #callback;
    #connect;
    #times;
    #canvas = document.createElement("canvas");
    #thumbnail = document.createElement("canvas");
    /** @type {WebSocket | null} */
    #socket = null;
    /** @type {Map<number, SentFrame>} */
    #inFlight = new Map();
    /** @type {Held | null} */
    #held = null;
    #unknownInARow = 0;
    #credits = 0;
    #mostBytes = Infinity;
    #number = 0;
    #newest = -1;
    #encoding = false;
    #failures = 0;
    #resumeMs = 0;
    #losses = 0;
    /** Start of a connection that is not ready yet; Infinity if there is none. */
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
     * @param {{intervalMs: number, unchangedEveryMs: number, timeoutMs: number}} times
     */
    constructor(video, callback, connect, times) {
        this.#video = video;
        this.#callback = callback;
        this.#connect = connect;
        this.#times = times;
        this.#ticks = setInterval(() => this.#tick(), times.intervalMs);
        addEventListener("online", this.#retryNow);
        addEventListener("offline", this.#dropNow);
        queueMicrotask(() => {
            this.#emit("connecting");
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

    /** Drop the connection; its later events are ignored. */
    #drop() {
        const socket = this.#socket;
        this.#socket = null;
        this.#begunMs = Infinity;
        this.#credits = this.#unknownInARow = 0;
        this.#held = null;
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
        this.#emit(navigator.onLine ? "reconnecting" : "offline", { error });
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
            this.#emit("looking");
            return;
        }
        const { type, frame, retry_after_s: retryAfterS = 0, ...answer } = message;
        const sent = this.#inFlight.get(frame);
        if (!sent) return;
        this.#inFlight.delete(frame);
        this.#losses = 0;
        if (type === "error") {
            const { code, message: text, advice } = message.error;
            this.#failed(new NearsightError(code, text, advice), 1000 * retryAfterS);
            return;
        }
        if (type !== "answer") return; // superseded: a later frame replaced it
        this.#failures = 0;
        // A later frame has been answered, or the phone was rotated: the corners would be wrong.
        if (frame < this.#newest || sent.width !== this.#video.videoWidth || sent.height !== this.#video.videoHeight) return;
        this.#newest = frame;
        /** @type {Held} */
        const held = { state: answer.known ? "known" : "unknown", answer: withScaledCorners(answer, sent.zoom), sent };
        this.#unknownInARow = answer.known ? 0 : this.#unknownInARow + 1;
        this.#held = answer.known || this.#unknownInARow >= UNKNOWN_IN_A_ROW ? held : null;
        this.#emitHeld(held);
    }

    /** @param {Held} held */
    #emitHeld({ state, answer, sent }) {
        this.#emit(state, { answer, ageMs: performance.now() - sent.atMs });
    }

    /** @param {NearsightError} error  @param {number} [leastPauseMs] */
    #failed(error, leastPauseMs = 0) {
        const pauseMs = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.#failures++);
        this.#held = null;
        this.#resumeMs = performance.now() + Math.max(pauseMs, leastPauseMs);
        this.#emit("failing", { error });
    }

    #tick() {
        const video = this.#video;
        if (video.ended || cameraIsGone(video)) {
            this.#end("ended", new NearsightError("UNAVAILABLE", "the video has ended", "start the camera again"));
            return;
        }
        const nowMs = performance.now();
        const [oldest] = this.#inFlight.values();
        if (nowMs - Math.min(this.#begunMs, oldest?.atMs ?? Infinity) > this.#times.timeoutMs) {
            this.#lost(new NearsightError("DEADLINE_EXCEEDED", "the gateway does not answer", "check the network"));
            return;
        }
        if (this.#socket && video.videoWidth && !document.hidden) this.#look(this.#socket, nowMs);
    }

    /** @param {WebSocket} socket  @param {number} nowMs */
    async #look(socket, nowMs) {
        try {
            const thumbnail = thumbnailOf(this.#video, this.#thumbnail);
            const free = this.#inFlight.size < this.#credits && !this.#encoding && nowMs >= this.#resumeMs;
            if (this.#held && this.#holds(this.#held.sent, thumbnail, nowMs)) this.#emitHeld(this.#held);
            else if (free) await this.#send(socket, thumbnail);
        } catch (error) {
            // A video of another origin, which the browser does not let scripts read.
            this.#end("ended", new NearsightError("INVALID_ARGUMENT", `the video cannot be read: ${error}`));
        }
    }

    /** @param {SentFrame} sent  @param {Uint8ClampedArray} thumbnail  @param {number} nowMs */
    #holds({ atMs, width, height, thumbnail: before }, thumbnail, nowMs) {
        if (width !== this.#video.videoWidth || height !== this.#video.videoHeight) return false;
        return nowMs - atMs < this.#times.unchangedEveryMs && samePicture(thumbnail, before);
    }

    /** @param {WebSocket} socket  @param {Uint8ClampedArray} thumbnail */
    async #send(socket, thumbnail) {
        const { videoWidth: width, videoHeight: height } = this.#video;
        const atMs = performance.now();
        this.#encoding = true;
        const picture = await encoded(this.#video, width, height, this.#canvas).finally(() => (this.#encoding = false));
        if (socket !== this.#socket) return;
        const { image, zoom } = picture;
        if (image.size + 4 > this.#mostBytes) {
            this.#failed(new NearsightError("INVALID_ARGUMENT", `a frame has ${image.size} bytes, more than the gateway takes`));
            return;
        }
        const number = this.#number++;
        const head = new DataView(new ArrayBuffer(4));
        head.setUint32(0, number);
        this.#inFlight.set(number, { atMs, width, height, zoom, thumbnail });
        socket.send(new Blob([head, image]));
    }

    /** @param {StreamEvent["state"]} state  @param {Partial<StreamEvent>} [more] */
    #emit(state, more = {}) {
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
