/** The sound of a video, as a clip of its own beside the video's pictures. */
import { wavOf } from "../../sdk/wav.js";
import { RATE, samplesOf, wave } from "./wave.js";

/** @typedef {import("../chats/database.js").Medium} Medium */

const MOST_BYTES = 64 * 2 ** 20; // of a file, which is read and decoded as a whole
const MOST_SECONDS = 300; // models hear some tens of tokens a second

/** The sound of a video file; none where it is silent, long, or not readable. @param {File} file @param {number} seconds @returns {Promise<Medium[]>} */
export async function soundOf(file, seconds) {
  if (file.size > MOST_BYTES || seconds > MOST_SECONDS) return [];
  const samples = await samplesOf(file).catch(() => new Float32Array());
  if (samples.every((sample) => sample === 0)) return [];
  return [{ kind: "audio", name: `${file.name}.wav`, blob: wavOf(samples, RATE), ...wave(samples) }];
}
