import { WispError } from "./error.js";
import { ChunkStream } from "./stream.js";

/**
 * @typedef {object} Progress
 * @property {string} stage "pyodide" | "packages" | "python" | "download" | "cache" | "hash" | "upload" | "compile" |
 *   "tune" (once per model and device, beside the download)
 * @property {number} loaded bytes (boot stages: steps)
 * @property {number} total bytes, 0 when not known
 * @property {number} [speed] bytes per second
 *
 * @typedef {(progress: Progress) => void} OnProgress
 * @typedef {(level: string, text: string) => void} OnLog
 * @typedef {{ signal?: AbortSignal | null, onProgress?: OnProgress }} CallOptions
 *
 * @typedef {object} Pending what is called as the answers to one request come in
 * @property {(chunk: any) => void} [chunk]
 * @property {(result: any) => void} done
 * @property {(error: WispError) => void} failed
 * @property {OnProgress} [progress]
 */

/** The worker and the requests it has not answered yet: numbers them, routes the answers, and fails all on a crash. */
export class Connection {
  /** @type {Map<number, Pending>} */
  #pending = new Map();
  #nextId = 1;
  /** @type {WispError | null} why the worker is gone */
  #dead = null;
  #worker;
  /** whether a model can answer: it decides between several pages that could */
  loaded = false;

  /** @type {Set<OnProgress>} */
  onProgress = new Set();
  /** @type {Set<OnLog>} */
  onLog = new Set();
  /** @type {() => void} called once, when the worker has crashed or was terminated */
  onClose = () => {};

  /** @param {string} url of the worker's module */
  constructor(url) {
    this.#worker = new Worker(url, { type: "module", name: "wisp" });
    this.#worker.onmessage = ({ data }) => this.#receive(data);
    this.#worker.onerror = (event) => {
      event.preventDefault();
      this.close(WispError.crashed(event.message || "its script did not load"));
    };
    this.#worker.onmessageerror = () => this.close(WispError.crashed("a message could not be read"));
  }

  /**
   * One question, one answer.
   * @param {string} kind @param {Record<string, any>} fields @param {CallOptions} [options] @returns {Promise<any>}
   */
  call(kind, fields = {}, { signal, onProgress } = {}) {
    return new Promise((resolve, reject) => {
      const id = this.#send(kind, fields, { done: resolve, failed: reject, progress: onProgress }, reject);
      if (id) this.#abortOn(signal, id, () => reject(WispError.aborted()));
    });
  }

  /**
   * One question, many chunks. Resolves with the first chunk in hand, so that a refused request rejects here.
   * @param {string} kind @param {Record<string, any>} fields @param {CallOptions} [options]
   * @returns {Promise<ChunkStream<any>>}
   */
  stream(kind, fields, { signal } = {}) {
    return new Promise((resolve, reject) => {
      const controller = new AbortController();
      const stream = new ChunkStream(controller);
      /** @type {Pending} */
      const pending = {
        chunk: (chunk) => (stream.push(chunk), resolve(stream)),
        done: () => (stream.end(), resolve(stream)),
        failed: (error) => (stream.end(error), reject(error)),
      };
      const id = this.#send(kind, fields, pending, reject);
      if (!id) return;
      this.#abortOn(signal, id, () => controller.abort());
      this.#abortOn(controller.signal, id, () => reject(WispError.aborted()));
    });
  }

  /** @param {WispError} error every open request rejects with it */
  close(error) {
    if (this.#dead) return;
    this.#dead = error;
    this.#worker.terminate();
    for (const pending of this.#pending.values()) pending.failed(error);
    this.#pending.clear();
    this.onClose();
  }

  /**
   * @param {string} kind @param {Record<string, any>} fields @param {Pending} pending
   * @param {(error: unknown) => void} reject
   * @returns {number} the request's id, 0 when it could not be sent
   */
  #send(kind, fields, pending, reject) {
    if (this.#dead) return (reject(this.#dead), 0);
    const id = this.#nextId++;
    this.#pending.set(id, pending);
    try {
      this.#worker.postMessage({ ...fields, id, kind });
    } catch (error) {
      this.#pending.delete(id); // something that cannot be cloned, such as a function among the parameters
      const message = `The request cannot be sent to the engine: ${error}`;
      reject(new WispError({ message, type: "invalid_request_error", code: "invalid_type" }));
      return 0;
    }
    return id;
  }

  /** @param {AbortSignal | null | undefined} signal @param {number} id @param {() => void} then */
  #abortOn(signal, id, then) {
    const abort = () => {
      if (this.#pending.delete(id)) this.#worker.postMessage({ id: this.#nextId++, kind: "abort", target: id });
      then();
    };
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  }

  /** @param {any} message from the worker */
  #receive(message) {
    if (message.kind === "log") return this.onLog.forEach((listener) => listener(message.level, message.text));
    const pending = this.#pending.get(message.id);
    if (message.kind === "progress") {
      const listeners = new Set(this.onProgress);
      if (pending?.progress) listeners.add(pending.progress);
      return listeners.forEach((listener) => listener(message.progress));
    }
    if (message.kind === "chunk") return pending?.chunk?.(message.chunk);
    this.#pending.delete(message.id);
    if (message.kind === "error") pending?.failed(new WispError(message.error));
    else pending?.done(message.result);
  }
}
