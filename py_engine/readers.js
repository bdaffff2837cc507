// Reads records and files in workers of their own, several side by side: reading a record, hashing it and taking it in
// each copy all of it, which the engine's thread has no time for. What is read moves to it without a copy.
//
// The workers run the engine's own script under another name (app/reading.js); there, serve() answers. They start with
// the first long read and go when there was none for a while. Where none starts, the engine's thread reads for itself.
import { getRecord, slice } from "./shards.js";

const MOST = 4;
const IDLE_MS = 3000;
const START_MS = 5000; // until what has not answered is taken to be unable to
const SMALL = 4 << 20; // bytes that are read before a worker has started

/** @type {Record<string, (...args: any[]) => Promise<any>>} */
const JOBS = { getRecord, slice };

/** In a reader: takes a port, says "ready" over it, and answers {id, kind, args} with {id, found}. */
export function serve() {
  self.onmessage = ({ data: { port } }) => {
    port.onmessage = async (/** @type {MessageEvent} */ { data: { id, kind, args } }) => {
      if (kind === "end") return self.close();
      const found = await JOBS[kind](...args).catch((/** @type {Error} */ error) => ({ failed: error.message }));
      const buffer = found instanceof ArrayBuffer ? found : found?.buffer;
      port.postMessage({ id, found }, buffer instanceof ArrayBuffer ? [buffer] : []);
    };
    port.postMessage("ready");
  };
}

/** @typedef {{ kind: string, args: any[], done: (found: any) => void, failed: (error: unknown) => void }} Job */
/** @typedef {{ port: MessagePort, jobs: Map<number, Job> }} Reader */

export class Readers {
  /** @type {Promise<Reader[]> | null} */
  #readers = null;
  /** @type {Set<Reader>} */
  #all = new Set();
  #start;
  #id = 0;
  #idle = 0;

  /** @param {(count: number) => Promise<MessagePort[]>} start who starts them; none where that cannot be */
  constructor(start) {
    this.#start = start;
  }

  /** As shards.js has it. @param {string} url @param {number} offset @param {number} length */
  getRecord = (url, offset, length) => this.#ask("getRecord", [url, offset, length], length);

  /** As shards.js has it. @param {Blob} blob @param {number} start @param {number} end */
  slice = (blob, start, end) => this.#ask("slice", [blob, start, end], end - start);

  /** @param {string} kind @param {any[]} args @param {number} size @returns {Promise<any>} */
  async #ask(kind, args, size) {
    if (size < SMALL) return JOBS[kind](...args);
    clearTimeout(this.#idle);
    this.#readers ??= this.#started();
    await this.#readers;
    if (!this.#all.size) return JOBS[kind](...args);
    const reader = [...this.#all].reduce((a, b) => (b.jobs.size < a.jobs.size ? b : a));
    const id = ++this.#id;
    return new Promise((done, failed) => {
      reader.jobs.set(id, { kind, args, done, failed });
      reader.port.postMessage({ id, kind, args });
    });
  }

  /** @returns {Promise<Reader[]>} */
  async #started() {
    const count = Math.max(1, Math.min(MOST, navigator.hardwareConcurrency >> 1));
    const ports = await this.#start(count).catch(() => []);
    /** @param {MessagePort} port @returns {Promise<Reader | null>} */
    const one = (port) =>
      new Promise((resolve) => {
        const reader = { port, jobs: /** @type {Map<number, Job>} */ (new Map()) };
        setTimeout(() => resolve(null), START_MS);
        port.onmessage = ({ data }) => {
          if (data !== "ready") return this.#take(reader, data);
          this.#all.add(reader);
          resolve(reader);
        };
      });
    return (await Promise.all(ports.map(one))).filter((reader) => reader !== null);
  }

  /** @param {Reader} reader @param {{ id: number, found: any }} answer */
  #take(reader, { id, found }) {
    const job = reader.jobs.get(id);
    reader.jobs.delete(id);
    if (found?.failed) job?.failed(new Error(found.failed));
    else job?.done(found);
    if ([...this.#all].some(({ jobs }) => jobs.size)) return;
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => this.end(), IDLE_MS);
  }

  /** The readers go, or have gone; what they had not done is done here. */
  end() {
    const readers = [...this.#all];
    this.#all.clear();
    this.#readers = null;
    for (const { port, jobs } of readers) {
      port.postMessage({ kind: "end" });
      port.close();
      for (const { kind, args, done, failed } of jobs.values()) JOBS[kind](...args).then(done, failed);
    }
  }
}
