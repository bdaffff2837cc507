/** Advice for errors, by code: what to change in this page. The engine's message says what happened and why. */

/** @type {Record<string, string>} */
const ADVICE = {
  out_of_memory: "Settings has the context length: a shorter one needs less.",
  context_too_long: "The context length is in Settings.",
  context_length_exceeded: "Shorten the question, or raise the context length in Settings.",
};

/**
 * @param {unknown} error
 * @returns {{ code: string, message: string, more: string | undefined }}
 */
export function explain(error) {
  const { code = "internal_error", message } = /** @type {{ code?: string, message?: string }} */ (error ?? {});
  return { code, message: message || String(error), more: ADVICE[code] };
}
