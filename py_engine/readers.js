// Reads records and files in workers of their own, several side by side: reading a record, hashing it and taking it in
// each copy all of it, which the engine's thread has no time for. What is read moves to it without a copy.
//
// The workers run the engine's own script under another name (app/worker.js); there, serve() answers. They start with
// the first read and go when there was none for a while. Where none starts, the engine's thread reads for itself.
import { getRecord, slice } from "./shards.js";

export const NAME = "wisp-reader";
const MOST = 4;
const IDLE_MS = 3000;
const SMALL = 4 << 20; // bytes that are read before a worker has started

/** @type {Record<string, (...args: any[]) => Promise<any>>} */
const JOBS = { getRecord, slice };

/** In a reader: answers {id, kind, args} with {id, found}. */
export function serve() {
  self.onmessage = async ({ data: { id, kind, args } }) => {
    const found = await JOBS[kind](...args).catch((/** @type {Error} */ error) => ({ failed: error.message }));
    const buffer = found instanceof ArrayBuffer ? found : found?.buffer;
    self.postMessage({ id, found }, { transfer: buffer instanceof ArrayBuffer ? [buffer] : [] });
  };
}

/** @typedef {{ kind: string, args: any[], done: (found: any) => void, failed: (error: unknown) => void }} Job */

export class Readers {
  /** @type {{ worker: Worker, jobs: Map<number, Job> }[]} */
  #readers = [];
  #url;
  #id = 0;
  #idle = 0;
  #broken = typeof Worker === "undefined"; // as it is to shared workers in Chromium

  /** @param {string} url of the script */
  constructor(url) {
    this.#url = url;
  }

  /** As shards.js has it. @param {string} url @param {number} offset @param {number} length */
  getRecord = (url, offset, length) => this.#ask("getRecord", [url, offset, length], length);

  /** As shards.js has it. @param {Blob} blob @param {number} start @param {number} end */
  slice = (blob, start, end) => this.#ask("slice", [blob, start, end], end - start);

  /** @param {string} kind @param {any[]} args @param {number} size @returns {Promise<any>} */
  #ask(kind, args, size) {
    if (this.#broken || size < SMALL) return JOBS[kind](...args);
    return new Promise((done, failed) => {
      clearTimeout(this.#idle);
      this.#start();
      const reader = this.#readers.reduce((a, b) => (b.jobs.size < a.jobs.size ? b : a));
      const id = ++this.#id;
      reader.jobs.set(id, { kind, args, done, failed });
      reader.worker.postMessage({ id, kind, args });
    });
  }

  #start() {
    const count = Math.max(1, Math.min(MOST, navigator.hardwareConcurrency >> 1));
    while (this.#readers.length < count) {
      const worker = new Worker(this.#url, { type: "module", name: NAME });
      const reader = { worker, jobs: /** @type {Map<number, Job>} */ (new Map()) };
      worker.onmessage = ({ data: { id, found } }) => {
        const job = reader.jobs.get(id);
        reader.jobs.delete(id);
        if (found?.failed) job?.failed(new Error(found.failed));
        else job?.done(found);
        if (!this.#readers.some(({ jobs }) => jobs.size)) this.#idle = setTimeout(() => this.#end(), IDLE_MS);
      };
      worker.onerror = (event) => {
        event.preventDefault();
        this.#broken = true;
        this.#end();
      };
      this.#readers.push(reader);
    }
  }

  /** The workers go; what they had not done is done here. */
  #end() {
    const readers = this.#readers;
    this.#readers = [];
    for (const { worker, jobs } of readers) {
      worker.terminate();
      for (const { kind, args, done, failed } of jobs.values()) JOBS[kind](...args).then(done, failed);
    }
  }
}
