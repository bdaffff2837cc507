/**
 * @typedef {import("./connection.js").Connection} Connection
 * @typedef {import("./connection.js").CallOptions} CallOptions
 * @typedef {import("./stream.js").ChunkStream<any>} ChunkStream
 * @typedef {import("./types.d.ts").ChatRequest} ChatRequest
 * @typedef {import("./types.d.ts").CompletionRequest} CompletionRequest
 * @typedef {import("./types.d.ts").ResponsesRequest} ResponsesRequest
 * @typedef {import("./types.d.ts").CachedModel} CachedModel
 * @typedef {Record<string, any>} Json
 */
/**
 * An endpoint: with `stream: true` chunks, else the whole answer.
 * @template Request
 * @typedef {{
 *   (request: Request & { stream: true }, options?: CallOptions): Promise<ChunkStream>,
 *   (request: Request, options?: CallOptions): Promise<any>,
 * }} Create
 */

/** What answers OpenAI's requests over a connection. @param {Connection} connection */
export function endpoints(connection) {
  /**
   * The AbortSignal may be given as the openai client wants it, in the second argument, or as `signal` in the request.
   * @param {string} kind @returns {Create<Json>}
   */
  const creator =
    (kind) =>
    (/** @type {Json} */ { signal, ...request }, /** @type {CallOptions} */ options = {}) => {
      const how = { ...options, signal: options.signal ?? signal };
      if (request.stream) return connection.stream(kind, { request }, how);
      return connection.call(kind, { request }, how);
    };
  return {
    chat: { completions: { create: /** @type {Create<ChatRequest>} */ (creator("chat.completions")) } },
    completions: { create: /** @type {Create<CompletionRequest>} */ (creator("completions")) },
    responses: { create: /** @type {Create<ResponsesRequest>} */ (creator("responses")) },
    embeddings: { create: creator("embeddings") },
    rerank: creator("rerank"),
    models: {
      list: () => connection.call("models"),
      /** The models in this browser's storage, the last used first. @returns {Promise<CachedModel[]>} */
      cached: () => connection.call("models.cached"),
      /**
       * Removes a model from this browser's storage, or all; what is loaded stays loaded.
       * @param {string} [model] its id or its address @returns {Promise<number>} bytes that were freed
       */
      delete: (model) => connection.call("models.delete", { model }),
    },
  };
}
