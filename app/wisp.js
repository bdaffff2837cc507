/**
 * Wisp's JavaScript interface: `import { Wisp } from "/wisp.js"`.
 *
 * Language models from GGUF files, in this browser. One shared worker serves all tabs of the origin, so that a model is
 * in memory once; where a browser has none with WebGPU, each page has a worker of its own. Every `Wisp.create()` of a
 * page gives the same engine until `terminate()` or a crash; the next `create()` then connects anew. Requests and
 * answers have the shapes of the OpenAI API; whatever fails rejects with a `WispError` (`.code`, `.type`, `.param`,
 * `.error`).
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
 * @property {string} [name] what the model is called in answers and named by in requests; default: its file's name
 * @property {boolean} [default] whether it answers requests that name no model, from now on; default true
 * @property {number} [contextLength] in tokens; default: as the model was trained, as far as memory goes
 * @property {"auto" | "webgpu" | "cpu"} [backend] default "auto"
 * @property {"f16" | "f32" | "q8_0"} [kvType] the KV cache's numbers; default "f16"
 * @property {Record<string, number | boolean>} [variant] forces kernels for comparison: f16, subgroup, dot8, matrix
 *   (0: no subgroup matrices), software
 * @property {boolean} [tune] choose kernels by measuring them once on this device; default: where there is a GPU
 * @property {number} [parallel] requests that are answered side by side, 1 to 8; default: 4
 * @property {boolean} [speculation] guess the next tokens where that pays; default: true
 * @property {boolean} [vocabOnly] tokenizer and template without weights
 *
 * @typedef {object} Upstream
 * @property {string} name
 * @property {string} base_url
 * @property {string | null} key its last characters
 * @property {number} timeout seconds
 * @property {string[]} models as requests name them: `name/model`
 * @property {number} asked when the models were asked for, seconds since 1970
 * @property {string | null} error why they could not be
 * @property {number} requests sent there since this engine started
 * @property {number | null} last_request seconds since 1970
 *
 * @typedef {Record<string, any>} Json
 * @typedef {import("./sdk/types.d.ts").Form} Form what an answer's form may be
 * @typedef {{ model?: string }} Which the loaded model that is meant, or an id of the catalog; default: the default one
 * @typedef {{ addSpecial?: boolean, parseSpecial?: boolean } & Which} TokenizeOptions
 *
 * @typedef {object} CreateOptions
 * @property {OnProgress} [onProgress]
 * @property {OnLog} [onLog]
 * @property {boolean} [shared] false: a worker of this page alone, if it has none yet
 * @property {number} [memoryBudget] bytes that all loaded models together may take; default: half of the machine's
 *   memory, as far as the browser tells it. The model used longest ago is unloaded for another one. It holds for all
 *   tabs that share the engine.
 */

/** @type {Promise<Wisp> | null} the page's engine */
let shared = null;

export class Wisp extends Endpoints {
  #connection;

  /**
   * Connects to the engine and boots it if it is not running, or gives the one that this page already has (and listens
   * to it too).
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
   * Lends the page's engine to a program on this machine: `build.py serve --api`.
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
   * Loads a model beside those that are loaded, as far as the memory budget allows, unless it is there already.
   * When it rejects, the models loaded before go on answering.
   * @param {LoadRequest} [request] @param {CallOptions} [options] @returns {Promise<Json>} what `stats()` gives of it
   */
  async load({ model, ...rest } = {}, options = {}) {
    const request = { ...rest, model: Array.isArray(model) ? model.map(absolute) : absolute(model) };
    const stats = await this.#connection.call("load", request, options);
    if (request.default !== false || !lastLoad) lastLoad = request;
    return stats;
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

  /**
   * OpenAI-compatible servers for models too large for this device. Requests whose `model` is `name/model` of one of
   * them leave this machine, and no others; what is configured is kept for later visits, the keys are never given out.
   */
  upstreams = {
    /** @returns {Promise<{ data: Upstream[] }>} */
    list: () => this.#connection.call("upstreams.list"),
    /**
     * Configures one, or changes it, and asks it for its models. Without an `apiKey` the one before stays, as long as
     * the server is the same one.
     * @param {{ name: string, baseURL: string, apiKey?: string, timeout?: number, models?: string[] }} upstream
     *   `timeout`: seconds that it may be silent; `models`: their ids, for a server that has no list of them
     * @returns {Promise<Upstream>}
     */
    set: (upstream) => this.#connection.call("upstreams.set", upstream),
    /** Asks for its models once more. @param {string} name @returns {Promise<Upstream>} */
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
   * The prompt text that a chat becomes.
   * @param {Json[]} messages
   * @param {Json} [options] model, tools, addGenerationPrompt, template, and variables of the template
   * @returns {Promise<string>}
   */
  applyTemplate(messages, { model, ...options } = {}) {
    return this.#connection.call("applyTemplate", { messages, options, model });
  }

  /**
   * Logits at every position; of an embedding model, or where a pooling is given, the embedding, not normalised.
   * @param {ArrayLike<number>} ids
   * @param {{ pooling?: "none" | "mean" | "cls" | "last" | "rank" } & Which} [options] default: the model's own
   * @returns {Promise<{ logits: Float32Array, shape: [number, number] } | { embedding: Float32Array, shape: number[] }>}
   *   shape is [n, vocab] of logits, [n_embd] of an embedding, [n, n_embd] of one for each id ("none")
   */
  evaluate(ids, { pooling, model } = {}) {
    return this.#connection.call("evaluate", { ids: Array.from(ids), pooling, model });
  }

  /**
   * GPU time of every dispatch of a step: one token, or a prefill batch of `n`, at `position`; the last is "step", all
   * of them in a row. `floor_ns` is the time in which this device reads as many bytes.
   * @param {number} position @param {number} [n] @param {Which} [which]
   * @returns {Promise<import("./sdk/types.d.ts").Dispatch[]>}
   */
  profile(position, n = 1, { model } = {}) {
    return this.#connection.call("profile", { position, n, model });
  }

  /**
   * Would constrained decoding allow this text?
   * @param {Form} format {response_format} | {grammar} | {regex} @param {string} text @param {Which} [which]
   * @returns {Promise<{ accepted: boolean, complete: boolean }>}
   */
  validate(format, text, { model } = {}) {
    return this.#connection.call("validate", { format, text, model });
  }

  /**
   * Of a loaded model, or the default one: adapter, memory, cache hits, timings, notices, dispatches; of all: `models`
   * with the bytes of each, their sum `bytes`, the `budget`, and the `clients`, pages and HTTP requests that there are.
   * @param {Which} [which] @returns {Promise<Json>}
   */
  stats({ model } = {}) {
    return this.#connection.call("stats", { model });
  }

  /** Frees one model, or all, when their requests are through; the engine stays. @param {string} [model] @returns {Promise<void>} */
  async unload(model) {
    await this.#connection.call("unload", { model });
    if (model === undefined) lastLoad = null;
  }

  /**
   * Ends this page's part: its open requests reject with code "aborted". The worker ends with the last page that does
   * so, or that closes; the next `Wisp.create()` connects to it, or boots a new one.
   */
  terminate() {
    this.#connection.close(WispError.aborted());
  }
}

/** @type {Connection | null} the page's way to the engine */
let current = null;
/** @type {Promise<Wisp> | null} the engine at its end */
let booted = null;
/** @type {Record<string, any> | null} what this page loaded last as the default */
let lastLoad = null;
/** whether the engine is gone by a crash: then who asks for it gets another one */
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

/** From now on the service worker may answer with this page's engine. */
function offer() {
  if (offered) return;
  offered = true;
  startHosting(() => (current || crashed ? hosted() : null));
}

/** The engine for the service worker; one that crashed is booted again, with the model that this page had loaded. */
async function hosted() {
  const again = async () => {
    const engine = await Wisp.create();
    if (lastLoad) await engine.load(lastLoad);
  };
  const ready = current ? null : again().catch(() => {}); // what is asked then says what is missing
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
