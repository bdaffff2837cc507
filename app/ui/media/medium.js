/** Pictures, sounds and videos of questions: which files are such, and the addresses under which the page shows them. */
import { t } from "../../language/phrase.js";
import { upright } from "../../sdk/upright.js";
import { bytes } from "../format.js";
import { videoMedium } from "./video_frames.js";
import { waveOf } from "./wave.js";

/** @typedef {import("../chats/database.js").Medium} Medium */

const PICTURE = /\.(png|jpe?g|webp|gif|bmp|avif)$/i;
const SOUND = /\.(wav|mp3|ogg|oga|opus|flac|m4a|aac|weba)$/i;
const VIDEO = /\.(mp4|m4v|mov|webm|mkv|ogv)$/i;
const MOST_BYTES = 50e6; // of a file for tools, which goes into their memory

/** A file as it is, for tools. @param {File} file @returns {Promise<Medium>} */
export async function fileMedium(file) {
  if (file.size > MOST_BYTES)
    throw new Error(`${t("Files for tools have {size} at most.", { size: bytes(MOST_BYTES) })}`);
  return { kind: "file", name: file.name, blob: new Blob([await file.arrayBuffer()], { type: file.type }) };
}

/** Whether a file is a picture, a sound or a video. @param {{ name: string, type: string }} file */
export const isMedium = (file) => kindOf(file) !== null;

/** @param {{ name: string, type: string }} file @returns {"image" | "audio" | "video" | null} */
function kindOf({ name, type }) {
  if (type.startsWith("image/")) return type === "image/svg+xml" ? null : "image"; // an SVG is a text
  if (type.startsWith("audio/")) return "audio";
  if (type.startsWith("video/")) return "video";
  if (type) return null;
  return PICTURE.test(name) ? "image" : SOUND.test(name) ? "audio" : VIDEO.test(name) ? "video" : null;
}

/**
 * Reads a file as a medium: a photo upright, a sound with its wave if this browser can decode it, a video as pictures of it.
 * @param {File} file that isMedium() accepts @returns {Promise<Medium>}
 */
export async function mediumOf(file) {
  const kind = kindOf(file);
  if (kind === "video") return videoMedium(file);
  // A copy: the file itself may be changed or deleted before the question is sent.
  const blob = new Blob([await file.arrayBuffer()], { type: file.type });
  const { name } = file;
  if (kind === "image") return { kind, name, blob: await upright(blob).catch(() => blob) };
  return { kind: "audio", name, blob, ...(await waveOf(blob).catch(() => ({}))) };
}

/** @type {WeakMap<Blob, string>} */
const urls = new WeakMap();
const unused = new FinalizationRegistry((/** @type {string} */ url) => URL.revokeObjectURL(url));

/** The address of a blob; it works as long as the blob is referenced. @param {Blob} blob */
export function urlOf(blob) {
  const known = urls.get(blob);
  if (known) return known;
  const url = URL.createObjectURL(blob);
  urls.set(blob, url);
  unused.register(blob, url);
  return url;
}
