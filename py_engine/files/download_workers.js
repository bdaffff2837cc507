/**
 * The download workers that pages lend to the engine (download_worker.js). With them, the engine's thread has the GPU to
 * feed and nothing else: a shared worker cannot start workers of its own.
 *
 * A worker ends with its page. What it was downloading then fails with a WorkerLost error; shards.py downloads it again,
 * in another worker or in the engine's thread.
 */

import { authorization } from "./http.js";
import { Incoming } from "./incoming.js";

/** @typedef {import("./incoming.js").OnBytes} OnBytes */

const IDLE_MS = 5_000; // a worker without records ends after so long
const ASK_MS = 1_000; // between two requests for workers
const START_MS = 500; // that the first worker may take to start

/** @type {Set<Link>} */
const links = new Set();
let asked = -Infinity; // when pages were last asked for workers
let ask = () => {};

/** Sets the function that asks a page for workers. @param {() => void} request */
export const onWorkersNeeded = (request) => void (ask = request);

/** Uses the worker at the other end of a port. @param {MessagePort} port */
export const addDownloadWorker = (port) => void new Link(port);

/** Asks a page for workers, unless there are some. */
export function needWorkers() {
  if (links.size || performance.now() - asked < ASK_MS) return;
  asked = performance.now();
  ask();
}

/** Asks for workers, and waits a moment for the first one. */
export async function awaitWorkers() {
  needWorkers();
  const end = performance.now() + START_MS;
  while (!links.size && performance.now() < end) await new Promise((resolve) => setTimeout(resolve, 10));
}

/**
 * Begins a record. If `inWorker`, in a page's worker if there is one; else in this thread. Records of a `stream` are all
 * filled in the same worker: one response has the whole file.
 * @param {number} length @param {boolean} inWorker @param {boolean} stream @returns {Incoming | Remote}
 */
export function newRecord(length, inWorker, stream) {
  if (!inWorker) return new Incoming(length);
  const [first, ...others] = links;
  const link = stream ? first : leastBusy([first, ...others]);
  if (link)
    return new Remote(link, length, stream ? () => leastBusy(others.filter((other) => links.has(other))) : null);
  needWorkers();
  return new Incoming(length);
}

/** @param {(Link | undefined)[]} all @returns {Link | undefined} */
const leastBusy = (all) => all.reduce((a, b) => (!a || (b && b.records < a.records) ? b : a), undefined);

/** A connection to a worker. */
class Link {
  #port;
  #lost = false;
  #next = 1;
  /** @type {Map<number, { resolve: (value: any) => void, reject: (error: Error) => void, onBytes?: OnBytes }>} */
  #pending = new Map();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #idle;
  records = 0; // begun, but neither finished nor discarded

  /** @param {MessagePort} port */
  constructor(port) {
    this.#port = port;
    port.onmessage = ({ data }) => this.#receive(data);
  }

  /** @returns {number} a number for a call or a record */
  number = () => this.#next++;

  /** Sends a message without an answer. @param {Record<string, any>} message @param {Transferable[]} [transfer] */
  post(message, transfer = []) {
    if (!this.#lost) this.#port.postMessage(message, transfer);
  }

  /**
   * Calls a method.
   * @param {Record<string, any>} message @param {OnBytes} [onBytes] @param {number} [id] @param {Transferable[]} [transfer]
   * @returns {Promise<any>}
   */
  call(message, onBytes, id = this.number(), transfer = []) {
    return new Promise((resolve, reject) => {
      if (this.#lost) return reject(lost());
      this.#pending.set(id, { resolve, reject, onBytes });
      this.post({ ...message, id }, transfer);
    });
  }

  /** @param {1 | -1} change of the number of records */
  count(change) {
    this.records += change;
    clearTimeout(this.#idle);
    if (!this.records) this.#idle = setTimeout(() => this.#end(), IDLE_MS);
  }

  #end() {
    this.post({ kind: "end" });
    this.#lose();
  }

  #lose() {
    this.#lost = true;
    links.delete(this);
    this.#port.close();
    for (const { reject } of this.#pending.values()) reject(lost());
    this.#pending.clear();
  }

  /** @param {any} message */
  #receive({ lock, id, bytes, value, error }) {
    if (id === undefined) {
      links.add(this);
      this.count(1); // begins to wait for records
      this.count(-1);
      if (lock) navigator.locks.request(lock, () => this.#lose());
      return;
    }
    const call = this.#pending.get(id);
    if (bytes !== undefined) return call?.onBytes?.(bytes);
    this.#pending.delete(id);
    if (error) call?.reject(Object.assign(new Error(error.message), { name: error.name ?? "Error" }));
    else call?.resolve(value);
  }
}

const lost = () => Object.assign(new Error("The download worker has ended."), { name: "WorkerLost" });

/** An Incoming in a worker. */
class Remote {
  #link;
  #record;
  #finisher;
  #open = true;

  /** @param {Link} link @param {number} length @param {(() => Link | undefined) | null} finisher the worker that hashes, if not this one */
  constructor(link, length, finisher) {
    this.#link = link;
    this.#record = link.number();
    this.#finisher = finisher;
    link.count(1);
    link.post({ kind: "begin", record: this.#record, length });
  }

  /** @param {ArrayBuffer} from @param {number} start @param {number} at @param {number} length */
  copy(from, start, at, length) {
    const bytes = from.slice(start, start + length);
    this.#link.post({ kind: "copy", record: this.#record, bytes, at }, [bytes]);
  }

  /** @param {string} url @param {number} start @param {number} end @param {AbortSignal} signal @returns {Promise<RemoteBody>} */
  async request(url, start, end, signal) {
    const id = this.#link.number();
    const abort = () => this.#link.post({ kind: "cancel", body: id });
    signal.addEventListener("abort", abort, { once: true });
    const authorized = authorization(url);
    const message = { kind: "request", record: this.#record, url, start, end, authorized };
    const head = await this.#link.call(message, undefined, id);
    return Object.assign(new RemoteBody(this.#link, id, () => signal.removeEventListener("abort", abort)), head);
  }

  /** @param {unknown} body */
  reads = (body) => body instanceof RemoteBody && body.link === this.#link;

  /** @param {RemoteBody} body @param {number} at @param {number} end @param {OnBytes} onBytes @returns {Promise<number>} */
  fill(body, at, end, onBytes) {
    const report = (/** @type {number} */ bytes) => body.cancelled || onBytes(bytes); // else it may be a destroyed proxy
    return this.#link.call({ kind: "fill", record: this.#record, body: body.id, at, end }, report);
  }

  /** @param {string} url @param {number} at @param {number} start @param {number} end @returns {Promise<void>} */
  keep = (url, at, start, end) => this.#link.call({ kind: "keep", record: this.#record, url, at, start, end });

  /** @returns {ReturnType<Incoming["finish"]>} */
  async finish() {
    const { buffer } = await this.#link.call({ kind: "take", record: this.#record });
    const link = this.#finisher?.() ?? this.#link;
    link.count(1);
    try {
      return await link.call({ kind: "finish", buffer }, undefined, undefined, [buffer]);
    } finally {
      link.count(-1);
      this.discard();
    }
  }

  discard() {
    if (!this.#open) return;
    this.#open = false;
    this.#link.post({ kind: "discard", record: this.#record });
    this.#link.count(-1);
  }
}

/** An http.js Body in a worker. */
class RemoteBody {
  #forget;
  cancelled = false;

  /** @param {Link} link @param {number} id @param {() => void} forget called when it needs no abort signal any more */
  constructor(link, id, forget) {
    this.link = link;
    this.#forget = forget;
    this.id = id;
  }

  /** @param {number} count */
  skip = (count) => this.link.call({ kind: "skip", body: this.id, count });

  cancel() {
    this.cancelled = true;
    this.#forget();
    this.link.post({ kind: "cancel", body: this.id });
  }
}
