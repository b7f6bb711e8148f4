/** Errors of `nearsight.js`. */

/** An error with its RPC status code, such as `UNAVAILABLE`, and advice for the user. */
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

export function unreachable() {
    return new NearsightError("UNAVAILABLE", "the gateway is unreachable", "check the network and the address");
}

/** @param {string} reason */
export function refusal(reason) {
    return new NearsightError("UNAUTHENTICATED", reason || "the gateway rejects the token", "get a new token");
}

/** @param {unknown} error */
export function asNearsightError(error) {
    return error instanceof NearsightError ? error : new NearsightError("INTERNAL", String(error));
}
