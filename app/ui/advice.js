/** Advice for errors, by code: what to change in this page. The engine's message says what happened and why. */
import { t } from "../language/phrase.js";

/** @type {Record<string, import("../language/phrase.js").Phrase>} */
const ADVICE = {
  out_of_memory: t("Settings has the context length: a shorter one needs less."),
  context_too_long: t("The context length is in Settings."),
  context_length_exceeded: t("Shorten the question, or raise the context length in Settings."),
};

/** @param {string} code of an error */
export const adviceFor = (code) => (Object.hasOwn(ADVICE, code) ? ADVICE[code] : undefined);

/** @typedef {{ code: string, message: string, until?: number }} Explained `until`: when a server answers again, ms since 1970 */

/** @param {unknown} error @returns {Explained} */
export function explain(error) {
  const {
    code = "internal_error",
    message,
    headers,
  } = /** @type {Partial<import("../wisp.js").WispError>} */ (error ?? {});
  const after = headers?.get("retry-after");
  return { code, message: message || String(error), ...(after && { until: Date.now() + 1000 * Number(after) }) };
}
