import { WispError } from "./error.js";
import { record } from "./journal.js";
import { decodeSound } from "./sound.js";
import { ChunkStream } from "./stream.js";
import { lendTrialWorker } from "./trial.js";
import { readVideo } from "./video.js";

/**
 * @typedef {object} Progress
 * @property {string} stage "pyodide" | "packages" | "python" | "download" | "cache" | "hash" | "upload" | "compile" |
 *   "tune" (once per model and device, during the download)
 * @property {number} loaded bytes (boot stages: steps)
 * @property {number} total bytes, 0 when not known
 * @property {number} [speed] bytes per second
 *
 * @typedef {import("./link.js").Link} Link
 * @typedef {import("./journal.js").Journal} Journal
 * @typedef {(progress: Progress) => void} OnProgress
 * @typedef {(level: string, text: string) => void} OnLog
 * @typedef {object} CallOptions
 * @property {AbortSignal | null} [signal] aborts the call within one batch of tokens
 * @property {OnProgress} [onProgress]
 * @property {Journal | null} [resume] of an earlier stream for the same request: this one begins with the same chunks, at
 *   once, and goes on where that one was cut
 *
 * @typedef {object} Pending a request without its whole answer
 * @property {Record<string, any>} message
 * @property {(result: any) => void} done
 * @property {(error: WispError) => void} failed
 * @property {(chunk: any) => void} [chunk]
 * @property {(journal: Journal) => void} [recorded]
 * @property {OnProgress} [progress]
 * @property {Journal | null} [journal] of its answer, if a model of this machine generates one
 * @property {boolean} [sent] to the present worker
 * @property {boolean} [early] it readies the present worker: the others wait until it is done
 * @property {number} [losses] workers that ended since the answer last grew
 *
 * @typedef {(kind: string, fields: Record<string, any>) => Promise<any>} Call
 *
 * @typedef {object} Options
 * @property {(reason: string) => WispError} [lost] makes the error of open requests
 * @property {(call: Call, loads: Record<string, any>[]) => Promise<void>} [prepare] readies a worker before it gets
 *   requests; `loads`: the load requests of the models that the last one had
 */

const MOST_LOSSES = 3; // workers that end in a row before a request makes progress, until it fails
const MOST_STARTS = 3; // tries to start the next worker
const PAUSE_MS = 200; // after a try that failed

/**
 * The connection to a worker: numbers the requests and routes the answers. When the worker ends, the next one gets the open
 * requests again, each with the journal of its answer, so that the answers go on. Worker and pages watch each other by Web
 * Locks (app/ports.js): a lock is held as long as its holder runs.
 */
export class Connection {
  /** @type {Map<number, Pending>} */
  #pending = new Map();
  #nextId = 1;
  /** @type {WispError | null} why there is no worker any more */
  #dead = null;
  /** @type {MessagePort | null} of a worker that is ready for requests */
  #port = null;
  #over = new AbortController();
  #open;
  #lost;
  #prepare;
  /** @type {Promise<Link>} to the present worker */
  link;
  /** @type {Promise<void>} resolves when the present worker is ready for requests */
  ready;

  /** @type {Record<string, any>[]} the load requests of the present models */
  loads = [];
  /** @type {Set<OnProgress>} */
  onProgress = new Set();
  /** @type {Set<OnLog>} */
  onLog = new Set();
  /** @type {Set<(downloads: import("./types.d.ts").QueuedDownload[], limit: number) => void>} called when the download queue changes */
  onQueue = new Set();
  /** @type {Set<(update: { model: string, url: string }) => void>} called when a model's host has a newer version */
  onUpdate = new Set();
  /** @type {(error: WispError) => void} called once, when the connection ends */
  onClose = () => {};
  /** @type {(reason: string) => void} called when a worker had ended and the next one is ready */
  onRestart = () => {};
  onDownloads = () => {}; // called when the engine needs this page's download workers
  /** @type {(message: { bytes: Uint8Array<ArrayBuffer>, answer: MessagePort }) => void} called when this page is to read a PDF file */
  onPdf = () => {};
  onCompute = () => {}; // called when the engine needs a compute worker of this page

  /** @param {() => Promise<Link>} open connects to a worker @param {Options} [options] */
  constructor(open, { lost = WispError.crashed, prepare = async () => {} } = {}) {
    this.#open = open;
    this.#lost = lost;
    this.#prepare = prepare;
    this.link = open();
    this.ready = this.#started(1);
  }

  /**
   * Sends a request and waits for its answer.
   * @param {string} kind @param {Record<string, any>} fields @param {CallOptions} [options] @returns {Promise<any>}
   */
  call(kind, fields = {}, { signal, onProgress } = {}) {
    return new Promise((done, failed) => {
      const id = this.#send({ message: { ...fields, kind }, done, failed, progress: onProgress });
      if (id) this.#abortOn(signal, id, () => failed(WispError.aborted()));
    });
  }

  /**
   * Sends a request with a streamed answer. Resolves with its first chunk, so that a refused request rejects here.
   * @param {string} kind @param {Record<string, any>} fields @param {CallOptions} [options]
   * @returns {Promise<ChunkStream<any>>}
   */
  stream(kind, fields, { signal, resume } = {}) {
    return new Promise((resolve, reject) => {
      const controller = new AbortController();
      const stream = new ChunkStream(controller);
      const id = this.#send({
        message: { ...fields, kind, ...(resume ? { resume, replay: true } : {}) },
        chunk: (chunk) => (stream.push(chunk), resolve(stream)),
        recorded: (journal) => (stream.journal = journal),
        done: () => (stream.end(), resolve(stream)),
        failed: (error) => (stream.end(error), reject(error)),
      });
      if (!id) return;
      this.#abortOn(signal, id, () => controller.abort());
      this.#abortOn(controller.signal, id, () => reject(WispError.aborted()));
    });
  }

  /** @param {WispError} error every open request rejects with it */
  close(error) {
    if (this.#dead) return;
    this.#dead = error;
    this.#port = null;
    this.#over.abort();
    this.link.then((link) => link.end()).catch(() => {});
    for (const pending of this.#pending.values()) pending.failed(error);
    this.#pending.clear();
    this.onClose(error);
  }

  /**
   * Connects the client, or the worker, at the other end of a port to the same engine.
   * @param {MessagePort} port @param {"lend" | "downloads" | "compute"} kind
   * @param {MessagePort} [failure] at which a message says why a compute worker does not work
   */
  lend(port, kind = "lend", failure) {
    const ports = failure ? [port, failure] : [port];
    this.link.then((link) => link.port.postMessage({ kind, port, failure }, ports)).catch(() => {});
  }

  /** Readies the present worker, and closes the connection if that fails. @param {number} tries */
  #started(tries) {
    const ready = this.#start(tries).catch((error) => {
      this.close(error);
      throw error;
    });
    ready.catch(() => {}); // whoever waits for it gets the error
    return ready;
  }

  /** Readies the present worker, or the next one if that fails, and sends it the open requests. @param {number} tries */
  async #start(tries) {
    const { loads } = this;
    for (let left = tries - 1; ; left--) {
      try {
        const link = await this.link;
        const ended = this.#watch(link);
        /** @type {Promise<never>} */
        const failed = ended.then((reason) => {
          throw this.#lost(reason);
        });
        await Promise.race([this.#prepare((kind, fields) => this.#ask(link.port, kind, fields), loads), failed]);
        if (this.#dead) throw this.#dead;
        this.#port = link.port;
        for (const [id, pending] of this.#pending) this.#deliver(id, pending);
        ended.then((reason) => this.#restart(link, reason));
        return;
      } catch (error) {
        if (this.#dead || !left) throw error;
        this.link.then((link) => link.end()).catch(() => {});
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
        if (this.#dead) throw this.#dead;
        this.loads = loads;
        this.link = this.#open();
      }
    }
  }

  /** @param {Link} link @returns {Promise<string>} why its worker ended, when it has */
  #watch(link) {
    const { port, lock } = link;
    return new Promise((ended) => {
      link.onerror = ended;
      port.onmessage = ({ data }) => {
        for (const message of Array.isArray(data) ? data : [data])
          if (message.kind === "dead") ended(message.message);
          else this.#receiveSafely(message);
      };
      port.onmessageerror = () => ended("a message could not be read");
      if (!lock) return;
      const released = () => ended("it was ended, or crashed");
      navigator.locks.request(lock, { signal: this.#over.signal }, released).catch(() => {});
    });
  }

  /** Goes on with another worker. @param {Link} link to the one that ended @param {string} reason */
  #restart(link, reason) {
    if (this.#dead) return;
    const error = this.#lost(reason);
    this.#port = null;
    link.end();
    for (const [id, pending] of this.#pending) {
      if (!pending.sent) continue;
      pending.sent = false;
      pending.losses = (pending.losses ?? 0) + 1;
      if (pending.losses < MOST_LOSSES && mayRepeat(pending)) continue;
      this.#pending.delete(id);
      pending.failed(error);
    }
    this.link = this.#open();
    this.ready = this.#started(MOST_STARTS);
    this.ready.then(
      () => this.onRestart(reason),
      () => {},
    );
  }

  /**
   * Sends a request that readies a worker.
   * @param {MessagePort} port @param {string} kind @param {Record<string, any>} fields @returns {Promise<any>}
   */
  #ask(port, kind, fields) {
    return new Promise((done, failed) => {
      const id = this.#nextId++;
      this.#pending.set(id, { message: {}, done, failed, sent: true, early: true });
      port.postMessage({ ...fields, id, kind });
    });
  }

  /** @param {Pending} pending @returns {number} the request's id, 0 when there is no worker any more */
  #send(pending) {
    if (this.#dead) return (pending.failed(this.#dead), 0);
    const id = this.#nextId++;
    this.#pending.set(id, pending);
    if (this.#port) this.#deliver(id, pending);
    return id;
  }

  /** Sends a request to the present worker, unless it has it. @param {number} id @param {Pending} pending */
  #deliver(id, pending) {
    if (pending.early) this.#pending.delete(id);
    if (pending.sent) return;
    const { message, journal } = pending;
    try {
      this.#port?.postMessage({ ...message, id, ...(journal ? { resume: journal, replay: false } : {}) });
      pending.sent = true;
    } catch (error) {
      this.#pending.delete(id);
      const text = `The request cannot be sent to the engine: ${error}`; // for example, it contains a function
      pending.failed(new WispError({ message: text, type: "invalid_request_error", code: "invalid_type" }));
    }
  }

  /** @param {AbortSignal | null | undefined} signal @param {number} id @param {() => void} then */
  #abortOn(signal, id, then) {
    const abort = () => {
      if (this.#pending.delete(id)) this.#port?.postMessage({ id: this.#nextId++, kind: "abort", target: id });
      then();
    };
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  }

  /** Reports what a listener throws, so that it does not keep the next message from another one. @param {any} message */
  #receiveSafely(message) {
    try {
      this.#receive(message);
    } catch (error) {
      reportError(error);
    }
  }

  /** @param {any} message from the worker */
  #receive(message) {
    const { kind } = message;
    if (kind === "downloads") return this.onDownloads();
    if (kind === "decodeSound") return void decodeSound(message);
    if (kind === "readVideo") return void readVideo(message);
    if (kind === "readPdf") return this.onPdf(message);
    if (kind === "trial") return lendTrialWorker(message);
    if (kind === "compute") return this.onCompute();
    if (kind === "modelUpdate") return this.onUpdate.forEach((listener) => listener(message));
    if (kind === "downloadQueue") return this.onQueue.forEach((listener) => listener(message.downloads, message.limit));
    if (kind === "loads") return void (this.loads = message.loads);
    if (kind === "log") return this.onLog.forEach((listener) => listener(message.level, message.text));
    const pending = this.#pending.get(message.id);
    if (kind === "progress") {
      const listeners = new Set(this.onProgress);
      if (pending?.progress) listeners.add(pending.progress);
      return listeners.forEach((listener) => listener(message.progress));
    }
    if (kind === "chunk") return pending?.chunk?.(message.chunk);
    if (kind === "chunks") return pending && grow(pending, message);
    this.#pending.delete(message.id);
    if (kind === "error") pending?.failed(new WispError(message.error, message.retryAfter));
    else pending?.done(message.result);
  }
}

/** Adds to an answer the next chunks and what its journal says of them. @param {Pending} pending @param {any} message */
function grow(pending, { chunks, journal }) {
  pending.journal = record(pending.journal ?? null, journal);
  if (journal.some((/** @type {any} */ { batches }) => batches?.length)) pending.losses = 0;
  pending.recorded?.(pending.journal);
  for (const chunk of chunks) pending.chunk?.(chunk);
}

/** Whether another worker may get a request: not if it may have left this machine. @param {Pending} pending */
function mayRepeat({ message, journal }) {
  return Boolean(journal) || !String(message.request?.model ?? "").includes("/");
}
