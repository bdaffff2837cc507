/** What to do about an error, by its code; the message itself comes from the engine. */

/** @type {Record<string, string>} */
const ADVICE = {
  not_gguf: "Choose a file that ends in .gguf.",
  truncated_file: "The download probably stopped early: fetch the file again.",
  network_error: "Check the connection; the server must also allow other sites to read the file (CORS).",
  http_error: "Check the address.",
  quota_exceeded: "Free some space, or allow this site to store more.",
  out_of_memory: "Close other tabs, lower the context length in Settings, or take a smaller model.",
  model_too_large: "Take a smaller model or a smaller quantisation.",
  context_too_long: "Lower the context length in Settings.",
  context_length_exceeded: "Start a new chat, or raise the context length in Settings.",
  no_webgpu: "Wisp can run on the CPU instead.",
  device_lost: "Load the model again.",
  worker_crashed: "Your chats are kept.",
};

/**
 * @param {unknown} error
 * @returns {{ code: string, message: string, more: string | undefined }}
 */
export function explain(error) {
  const { code = "internal_error", message } = /** @type {{ code?: string, message?: string }} */ (error ?? {});
  return { code, message: message || String(error), more: ADVICE[code] };
}
