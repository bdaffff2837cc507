/** The sound of a video, as a clip of its own beside the video's pictures. */
import { t } from "../../language/phrase.js";
import { wavOf } from "../../sdk/wav.js";
import { RATE, samplesOf, wave } from "./wave.js";

/** @typedef {import("../chats/database.js").Medium} Medium */

const MOST_BYTES = 64 * 2 ** 20; // of a file, which is read and decoded as a whole
const MOST_SECONDS = 30; // models hear some tens of tokens a second, and some no more than this
const SILENCE = 0.01; // the loudest sample of a silent sound, which codecs do not leave at 0

/**
 * The sound of a video file. None where it is silent, long, or in a form that this browser does not decode.
 * @param {File} file @param {number} seconds @returns {Promise<Medium[]>}
 */
export async function soundOf(file, seconds) {
  if (file.size > MOST_BYTES || seconds > MOST_SECONDS) return [];
  const samples = await samplesOf(file).catch(() => new Float32Array());
  const heard = wave(samples);
  if (Math.max(...heard.peaks) < SILENCE) return [];
  const name = `${t("Sound of {name}", { name: file.name })}.wav`;
  return [{ kind: "audio", name, blob: wavOf(samples, RATE), ...heard }];
}
