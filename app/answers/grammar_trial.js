/**
 * Tries grammars in workers of their own: nothing interrupts the mask engine, but a worker can be ended.
 *
 * The engine's side. grammar.js is the workers' script: over a port it gets a Vocabulary, answers "ready" when that is
 * open, gets a grammar's text, and answers {error}, which may be null, when it is done.
 */
const START_MS = 5000; // for a worker to be ready; a computer may be busy
const MOST_MS = 1300; // to compile a grammar, and to write some tokens
const UNUSED_MS = 3000; // until a worker ends that was started for a trial that did not come
const ATTEMPTS = 3; // workers of one trial, if each ends with the page that started it

/**
 * @typedef {{ bytes: Uint8Array, ends: Uint32Array, size: number, stops: number[] }} Vocabulary  of open()
 * @typedef {{ port: MessagePort, end: () => void, failed: Promise<unknown> }} Trial
 *   a worker; `failed`: its script did not load, or the page that started it was closed
 */

/** Starts a worker. @param {string} url of its module @returns {Trial} */
export function startTrial(url) {
  const worker = new Worker(url, { type: "module", name: "wisp grammar" });
  const { port1: port, port2 } = new MessageChannel();
  worker.postMessage({ port: port2 }, [port2]);
  const failed = new Promise((resolve) => (worker.onerror = (event) => (event.preventDefault(), resolve(event))));
  return { port, end: () => worker.terminate(), failed };
}

/** Trials with one vocabulary. Each has a new worker, which may be started while the grammar's text is still being made. */
export class Trials {
  #url;
  #vocabulary;
  /** @type {Candidate | null} the next trial's worker */
  #next = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #unused;

  /** @param {string} url of grammar.js @param {Vocabulary} vocabulary */
  constructor(url, vocabulary) {
    this.#url = url;
    this.#vocabulary = vocabulary;
  }

  /** Starts the next trial's worker. It ends if it is not used soon. */
  prepare() {
    if (!this.#next) {
      // A shared worker can start none: a page does (app/ports.js).
      const start = globalThis.Worker ? startTrial : /** @type {any} */ (globalThis).wispStartTrial;
      /** @type {Trial | null | undefined} */
      const trial = start?.(this.#url);
      if (!trial) return;
      const next = (this.#next = new Candidate(trial, this.#vocabulary));
      trial.failed.then(() => this.#next === next && this.drop());
    }
    clearTimeout(this.#unused);
    this.#unused = setTimeout(() => this.drop(), UNUSED_MS);
  }

  /** Ends the worker that was prepared: no trial needs it. */
  drop() {
    this.#taken()?.end();
  }

  /** The worker that was prepared, for its trial. */
  #taken() {
    clearTimeout(this.#unused);
    const next = this.#next;
    this.#next = null;
    return next;
  }

  /** Whether a grammar is quick on this device. What cannot be tried counts as quick. @param {string} text */
  async isQuick(text) {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      this.prepare();
      const candidate = this.#taken();
      if (!candidate) break;
      const found = await candidate.isQuick(text).finally(() => candidate.end());
      if (found !== null) return found;
    }
    return true;
  }
}

/** The worker of one trial. */
class Candidate {
  #trial;
  /** @type {Promise<"ready" | "error" | "ended">} what became of the worker while it opened the vocabulary */
  #ready;

  /** @param {Trial} trial @param {Vocabulary} vocabulary */
  constructor(trial, vocabulary) {
    this.#trial = trial;
    this.#ready = new Promise((resolve) => {
      trial.failed.then(() => resolve("ended"));
      trial.port.onmessage = ({ data }) => resolve(data === "ready" ? "ready" : "error");
    });
    trial.port.postMessage(vocabulary);
  }

  /**
   * Whether a grammar compiles, and has its first masks, in MOST_MS; null if the worker did not load, or its page was closed.
   * @param {string} text @returns {Promise<boolean | null>}
   */
  async isQuick(text) {
    const started = await within(START_MS, this.#ready);
    if (started === "ended") return null;
    if (started === "error") return false; // the vocabulary did not open, perhaps for lack of memory
    if (!started) return true;
    const { port } = this.#trial;
    const done = new Promise((resolve) => (port.onmessage = ({ data }) => resolve(data.error === null)));
    port.postMessage(text);
    return within(MOST_MS, Promise.race([done, this.#trial.failed.then(() => null)]));
  }

  end() {
    this.#trial.end();
    this.#trial.port.close();
  }
}

/** What a promise gives; false where that takes longer. @param {number} ms @param {Promise<any>} promise */
function within(ms, promise) {
  /** @type {ReturnType<typeof setTimeout>} */
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, ms, false)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
