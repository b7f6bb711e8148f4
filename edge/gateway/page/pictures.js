/** Preparation of pictures: scaling and JPEG encoding; and thumbnails, which detect changes between frames. */
import { NearsightError } from "./errors.js";

/** Longest side of the pictures that are sent, in pixels; a larger size does not improve recognition. */
const LONGEST_SIDE_PX = 640;
/** Files up to this size are sent unchanged, if the picture is small enough, and the gateway reads the format. */
const SMALL_BYTES = 256 * 1024;
/** First bytes of JPEG, PNG and WebP files. */
const READABLE = /^(\xff\xd8\xff|\x89PNG|RIFF....WEBP)/s;
const JPEG_QUALITY = 0.85;
/**
 * Frames count as equal if their thumbnails differ less than this, in grey levels of 255. In the clips of the generated
 * museum, the noise of a camera at rest is 0.1 to 0.5, and less than 1.5 is a movement of at most 6 of 640 pixels.
 */
const SAME_LEVELS = 1.5;
const THUMBNAIL_PX = 16;

/** @typedef {import("./nearsight.js").Answer} Answer */

/**
 * The thumbnail of a frame.
 *
 * @param {HTMLVideoElement} video
 * @param {HTMLCanvasElement} canvas
 */
export function thumbnailOf(video, canvas) {
    canvas.width = canvas.height = THUMBNAIL_PX;
    const context = contextOf(canvas, { alpha: false, willReadFrequently: true });
    context.drawImage(video, 0, 0, THUMBNAIL_PX, THUMBNAIL_PX);
    return context.getImageData(0, 0, THUMBNAIL_PX, THUMBNAIL_PX).data;
}

/** Whether two thumbnails show the same picture.  @param {Uint8ClampedArray} one  @param {Uint8ClampedArray} other */
export function samePicture(one, other) {
    const difference = one.reduce((sum, value, index) => sum + Math.abs(value - other[index]), 0);
    return difference < SAME_LEVELS * 3 * THUMBNAIL_PX ** 2; // the fourth value of each pixel is constant
}

/** @param {HTMLCanvasElement} canvas  @param {CanvasRenderingContext2DSettings} settings */
function contextOf(canvas, settings) {
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", settings));
    context.imageSmoothingQuality = "high";
    return context;
}

/** @param {Blob} photo  @returns {Promise<{image: Blob, zoom: [number, number]}>} */
export async function scaledDown(photo) {
    let bitmap;
    try {
        bitmap = await createImageBitmap(photo);
    } catch {
        return { image: photo, zoom: [1, 1] }; // the gateway can read it, or reports the error
    }
    const { width, height } = bitmap;
    try {
        const small = photo.size <= SMALL_BYTES && Math.max(width, height) <= LONGEST_SIDE_PX;
        if (small && (await isReadable(photo))) return { image: photo, zoom: [1, 1] };
        return await encoded(bitmap, width, height, document.createElement("canvas"));
    } finally {
        bitmap.close();
    }
}

/** @param {Blob} photo */
async function isReadable(photo) {
    return READABLE.test(String.fromCharCode(...new Uint8Array(await photo.slice(0, 12).arrayBuffer())));
}

/**
 * A JPEG of a picture, scaled down, and the scale factors.
 *
 * @param {HTMLVideoElement | ImageBitmap} source
 * @param {number} width
 * @param {number} height
 * @param {HTMLCanvasElement} canvas
 * @returns {Promise<{image: Blob, zoom: [number, number]}>}
 */
export async function encoded(source, width, height, canvas) {
    const scale = Math.min(1, LONGEST_SIDE_PX / Math.max(width, height));
    canvas.width = Math.max(1, Math.round(width * scale));
    canvas.height = Math.max(1, Math.round(height * scale));
    contextOf(canvas, { alpha: false }).drawImage(source, 0, 0, canvas.width, canvas.height);
    const image = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", JPEG_QUALITY));
    if (!image) throw new NearsightError("INVALID_ARGUMENT", "the browser cannot encode this picture", "use a smaller one");
    return { image, zoom: [width / canvas.width, height / canvas.height] };
}

/** @param {Answer} answer  @param {[number, number]} zoom  @returns {Answer} */
export function withScaledCorners(answer, [across, down]) {
    return { ...answer, corners: answer.corners && answer.corners.map(([x, y]) => [x * across, y * down]) };
}
