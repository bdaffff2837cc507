/**
 * Wisp's JavaScript interface: `import { Wisp } from "/wisp.js"`.
 *
 * Language models from GGUF files, in this browser. One shared worker serves all tabs of the origin, so a model is in
 * memory once; where a browser has no shared workers with WebGPU, each page has its own. Every `Wisp.create()` of a page
 * resolves to the same engine until `terminate()` or a crash; the next `create()` connects again. Requests and answers
 * have OpenAI's shapes. Failed calls reject with a `WispError` (`.code`, `.type`, `.param`, `.error`).
 */
import { Bridge } from "./sdk/bridge.js";
import { Connection } from "./sdk/connection.js";
import { Endpoints } from "./sdk/endpoints.js";
import { WispError } from "./sdk/error.js";
import { engineFetch } from "./sdk/fetch.js";
import { startHosting } from "./sdk/host.js";
import { openLink } from "./sdk/link.js";

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
 * @property {string} [name] its name in answers and requests; default: the file's name
 * @property {boolean} [default] whether it answers requests that name no model; default: true
 * @property {number} [contextLength] tokens; default: 8,192, or the model's limit where that is less
 * @property {"auto" | "webgpu" | "cpu"} [backend] default "auto"
 * @property {"f16" | "f32" | "q8_0"} [kvType] type of the KV cache; default "f16"
 * @property {Record<string, number | boolean>} [variant] forces kernel variants for comparison: f16, subgroup, dot8, matrix
 *   (0: no subgroup matrices), software
 * @property {boolean} [tune] choose kernels by measuring them once on this device; default: on a real GPU
 * @property {number} [parallel] requests that run side by side, 1 to 8; default: 4
 * @property {boolean} [speculation] draft tokens where that pays; default: true
 * @property {boolean} [vocabOnly] tokenizer and template without weights
 *
 * @typedef {object} Upstream
 * @property {string} name
 * @property {string} base_url
 * @property {string | null} key the last characters of its API key
 * @property {number} timeout seconds
 * @property {string[]} models as requests name them: `name/model`
 * @property {number} asked when its list of models was requested, seconds since 1970
 * @property {string | null} error why that failed
 * @property {number} requests sent there since this engine started
 * @property {number | null} last_request seconds since 1970
 *
 * @typedef {Record<string, any>} Json
 * @typedef {import("./sdk/types.d.ts").Form} Form constraints of an answer
 * @typedef {{ model?: string }} Which a loaded model, or an id of the catalog; default: the default model
 * @typedef {{ addSpecial?: boolean, parseSpecial?: boolean } & Which} TokenizeOptions
 *
 * @typedef {object} CreateOptions
 * @property {OnProgress} [onProgress]
 * @property {OnLog} [onLog]
 * @property {boolean} [shared] false: use a worker of this page alone, if it has none yet
 * @property {number} [memoryBudget] bytes for all loaded models together; default: half of the memory that the
 *   browser reports. The least recently used model is evicted for another one. Applies to all tabs that share the engine.
 */

/** @type {Promise<Wisp> | null} the page's engine */
let shared = null;

export class Wisp extends Endpoints {
  #connection;

  /**
   * Connects to the engine, and boots it if it is not running. Resolves to the same engine each time; the listeners are
   * added.
   * @param {CreateOptions} [options]
   * @returns {Promise<Wisp>}
   */
  static async create({ onProgress, onLog, shared = true, memoryBudget } = {}) {
    const connection = current ?? (current = open(shared));
    if (onProgress) connection.onProgress.add(onProgress);
    if (onLog) connection.onLog.add(onLog);
    offer();
    const engine = await (booted ??= boot(connection));
    if (memoryBudget !== undefined) await connection.call("budget", { bytes: memoryBudget });
    return engine;
  }

  /**
   * Lends the page's engine to programs of this machine: `build.py serve --api`.
   * @param {string | URL} url of its WebSocket
   */
  static lend(url) {
    new Bridge(url, () => Wisp.create());
  }

  /** @param {Connection} connection use `Wisp.create()` */
  constructor(connection) {
    super(connection);
    this.#connection = connection;
  }

  /**
   * Loads a model beside those that are loaded, within the memory budget, unless it is loaded already. If it rejects,
   * the models loaded before still answer.
   * @param {LoadRequest} [request] @param {CallOptions} [options] @returns {Promise<Json>} its `stats()`
   */
  async load({ model, ...rest } = {}, options = {}) {
    const request = { ...rest, model: Array.isArray(model) ? model.map(absolute) : absolute(model) };
    const stats = await this.#connection.call("load", request, options);
    if (request.default !== false || !lastLoad) lastLoad = request;
    return stats;
  }

  /**
   * The memory that a load would take, in bytes. Downloads only the file's header.
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

  /**
   * OpenAI-compatible servers for models too large for this device. Only requests whose `model` is `name/model` of one of
   * them leave this machine. The configuration is stored for later visits; the keys are never returned.
   */
  upstreams = {
    /** @returns {Promise<{ data: Upstream[] }>} */
    list: () => this.#connection.call("upstreams.list"),
    /**
     * Configures or changes a server, and requests its models. Without an `apiKey` the stored one stays if the server is
     * the same.
     * @param {{ name: string, baseURL: string, apiKey?: string, timeout?: number, models?: string[] }} upstream
     *   `timeout`: seconds without an answer; `models`: their ids, for a server that does not list them
     * @returns {Promise<Upstream>}
     */
    set: (upstream) => this.#connection.call("upstreams.set", upstream),
    /** Requests its models again. @param {string} name @returns {Promise<Upstream>} */
    refresh: (name) => this.#connection.call("upstreams.refresh", { name }),
    /** @param {string} name @returns {Promise<void>} */
    remove: (name) => this.#connection.call("upstreams.remove", { name }),
  };

  /**
   * `fetch` for the OpenAI API's paths, answered by this engine: `new OpenAI({ baseURL: location.origin + "/v1",
   * fetch: engine.fetch, apiKey: "none", dangerouslyAllowBrowser: true })`.
   * @param {RequestInfo | URL} input @param {RequestInit} [init] @returns {Promise<Response>}
   */
  fetch = (input, init) => engineFetch(this, input, init);

  /** @param {string} text @param {TokenizeOptions} [options] @returns {Promise<number[]>} token ids */
  tokenize(text, { addSpecial, parseSpecial, model } = {}) {
    return this.#connection.call("tokenize", { text, addSpecial, parseSpecial, model });
  }

  /** @param {ArrayLike<number>} ids @param {Which} [which] @returns {Promise<string>} */
  detokenize(ids, { model } = {}) {
    return this.#connection.call("detokenize", { ids: Array.from(ids), model });
  }

  /**
   * The prompt text of a chat.
   * @param {Json[]} messages
   * @param {Json} [options] model, tools, addGenerationPrompt, template, and variables of the template
   * @returns {Promise<string>}
   */
  applyTemplate(messages, { model, ...options } = {}) {
    return this.#connection.call("applyTemplate", { messages, options, model });
  }

  /**
   * Logits at every position. For an embedding model, or with a pooling: the embedding, not normalised.
   * @param {ArrayLike<number>} ids
   * @param {{ pooling?: "none" | "mean" | "cls" | "last" | "rank" } & Which} [options] default: the model's
   * @returns {Promise<{ logits: Float32Array, shape: [number, number] } | { embedding: Float32Array, shape: number[] }>}
   *   shape is [n, vocab] of logits, [n_embd] of an embedding, [n, n_embd] of one for each id ("none")
   */
  evaluate(ids, { pooling, model } = {}) {
    return this.#connection.call("evaluate", { ids: Array.from(ids), pooling, model });
  }

  /**
   * GPU time of every dispatch of a step (one token, or a prefill batch of `n`, at `position`), and of the whole "step".
   * `floor_ns` is the time in which this device reads as many bytes.
   * @param {number} position @param {number} [n] @param {Which} [which]
   * @returns {Promise<import("./sdk/types.d.ts").Dispatch[]>}
   */
  profile(position, n = 1, { model } = {}) {
    return this.#connection.call("profile", { position, n, model });
  }

  /**
   * Whether constrained decoding would allow this text.
   * @param {Form} format {response_format} | {grammar} | {regex} @param {string} text @param {Which} [which]
   * @returns {Promise<{ accepted: boolean, complete: boolean }>}
   */
  validate(format, text, { model } = {}) {
    return this.#connection.call("validate", { format, text, model });
  }

  /**
   * Figures of a loaded model, or the default one: adapter, memory, cache hits, timings, notices, dispatches. Figures of
   * all: `models` with the bytes of each, their sum `bytes`, the `budget`, and the number of `clients`.
   * @param {Which} [which] @returns {Promise<Json>}
   */
  stats({ model } = {}) {
    return this.#connection.call("stats", { model });
  }

  /** Unloads one model, or all, when their requests have ended. The engine stays. @param {string} [model] @returns {Promise<void>} */
  async unload(model) {
    await this.#connection.call("unload", { model });
    if (model === undefined) lastLoad = null;
  }

  /**
   * Disconnects this page: its open requests reject with code "aborted". The worker ends with its last page. The next
   * `Wisp.create()` connects to it, or boots a new one.
   */
  terminate() {
    this.#connection.close(WispError.aborted());
  }
}

/** @type {Connection | null} the page's connection to the engine */
let current = null;
/** @type {Promise<Wisp> | null} the booted engine */
let booted = null;
/** @type {Record<string, any> | null} the load request of this page's last default model */
let lastLoad = null;
/** whether the engine crashed: then the next request boots another one */
let crashed = false;

/** @param {boolean} shared */
function open(shared) {
  const { worker, ...others } = __WISP_ASSETS__;
  const name = Object.values(others).flat().join(" "); // one worker for pages of the same version, and no others
  const connection = new Connection(openLink(new URL(worker, import.meta.url).href, `wisp ${name}`, shared));
  connection.onClose = (error) => {
    if (current !== connection) return;
    booted = current = null;
    crashed = error.code === "worker_crashed";
  };
  return connection;
}

let offered = false;

/** Lets the service worker answer with this page's engine from now on. */
function offer() {
  if (offered) return;
  offered = true;
  startHosting(() => (current || crashed ? hosted() : null));
}

/** The engine for the service worker. After a crash it is booted again, with the model that this page had loaded. */
async function hosted() {
  const again = async () => {
    const engine = await Wisp.create();
    if (lastLoad) await engine.load(lastLoad);
  };
  const ready = current ? null : again().catch(() => {}); // a request then reports what is missing
  const connection = /** @type {Connection} */ (current);
  return { connection, ready, loaded: (await connection.link).shared || lastLoad !== null };
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
    crashed = false;
  } catch (/** @type {any} */ error) {
    connection.close(error); // a half-booted worker cannot be used
    throw error;
  }
  return new Wisp(connection);
}

/**
 * Catalog ids stay as they are; URLs become absolute, because the worker has another base URL.
 * @template T @param {T} model @returns {T | string}
 */
function absolute(model) {
  if (typeof model !== "string" || !/\/|\.gguf/i.test(model)) return model;
  return new URL(model, globalThis.document?.baseURI ?? import.meta.url).href;
}
