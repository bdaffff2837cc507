/** Which of a repository's files suits this device best. */
import { t } from "../language/phrase.js";

/**
 * @typedef {import("./files.js").ModelFile} ModelFile
 * @typedef {import("../sdk/types.d.ts").Inspection} Inspection
 * @typedef {Pick<Inspection, "verdict" | "context_length" | "total" | "tokens_per_second" | "backend"> & { about?: boolean, advice?: string | import("../language/phrase.js").Phrase | null }} Fit
 *   `about`: computed from another file of the repository
 */

const FAST = 10; // tokens a second that one reads along with
const ENOUGH = 7; // bits a weight: more are hardly better
const ENOUGH_SMALL = 9; // of a model with less than a billion parameters, which loses more by rounding
const FEWEST = 3.5; // bits a weight: fewer change the answers much

/**
 * The fit of a file of `size` bytes, from the inspection of another one of the same model: the same layers, in other types.
 * @param {Inspection} other @param {number} size @returns {Fit}
 */
export function fitBySize(other, size) {
  const { verdict, advice, weights, total, budget, bytes_per_token, tokens_per_second, backend } = other;
  if (verdict === "unsupported" || weights === undefined || total === undefined) return { verdict, advice };
  const scale = backend === "cpu" ? 1 : size / other.download; // numpy holds every weight as float32
  const needed = Math.round(total + (scale - 1) * weights);
  const read = bytes_per_token ? bytes_per_token + (scale - 1) * Math.min(weights, bytes_per_token) : 0;
  const fits = needed <= (budget ?? 0);
  const larger = verdict === "fits" ? "maybe" : verdict;
  return {
    verdict: fits ? "fits" : larger,
    advice: fits ? null : (advice ?? t("It needs more memory than this browser reports.")),
    context_length: other.context_length,
    total: needed,
    tokens_per_second:
      tokens_per_second && read ? (tokens_per_second * (bytes_per_token ?? 0)) / read : tokens_per_second,
    backend,
    about: true,
  };
}

/** The file to inspect first: the one that suits most devices. @param {ModelFile[]} files */
export function likely(files) {
  const usual = ["Q4_K_M", "Q4_0", "Q4_K_S", "IQ4_XS", "Q5_K_M", "Q4", "Q8_0"];
  const byName = usual.map((name) => files.find((file) => file.quantization === name)).find(Boolean);
  return byName ?? files[0];
}

/**
 * The best file for this device: the most exact one that fits and is fast enough, of those that are worth their size; else
 * the smallest that still answers well.
 * @param {ModelFile[]} files smallest first @param {(file: ModelFile) => Fit | undefined} fitOf @param {number} parameters
 */
export function best(files, fitOf, parameters) {
  const bits = (/** @type {ModelFile} */ file) => (8 * file.size) / parameters;
  const enough = (/** @type {string} */ verdict) =>
    files.filter((file) => fitOf(file)?.verdict === verdict && bits(file) >= FEWEST);
  const most = parameters < 1e9 ? ENOUGH_SMALL : ENOUGH;
  const fitting = enough("fits");
  const worth = fitting.filter((file) => bits(file) <= most && (fitOf(file)?.tokens_per_second ?? FAST) >= FAST);
  const found = worth.at(-1) ?? fitting[0] ?? enough("maybe")[0];
  if (found) return found;
  return files.find((file) => ["fits", "maybe"].includes(fitOf(file)?.verdict ?? ""));
}
