/**
 * Wisp's JavaScript interface: `import { Wisp } from "/wisp.js"`.
 *
 * Language models from GGUF files, in this tab. One worker serves the whole page: every `Wisp.create()` gives the same
 * engine until `terminate()` or a crash; the next `create()` then boots a new one. Requests and answers have the
 * shapes of the OpenAI API; whatever fails rejects with a `WispError` (`.code`, `.type`, `.param`, `.error`).
 */
import { Bridge } from "./sdk/bridge.js";
import { Connection } from "./sdk/connection.js";
import { WispError } from "./sdk/error.js";
import { engineFetch } from "./sdk/fetch.js";
import { startHosting } from "./sdk/host.js";

export { WispError };

/**
 * @typedef {import("./sdk/connection.js").Progress} Progress
 * @typedef {import("./sdk/connection.js").OnProgress} OnProgress
 * @typedef {import("./sdk/connection.js").OnLog} OnLog
 * @typedef {import("./sdk/connection.js").CallOptions} CallOptions `signal` aborts the call within one batch of tokens
 *
 * @typedef {string | string[] | Blob | Blob[]} Model catalog id | URL of a .gguf | URLs or Files of a split one | File
 *
 * @typedef {object} LoadRequest
 * @property {Model} [model] default: the catalog's default
 * @property {string} [name] what the model is called in answers; default: its file's name
 * @property {number} [contextLength] in tokens; default: as the model was trained, as far as memory goes
 * @property {"auto" | "webgpu" | "cpu"} [backend] default "auto"
 * @property {"f16" | "f32" | "q8_0"} [kvType] the KV cache's numbers; default "f16"
 * @property {Record<string, number | boolean>} [variant] forces kernels for comparison: f16, subgroup, dot8, matrix
 *   (0: no subgroup matrices), software
 * @property {boolean} [tune] choose kernels by measuring them once on this device; default: where there is a GPU
 * @property {boolean} [vocabOnly] tokenizer and template without weights
 *
 * @typedef {Record<string, any>} Json
 * @typedef {import("./sdk/types.d.ts").ChatRequest} ChatRequest
 * @typedef {import("./sdk/types.d.ts").CompletionRequest} CompletionRequest
 * @typedef {import("./sdk/types.d.ts").ResponsesRequest} ResponsesRequest
 * @typedef {import("./sdk/types.d.ts").Form} Form what an answer's form may be
 * @typedef {{ addSpecial?: boolean, parseSpecial?: boolean }} TokenizeOptions
 * @typedef {import("./sdk/stream.js").ChunkStream<any>} ChunkStream
 */
/**
 * An endpoint: with `stream: true` chunks, else the whole answer.
 * @template Request
 * @typedef {{
 *   (request: Request & { stream: true }, options?: CallOptions): Promise<ChunkStream>,
 *   (request: Request, options?: CallOptions): Promise<any>,
 * }} Create
 */

/** @type {Promise<Wisp> | null} the page's engine */
let shared = null;

export class Wisp {
  #connection;

  /**
   * Boots the engine, or gives the one that this page already has (and listens to it too).
   * @param {{ onProgress?: OnProgress, onLog?: OnLog }} [listeners]
   * @returns {Promise<Wisp>}
   */
  static async create({ onProgress, onLog } = {}) {
    const connection = current ?? (current = open());
    if (onProgress) connection.onProgress.add(onProgress);
    if (onLog) connection.onLog.add(onLog);
    if (!shared) offer();
    return (shared ??= boot(connection));
  }

  /**
   * Lends the page's engine to a program on this machine: `build.py serve --api`.
   * @param {string | URL} url of its WebSocket
   */
  static lend(url) {
    new Bridge(url, () => Wisp.create());
  }

  /** @param {Connection} connection use `Wisp.create()` */
  constructor(connection) {
    this.#connection = connection;
  }

  /**
   * Loads a model and makes it the one that answers. When it rejects, the model loaded before goes on answering.
   * @param {LoadRequest} [request] @param {CallOptions} [options] @returns {Promise<Json>} what `stats()` gives
   */
  load({ model, ...rest } = {}, options = {}) {
    const given = Array.isArray(model) ? model.map(absolute) : absolute(model);
    const loading = this.#connection.call("load", { ...rest, model: given }, options);
    return loading.then((stats) => ((this.#connection.loaded = true), stats));
  }

  /**
   * What a load would take of the device, in bytes, before anything but the file's header is downloaded.
   * @param {LoadRequest} [request]
   * @returns {Promise<{ download: number, weights: number, kv: number, activations: number, total: number,
   *   context_length: number, fits?: boolean, advice?: string | null }>} `fits` and `advice` where there is a GPU
   */
  estimate({ model, ...rest } = {}) {
    return this.#connection.call("estimate", {
      ...rest,
      model: Array.isArray(model) ? model.map(absolute) : absolute(model),
    });
  }

  chat = { completions: { create: /** @type {Create<ChatRequest>} */ (this.#creator("chat.completions")) } };
  completions = { create: /** @type {Create<CompletionRequest>} */ (this.#creator("completions")) };
  responses = { create: /** @type {Create<ResponsesRequest>} */ (this.#creator("responses")) };
  embeddings = { create: this.#creator("embeddings") };
  /** Documents in the order of their relevance to a query, by a model that ranks: {query, documents, top_n}. */
  rerank = this.#creator("rerank");
  models = { list: () => this.#connection.call("models") };

  /**
   * `fetch` for the OpenAI API's paths, answered by this engine: `new OpenAI({ baseURL: location.origin + "/v1",
   * fetch: engine.fetch, apiKey: "none", dangerouslyAllowBrowser: true })`.
   * @param {RequestInfo | URL} input @param {RequestInit} [init] @returns {Promise<Response>}
   */
  fetch = (input, init) => engineFetch(this, input, init);

  /** @param {string} text @param {TokenizeOptions} [options] @returns {Promise<number[]>} token ids */
  tokenize(text, { addSpecial, parseSpecial } = {}) {
    return this.#connection.call("tokenize", { text, addSpecial, parseSpecial });
  }

  /** @param {ArrayLike<number>} ids @returns {Promise<string>} */
  detokenize(ids) {
    return this.#connection.call("detokenize", { ids: Array.from(ids) });
  }

  /**
   * The prompt text that a chat becomes.
   * @param {Json[]} messages @param {Json} [options] tools, addGenerationPrompt, template, and variables of the template
   * @returns {Promise<string>}
   */
  applyTemplate(messages, options = {}) {
    return this.#connection.call("applyTemplate", { messages, options });
  }

  /**
   * Logits at every position; of an embedding model, or where a pooling is given, the embedding, not normalised.
   * @param {ArrayLike<number>} ids
   * @param {{ pooling?: "none" | "mean" | "cls" | "last" | "rank" }} [options] default: the model's own
   * @returns {Promise<{ logits: Float32Array, shape: [number, number] } | { embedding: Float32Array, shape: number[] }>}
   *   shape is [n, vocab] of logits, [n_embd] of an embedding, [n, n_embd] of one for each id ("none")
   */
  evaluate(ids, { pooling } = {}) {
    return this.#connection.call("evaluate", { ids: Array.from(ids), pooling });
  }

  /**
   * GPU time of every dispatch of a step: one token, or a prefill batch of `n`, at `position`; the last is "step", all
   * of them in a row. `floor_ns` is the time in which this device reads as many bytes.
   * @param {number} position @param {number} [n] @returns {Promise<import("./sdk/types.d.ts").Dispatch[]>}
   */
  profile(position, n = 1) {
    return this.#connection.call("profile", { position, n });
  }

  /**
   * Would constrained decoding allow this text?
   * @param {Form} format {response_format} | {grammar} | {regex} @param {string} text
   * @returns {Promise<{ accepted: boolean, complete: boolean }>}
   */
  validate(format, text) {
    return this.#connection.call("validate", { format, text });
  }

  /** @returns {Promise<Json>} adapter, memory, cache hits, timings, notices, dispatches */
  stats() {
    return this.#connection.call("stats");
  }

  /** Frees the model; the engine stays. @returns {Promise<void>} */
  unload() {
    this.#connection.loaded = false;
    return this.#connection.call("unload");
  }

  /** Ends the worker. Requests still open reject with code "aborted"; the next `Wisp.create()` boots anew. */
  terminate() {
    this.#connection.close(WispError.aborted());
  }

  /**
   * An OpenAI endpoint: with `stream: true` a promise of chunks, else of the whole answer. The AbortSignal may be
   * given as the openai client wants it, in the second argument, or as `signal` in the request.
   * @param {string} kind
   * @returns {{
   *   (request: Json & { stream: true }, options?: CallOptions): Promise<ChunkStream>,
   *   (request: Json, options?: CallOptions): Promise<any>,
   * }}
   */
  #creator(kind) {
    return (/** @type {Json} */ { signal, ...request }, /** @type {CallOptions} */ options = {}) => {
      const how = { ...options, signal: options.signal ?? signal };
      if (request.stream) return this.#connection.stream(kind, { request }, how);
      return this.#connection.call(kind, { request }, how);
    };
  }
}

/** @type {Connection | null} the worker behind `shared` */
let current = null;

function open() {
  const connection = new Connection(new URL(__WISP_ASSETS__.worker, import.meta.url).href);
  connection.onClose = () => {
    if (current === connection) shared = current = null;
  };
  return connection;
}

let offered = false;

/** From now on the service worker may answer with this page's engine. */
function offer() {
  if (offered) return;
  offered = true;
  startHosting(
    () => shared,
    () => current?.loaded ?? false,
  );
}

/** @param {Connection} connection @returns {Promise<Wisp>} */
async function boot(connection) {
  const { pyodide, zip, snapshot, wheels, catalog, grammar } = __WISP_ASSETS__;
  /** @param {string} url */
  const resolve = (url) => new URL(url, import.meta.url).href;
  const assets = {
    pyodide: resolve(pyodide.endsWith("/") ? pyodide : `${pyodide}/`),
    zip: resolve(zip),
    snapshot: resolve(snapshot),
    wheels: wheels.map(resolve),
    catalog: resolve(catalog),
    grammar: resolve(grammar),
  };
  try {
    await connection.call("boot", { assets });
  } catch (/** @type {any} */ error) {
    connection.close(error); // a half-booted worker is of no use
    throw error;
  }
  return new Wisp(connection);
}

/**
 * Catalog ids stay as they are; URLs become absolute, since the worker lives elsewhere.
 * @template T @param {T} model @returns {T | string}
 */
function absolute(model) {
  if (typeof model !== "string" || !/\/|\.gguf/i.test(model)) return model;
  return new URL(model, globalThis.document?.baseURI ?? import.meta.url).href;
}
