/** Takes pictures from videos: only pages have a video element. The browser decodes outside the page's thread. */

const MOST_SIDE = 1024; // pixels: limits a picture's bytes, also for projectors that could read more
const QUALITY = 0.92; // of a JPEG picture
const WAIT_MS = 30_000; // for each event: a damaged file may never have it
const LATE_MS = 250; // that a picture may come after its place was reached
const BEYOND = 1e7; // seconds, longer than any video: seeking there goes to the end

/**
 * @typedef {{ seconds: number, blob: Blob }} Frame a JPEG picture, and when it is shown
 *
 * @param {Blob} file
 * @param {{ fps: number, most: number }} how pictures a second, and how many at most: one from each of equal parts
 * @param {AbortSignal} [signal]
 * @returns {Promise<Frame[]>} one at least
 */
export async function framesOf(file, { fps, most }, signal) {
  const video = document.createElement("video");
  const url = URL.createObjectURL(file);
  Object.assign(video, { muted: true, playsInline: true, preload: "auto" });
  try {
    await reached(video, "loadeddata", () => (video.src = url), signal);
    if (!video.videoWidth) throw new Error("it has no pictures");
    const seconds = await lengthOf(video, signal);
    const count = Math.max(1, Math.min(most, Math.round(seconds * fps)));
    const scale = Math.min(1, MOST_SIDE / Math.max(video.videoWidth, video.videoHeight));
    const [width, height] = [video.videoWidth, video.videoHeight].map((side) => Math.max(1, Math.round(side * scale)));
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    /** @type {Frame[]} */
    const frames = [];
    for (let i = 0; i < count; i++) {
      const at = ((i + 0.5) * seconds) / count;
      const shown = nextPicture(video);
      await reached(video, "seeked", () => (video.currentTime = at), signal);
      await shown;
      context.drawImage(video, 0, 0, width, height);
      const blob = await new Promise((/** @type {BlobCallback} */ resolve) =>
        canvas.toBlob(resolve, "image/jpeg", QUALITY),
      );
      if (!blob) throw new Error("a picture of it cannot be stored");
      frames.push({ seconds: at, blob });
    }
    return frames;
  } finally {
    video.removeAttribute("src");
    video.load(); // frees the decoder
    URL.revokeObjectURL(url);
  }
}

/**
 * When the video has its next picture: a busy browser may announce the place before it. A hidden page's browser announces no
 * picture, and one may be that of the place before.
 * @param {HTMLVideoElement} video @returns {Promise<void>}
 */
function nextPicture(video) {
  return new Promise((resolve) => {
    video.requestVideoFrameCallback?.(() => resolve());
    video.addEventListener("seeked", () => setTimeout(resolve, LATE_MS), { once: true });
  });
}

/** The length of a video in seconds. Recordings of a browser state it at their end only. @param {HTMLVideoElement} video @param {AbortSignal} [signal] */
async function lengthOf(video, signal) {
  if (!Number.isFinite(video.duration)) await reached(video, "seeked", () => (video.currentTime = BEYOND), signal);
  return Number.isFinite(video.duration) ? video.duration : video.currentTime;
}

/**
 * Calls `begin` and waits for an event of the video. Rejects with the reason if it does not come.
 * @param {HTMLVideoElement} video @param {string} event @param {() => void} begin @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
function reached(video, event, begin, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const over = new AbortController();
    const on = (/** @type {EventTarget} */ from, /** @type {string} */ name, /** @type {() => void} */ then) =>
      from.addEventListener(name, () => (over.abort(), then()), { signal: over.signal });
    const late = setTimeout(() => (over.abort(), reject(new Error("it takes too long to decode"))), WAIT_MS);
    over.signal.addEventListener("abort", () => clearTimeout(late));
    on(video, event, resolve);
    on(video, "error", () => reject(new Error(video.error?.message || "this browser does not decode it")));
    if (signal) on(signal, "abort", () => reject(signal.reason));
    begin();
  });
}

/**
 * Answers the engine.
 * @param {{ bytes: Uint8Array<ArrayBuffer>, fps: number, most: number, answer: MessagePort }} message gets {result}, a list
 *   of {seconds, bytes}, or {error}
 */
export async function readVideo({ bytes, fps, most, answer }) {
  const controller = new AbortController();
  answer.onmessage = () => controller.abort(); // nobody waits for it any more
  try {
    const frames = await framesOf(new Blob([bytes]), { fps, most }, controller.signal);
    const result = await Promise.all(
      frames.map(async ({ seconds, blob }) => ({ seconds, bytes: new Uint8Array(await blob.arrayBuffer()) })),
    );
    answer.postMessage(
      { result },
      result.map(({ bytes }) => bytes.buffer),
    );
  } catch (/** @type {any} */ error) {
    answer.postMessage({ error: String(error?.message ?? error) });
  }
}
