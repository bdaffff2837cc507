/** Videos of questions. What is stored of one is what models see: pictures of it, one after the other in one blob. */
import { framesOf } from "../../sdk/video.js";

/**
 * @typedef {import("../chats/database.js").Medium} Medium
 * @typedef {import("../../sdk/video.js").Frame} Frame
 */

const FRAMES = { fps: 1, most: 8 }; // of a video: each takes tokens
const TYPE = "video/x-mjpeg"; // of JPEG pictures, one after the other
const PICTURE = "image/jpeg"; // whatever a file of chats says

/** Takes the pictures of a video. @param {File} file @returns {Promise<Medium>} */
export async function videoMedium(file) {
  const frames = await framesOf(file, FRAMES);
  return {
    kind: "video",
    name: file.name,
    blob: new Blob(
      frames.map(({ blob }) => blob),
      { type: TYPE },
    ),
    frames: frames.map(({ seconds, blob }) => ({ seconds, bytes: blob.size })),
    seconds: frames[0].seconds + frames[frames.length - 1].seconds, // they are in the middle of equal parts
  };
}

/** @type {WeakMap<Blob, Frame[]>} the same pictures each time: their addresses work as long as they are referenced */
const found = new WeakMap();

/** The pictures of a video. @param {Medium} medium @returns {Frame[]} */
export function framesIn({ blob, frames = [] }) {
  const known = found.get(blob);
  if (known) return known;
  let at = 0;
  const pictures = frames.map(({ seconds, bytes }) => {
    const begin = at;
    at += bytes;
    return { seconds, blob: blob.slice(begin, at, PICTURE) };
  });
  found.set(blob, pictures);
  return pictures;
}
