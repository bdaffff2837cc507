/**
 * Wisp's JavaScript interface: `import { Wisp } from "/wisp.js"`.
 *
 * Language models from GGUF files, in this browser. One shared worker serves all tabs of the origin, so a model is in
 * memory once; where a browser has no shared workers with WebGPU, each page has its own. Every `Wisp.create()` of a page
 * resolves to the same engine until `terminate()`. When the worker crashes, the next one gets the same models, and the
 * answers under way go on in it. Requests and answers have OpenAI's shapes. Failed calls reject with a `WispError` (`.code`, `.type`, `.param`, `.error`).
 */
import { adapterFields } from "./sdk/adapters.js";
import { absolute } from "./sdk/address.js";
import { Agents } from "./sdk/agents.js";
import { checkFields, checkModel } from "./sdk/arguments.js";
import { Bridge } from "./sdk/bridge.js";
import { Connection } from "./sdk/connection.js";
import { Endpoints } from "./sdk/endpoints.js";
import { WispError } from "./sdk/error.js";
import { engineFetch } from "./sdk/fetch.js";
import { startComputeWorker } from "./sdk/compute.js";
import { DownloadQueue } from "./sdk/download_queue.js";
import { startDownloadWorkers } from "./sdk/downloads.js";
import { startHosting } from "./sdk/host.js";
import { openLink } from "./sdk/link.js";
import { Mcp } from "./sdk/mcp.js";
import { withMcp } from "./sdk/mcp_responses.js";
import { Monitor } from "./sdk/monitor.js";
import { readPdf } from "./sdk/pdf.js";
import { Quality } from "./sdk/quality.js";
import { Upstreams } from "./sdk/upstreams.js";

export { Hub } from "./hub/client.js";
export { WispError };

/**
 * @typedef {import("./sdk/connection.js").Progress} Progress
 * @typedef {import("./sdk/connection.js").OnProgress} OnProgress
 * @typedef {import("./sdk/connection.js").OnLog} OnLog
 * @typedef {import("./sdk/connection.js").CallOptions} CallOptions
 *
 * @typedef {string | string[] | Blob | Blob[]} Model catalog id | URL of a .gguf | URLs or Files of a split one | File
 *
 * @typedef {object} LoadRequest
 * @property {Model} [model] default: the catalog's default
 * @property {Model} [projector] with which the model sees or hears; default: the catalog's, if it has one
 * @property {import("./sdk/adapters.js").Adapter | string | Blob | (import("./sdk/adapters.js").Adapter | string | Blob)[]} [lora] LoRA
 *   adapters and control vectors; `scale`: of requests without `lora`, default 1; `layers`: of a control vector
 * @property {Model} [draft] a small model of the same vocabulary, or one made for this model, that drafts tokens for it to verify
 * @property {boolean} [mtp] draft by the model's own layer for multi-token prediction, if the file has one, where that
 *   pays; default: false
 * @property {number} [draftTokens] tokens of a draft at most before the model verifies them, 1 to 7; default: 7
 * @property {string} [name] its name in answers and requests; default: the file's name
 * @property {boolean} [default] whether it answers requests that name no model; default: true
 * @property {number} [contextLength] tokens; default: 8,192, or the model's limit where that is less
 * @property {boolean} [clampContext] a contextLength above the model's limit is lowered to it; default: it is an error
 * @property {"auto" | "webgpu" | "cpu"} [backend] default "auto"
 * @property {"f16" | "f32" | "q8_0"} [kvType] type of the KV cache; default "f16"
 * @property {Record<string, number | boolean>} [variant] forces kernel variants for comparison: f16, subgroup, dot8, matrix
 *   (0: no subgroup matrices), software
 * @property {boolean} [tune] choose kernels by measuring them once on this device; default: on a real GPU
 * @property {boolean} [prove] run each kernel once on this device against the CPU's result; default: on a real GPU
 * @property {number} [parallel] requests that run side by side, 1 to 32; default: 4
 * @property {number} [threads] on the CPU; default: as many as the device has
 * @property {boolean} [speculation] draft tokens where that pays; default: true
 * @property {boolean} [vocabOnly] tokenizer and template without weights
 * @property {string | string[] | null} [sha256] the SHA-256 that the file, or each file, must have, in hex
 *
 * @typedef {import("./sdk/upstreams.js").Upstream} Upstream
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
    const engine = await (booted ??= connection.ready.then(() => new Wisp(connection)));
    if (memoryBudget !== undefined) {
      budget = memoryBudget;
      await connection.call("budget", { bytes: memoryBudget });
    }
    return engine;
  }

  /**
   * Lends the page's engine to programs of this machine: `build.py serve --api`.
   * @param {string | URL} url of its WebSocket, with a ticket that is valid once
   * @param {import("./sdk/bridge.js").Listeners} [listeners]
   */
  static lend(url, listeners = {}) {
    const onRelay = (/** @type {import("./sdk/bridge.js").RelayedServer[]} */ servers) => {
      Mcp.relayed = servers;
      listeners.onRelay?.(servers);
    };
    new Bridge(url, () => Wisp.create(), { ...listeners, onRelay });
  }

  /** @param {Connection} connection use `Wisp.create()` */
  constructor(connection) {
    super(connection);
    this.#connection = connection;
    this.downloads = new DownloadQueue(connection);
    this.upstreams = new Upstreams(connection);
    this.responses = { ...this.responses, create: withMcp(this.responses.create, this.mcp) };
  }

  /**
   * Loads a model beside those that are loaded, within the memory budget, unless it is loaded already. If it rejects,
   * the models loaded before still answer.
   * @param {LoadRequest} [request] @param {CallOptions} [options] @returns {Promise<Json>} its `stats()`
   */
  async load(request = {}, options = {}) {
    checkFields(request, "load()", ", such as load({ model })");
    const { model, projector, draft, lora, ...rest } = request;
    checkModel(model);
    const files = {
      model: absolute(model),
      ...(projector && { projector: absolute(projector) }),
      ...(draft && { draft: absolute(draft) }),
      ...adapterFields(lora),
    };
    return this.#connection.call("load", { ...rest, ...files }, options);
  }

  /**
   * The memory that a load would take, in bytes. Downloads only the file's header.
   * @param {LoadRequest} [request]
   * @returns {Promise<{ download: number, weights: number, kv: number, activations: number, total: number,
   *   context_length: number, fits?: boolean, advice?: string | null }>} `fits` and `advice` where there is a GPU
   */
  async estimate(request = {}) {
    checkFields(request, "estimate()", ", such as estimate({ model })");
    const { model, draft, lora, ...rest } = request;
    checkModel(model);
    const files = { model: absolute(model), ...(draft && { draft: absolute(draft) }), ...adapterFields(lora) };
    return this.#connection.call("estimate", { ...rest, ...files });
  }

  /**
   * The prompt cache in this browser's storage: what was computed for prompts, so that a later visit need not compute it
   * again. Requests with `prompt_cache_retention: "in_memory"` leave nothing there.
   */
  promptCache = {
    /** @returns {Promise<{ blocks: number, bytes: number, limit: number }>} `blocks`: of 64 tokens each */
    usage: () => this.#connection.call("promptCache.usage"),
    /** Sets how much may be stored, for later visits too; the least recently used goes first. @param {number} bytes */
    setLimit: (bytes) => this.#connection.call("promptCache.limit", { bytes }),
    /** Removes all of it. @returns {Promise<void>} */
    clear: () => this.#connection.call("promptCache.clear"),
  };

  /** The download queue of all tabs. */
  downloads;

  /** OpenAI-compatible servers for models too large for this device. */
  upstreams;

  /** Perplexity, divergence and multiple-choice questions, as llama-perplexity has them. */
  quality = new Quality(this);

  /** Agents: the model calls tools until it answers. */
  agents = new Agents(this);

  /** Servers of the Model Context Protocol, whose tools agents use. */
  mcp = new Mcp(new URL(__WISP_ASSETS__.mcp, import.meta.url).href, this.validate.bind(this));

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
   * The tokens of a chat request's prompt, and of the model's context; null: only its vocabulary is loaded. A prompt
   * may be longer than the context.
   * @param {import("./sdk/types.d.ts").ChatRequest} request
   * @returns {Promise<{ tokens: number, context_length: number | null }>}
   */
  countTokens(request) {
    return this.#connection.call("countTokens", { request });
  }

  /**
   * Logits at every position. For an embedding model, or with a pooling: the embedding, not normalised.
   * For a prompt, with pictures or sounds as encode() takes it: of each position of its last text, then of each of `ids`.
   * For an encoder-decoder model: after the token that answers begin with, then after each of `ids`.
   * @param {ArrayLike<number> | { prompt: string, media?: Blob[], ids?: ArrayLike<number> }} ids
   * @param {{ pooling?: "none" | "mean" | "cls" | "last" | "rank" } & Which} [options] default: the model's
   * @returns {Promise<{ logits: Float32Array, shape: [number, number] } | { embedding: Float32Array, shape: number[] }>}
   *   shape is [n, vocab] of logits, [n_embd] of an embedding, [n, n_embd] of one for each id ("none")
   */
  evaluate(ids, { pooling, model } = {}) {
    if (isPrompt(ids)) {
      const { prompt, media, ids: following = [] } = ids;
      return this.#connection.call("evaluate", { prompt, media, ids: Array.from(following), model });
    }
    return this.#connection.call("evaluate", { ids: Array.from(ids), pooling, model });
  }

  /**
   * What the model reads of a prompt with pictures or sounds: the ids of its texts, and what the projector makes of each
   * of the media. `prompt` has the marker <__media__> once for each of `media`.
   * @param {{ prompt: string, media: Blob[] }} request @param {Which} [which]
   * @returns {Promise<{ chunks: import("./sdk/types.d.ts").PromptChunk[] }>}
   */
  encode({ prompt, media }, { model } = {}) {
    return this.#connection.call("encode", { prompt, media, model });
  }

  /**
   * Time of every dispatch of a step (one token, or a prefill batch of `n`, at `position`), and of the whole "step".
   * `floor_ns` is the least time that this device needs for as many bytes and operations.
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
   * @param {Which} [which] @returns {Promise<import("./sdk/types.d.ts").Stats>}
   */
  stats({ model } = {}) {
    return this.#connection.call("stats", { model });
  }

  /**
   * Takes samples of the default model's figures until `stop()`: `onSample` gets each, `samples` has them, and `lines()`
   * returns them as JSON lines.
   * @param {{ interval?: number, most?: number }} [options] ms between two samples, default 1,000; how many are held,
   *   default 3,600
   */
  monitor(options = {}) {
    const monitor = new Monitor(() => this.stats(), options);
    monitor.watchLink(this.#connection.onProgress);
    return monitor;
  }

  /** Unloads one model, or all, when their requests have ended. The engine stays. @param {string} [model] @returns {Promise<void>} */
  unload(model) {
    return this.#connection.call("unload", { model });
  }

  /**
   * Disconnects this page: its open requests reject with code "aborted". The worker ends with its last page. The next
   * `Wisp.create()` connects to it, or boots a new one.
   */
  terminate() {
    this.#connection.close(WispError.aborted("This page left the engine by terminate(). Wisp.create() starts anew."));
  }
}

/** @type {Connection | null} the page's connection to the engine */
let current = null;
/** @type {Promise<Wisp> | null} the booted engine */
let booted = null;
/** @type {number | undefined} bytes that this page allows all models */
let budget;
/** @type {Record<string, any>[] | null} the models of an engine that ended and could not be started again */
let lost = null;

/** @param {boolean} shared */
function open(shared) {
  const { worker, ...others } = __WISP_ASSETS__;
  const name = JSON.stringify(others); // one worker for pages of the same version, and no others
  const link = () => openLink(new URL(worker, import.meta.url).href, `wisp ${name}`, shared);
  const connection = new Connection(link, { prepare });
  let endDownloads = () => {};
  connection.onDownloads = () => {
    endDownloads();
    const url = new URL(__WISP_ASSETS__.downloads, import.meta.url).href;
    endDownloads = startDownloadWorkers(url, (port) => connection.lend(port, "downloads"));
  };
  connection.onCompute = () => {
    const url = new URL(__WISP_ASSETS__.cpu.worker, import.meta.url).href;
    startComputeWorker(url, (port, failure) => connection.lend(port, "compute", failure));
  };
  connection.onPdf = (message) => {
    const { reader, worker } = __WISP_ASSETS__.pdf;
    readPdf(message, { reader: new URL(reader, import.meta.url).href, worker: new URL(worker, import.meta.url).href });
  };
  connection.onRestart = (reason) => {
    if (connection.onQueue.size) connection.call("downloads.list").catch(() => {}); // goes on with the queue
    const text = `The engine stopped (${reason}) and was started again; answers continue.`;
    connection.onLog.forEach((listener) => listener("notice", text));
  };
  connection.onClose = (error) => {
    endDownloads();
    if (current !== connection) return;
    booted = current = null;
    lost = error.code === "aborted" ? null : connection.loads;
  };
  return connection;
}

let offered = false;

/** Lets the service worker answer with this page's engine from now on. */
function offer() {
  if (offered) return;
  offered = true;
  startHosting(() => (current || lost ? hosted() : null));
}

/** The engine for the service worker. One that ended for good is started once more, with the models that it had. */
async function hosted() {
  const loads = lost ?? [];
  const again = async () => {
    const engine = await Wisp.create();
    for (const load of loads) await engine.load(load);
  };
  const ready = (current ? current.ready : again()).catch(() => {}); // a request then reports what is missing
  const connection = /** @type {Connection} */ (current);
  return { connection, ready, loaded: (await connection.link).shared || connection.loads.length + loads.length > 0 };
}

/**
 * @param {ArrayLike<number> | { prompt: string, media?: Blob[], ids?: ArrayLike<number> }} given
 * @returns {given is { prompt: string, media?: Blob[], ids?: ArrayLike<number> }}
 */
const isPrompt = (given) => "prompt" in given;

/**
 * Boots a worker, and loads the models that the last one had.
 * @param {import("./sdk/connection.js").Call} call @param {Record<string, any>[]} loads
 */
async function prepare(call, loads) {
  const { pyodide, zip, snapshot, library, packages, wheels, whole, catalog, grammar, media, cpu } = __WISP_ASSETS__;
  /** @param {string} url */
  const resolve = (url) => new URL(url, import.meta.url).href;
  const assets = {
    pyodide: resolve(pyodide.endsWith("/") ? pyodide : `${pyodide}/`),
    zip: resolve(zip),
    snapshot: resolve(snapshot),
    library: resolve(library),
    packages: resolve(packages),
    wheels: wheels.map(resolve),
    whole: { library: resolve(whole.library), numpy: resolve(whole.numpy) },
    catalog: resolve(catalog),
    grammar: resolve(grammar),
    media: resolve(media),
    cpu: /** @type {typeof cpu} */ (Object.fromEntries(Object.entries(cpu).map(([name, url]) => [name, resolve(url)]))),
  };
  await call("boot", { assets });
  lost = null;
  if (loads.length && budget !== undefined) await call("budget", { bytes: budget });
  for (const load of loads) await call("load", load).catch(() => {}); // a request for it gets the error
}
