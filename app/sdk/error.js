/**
 * @typedef {object} ErrorBody the `error` of an OpenAI error response
 * @property {string} message what happened and what to do
 * @property {string} type "invalid_request_error" | "server_error" | "not_found_error"
 * @property {string | null} [param] the request field at fault
 * @property {string} code one of the documented codes, e.g. "not_gguf"
 * @property {number} [n_prompt_tokens] of a prompt that is too long
 * @property {number} [n_ctx] positions of the context that does not hold it
 */

/**
 * The error of every rejected call of the engine. `.error` is the body in OpenAI's shape, `.headers` has `retry-after` where
 * another server says when to try again: OpenAI's clients look for it there.
 */
export class WispError extends Error {
  /** @param {ErrorBody} body @param {number} [retryAfter] seconds */
  constructor(body, retryAfter) {
    super(body.message);
    this.name = "WispError";
    this.code = body.code;
    this.type = body.type;
    this.param = body.param ?? null;
    const { message, n_prompt_tokens, n_ctx } = body;
    const counts = n_ctx === undefined ? {} : { n_prompt_tokens, n_ctx };
    /** @type {ErrorBody} */
    this.error = { message, type: this.type, param: this.param, code: this.code, ...counts };
    this.headers = new Headers(retryAfter === undefined ? {} : { "retry-after": `${retryAfter}` });
  }

  /** @param {string} [message] */
  static aborted(message = "The request was aborted.") {
    return new WispError({ message, type: "invalid_request_error", code: "aborted" });
  }

  /** @param {string} reason @returns {WispError} */
  static crashed(reason) {
    const message = `The engine's worker stopped (${reason}). Call Wisp.create() again, or reload the page.`;
    return new WispError({ message, type: "server_error", code: "worker_crashed" });
  }

  /** @param {string} url of the worker's script, which cannot be started @returns {WispError} */
  static notStarted(url) {
    const message =
      new URL(url).origin === globalThis.origin
        ? `The engine's worker did not load from ${url}. Check the connection, and that all of Wisp's files are served: wisp.js needs assets/ beside it.`
        : `The engine's worker cannot start: browsers start workers of a page's own origin only, and ${url} is of another one. Serve Wisp's files from ${globalThis.origin}.`;
    return new WispError({ message, type: "server_error", code: "worker_crashed" });
  }
}
