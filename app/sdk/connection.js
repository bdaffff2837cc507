import { WispError } from "./error.js";
import { ChunkStream } from "./stream.js";

/**
 * @typedef {object} Progress
 * @property {string} stage "pyodide" | "packages" | "python" | "download" | "cache" | "hash" | "upload" | "compile" |
 *   "tune" (once per model and device, during the download)
 * @property {number} loaded bytes (boot stages: steps)
 * @property {number} total bytes, 0 when not known
 * @property {number} [speed] bytes per second
 *
 * @typedef {import("./link.js").Link} Link
 * @typedef {(progress: Progress) => void} OnProgress
 * @typedef {(level: string, text: string) => void} OnLog
 * @typedef {{ signal?: AbortSignal | null, onProgress?: OnProgress }} CallOptions
 *
 * @typedef {object} Pending callbacks for the answers to one request
 * @property {(chunk: any) => void} [chunk]
 * @property {(result: any) => void} done
 * @property {(error: WispError) => void} failed
 * @property {OnProgress} [progress]
 */

/**
 * The connection to a worker: numbers the requests, routes the answers, and fails open requests when the worker ends.
 * Worker and pages watch each other by Web Locks (app/ports.js): a lock is held as long as its holder runs.
 */
export class Connection {
  /** @type {Map<number, Pending>} */
  #pending = new Map();
  #nextId = 1;
  /** @type {WispError | null} why the worker ended */
  #dead = null;
  #over = new AbortController();
  /** @type {Promise<Link>} */
  link;

  /** @type {Set<OnProgress>} */
  onProgress = new Set();
  /** @type {Set<OnLog>} */
  onLog = new Set();
  /** @type {(error: WispError) => void} called once, when the connection ends */
  onClose = () => {};

  /** @param {Promise<Link>} link @param {(reason: string) => WispError} [lost] makes the error of open requests */
  constructor(link, lost = WispError.crashed) {
    this.link = link;
    link.then(
      (found) => {
        const { port, lock } = found;
        if (this.#dead) return found.end();
        found.onerror = (reason) => this.close(lost(reason));
        port.onmessage = ({ data }) => {
          if (data.kind === "dead") this.close(lost(data.message));
          else this.#receive(data);
        };
        port.onmessageerror = () => this.close(lost("a message could not be read"));
        if (!lock) return;
        const ended = () => this.close(lost("it was ended, or crashed"));
        navigator.locks.request(lock, { signal: this.#over.signal }, ended).catch(() => {});
      },
      (error) => this.close(error),
    );
  }

  /**
   * Sends a request and waits for its answer.
   * @param {string} kind @param {Record<string, any>} fields @param {CallOptions} [options] @returns {Promise<any>}
   */
  call(kind, fields = {}, { signal, onProgress } = {}) {
    return new Promise((resolve, reject) => {
      const id = this.#send(kind, fields, { done: resolve, failed: reject, progress: onProgress }, reject);
      if (id) this.#abortOn(signal, id, () => reject(WispError.aborted()));
    });
  }

  /**
   * Sends a request with a streamed answer. Resolves with its first chunk, so that a refused request rejects here.
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
    this.#over.abort();
    this.link.then((link) => link.end()).catch(() => {});
    for (const pending of this.#pending.values()) pending.failed(error);
    this.#pending.clear();
    this.onClose(error);
  }

  /** Connects the client at the other end of a port to the same worker. @param {MessagePort} port */
  lend(port) {
    this.link.then((link) => link.port.postMessage({ kind: "lend", port }, [port])).catch(() => {});
  }

  /**
   * @param {string} kind @param {Record<string, any>} fields @param {Pending} pending
   * @param {(error: unknown) => void} reject
   * @returns {number} the request's id, 0 when the worker has ended
   */
  #send(kind, fields, pending, reject) {
    if (this.#dead) return (reject(this.#dead), 0);
    const id = this.#nextId++;
    this.#pending.set(id, pending);
    this.#post({ ...fields, id, kind }).catch((error) => {
      if (!this.#pending.delete(id)) return;
      const message = `The request cannot be sent to the engine: ${error}`; // for example, it contains a function
      reject(new WispError({ message, type: "invalid_request_error", code: "invalid_type" }));
    });
    return id;
  }

  /** @param {Record<string, any>} message */
  async #post(message) {
    const { port } = await this.link;
    port.postMessage(message);
  }

  /** @param {AbortSignal | null | undefined} signal @param {number} id @param {() => void} then */
  #abortOn(signal, id, then) {
    const abort = () => {
      if (this.#pending.delete(id)) this.#post({ id: this.#nextId++, kind: "abort", target: id }).catch(() => {});
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
