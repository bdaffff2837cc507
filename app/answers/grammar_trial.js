/**
 * Tries grammars in workers of their own: nothing interrupts the mask engine, but a worker can be ended.
 *
 * The engine's side. grammar.js is the workers' script: over a port it gets a Vocabulary and opens it. Then it answers
 * {share}, its share of a processor. Then it gets a grammar's text, and answers {error}, null if all went well.
 */
const START_MS = 5000; // for a worker to be ready; a computer may be busy
const MOST_MS = 1300; // of a processor to compile a grammar, and to write some tokens
const LEAST_SHARE = 0.2; // of a processor that a worker on a busy computer is taken to have
const UNUSED_MS = 3000; // until a worker ends that was started for a trial that did not come
const STEP_MS = 50; // START_MS and MOST_MS are counted in steps of this length
const MOST_STEP_MS = 500; // as which a longer step counts
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
      let trial;
      try {
        trial = start?.(this.#url);
      } catch (error) {
        console.warn("Grammars are not tried before they are used:", error);
      }
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
  /** @type {Promise<number | "error" | "ended">} the worker's share of a processor, or what became of it before it was ready */
  #ready;

  /** @param {Trial} trial @param {Vocabulary} vocabulary */
  constructor(trial, vocabulary) {
    this.#trial = trial;
    this.#ready = new Promise((resolve) => {
      trial.failed.then(() => resolve("ended"));
      trial.port.onmessage = ({ data }) => resolve(data.share ?? "error");
    });
    trial.port.postMessage(vocabulary);
  }

  /**
   * Whether a grammar compiles, and has its first masks, in MOST_MS of a processor; null if the worker did not load, or its
   * page was closed.
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
    const most = MOST_MS / Math.max(LEAST_SHARE, started);
    return within(most, Promise.race([done, this.#trial.failed.then(() => null)]));
  }

  end() {
    this.#trial.end();
    this.#trial.port.close();
  }
}

/**
 * What a promise gives; false where that takes longer. Its answer arrives in this thread, which sees none while it computes or
 * the computer sleeps. So no step counts for more than MOST_STEP_MS, and answers that have arrived are seen before the end.
 * @param {number} ms @param {Promise<any>} promise
 */
async function within(ms, promise) {
  const late = {};
  /** @param {number} time */
  const step = (time) => {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const end = new Promise((resolve) => (timer = setTimeout(resolve, time, late)));
    return Promise.race([promise, end]).finally(() => clearTimeout(timer));
  };
  for (let spent = 0; spent < ms;) {
    const began = performance.now();
    const found = await step(STEP_MS);
    if (found !== late) return found;
    spent += Math.min(performance.now() - began, MOST_STEP_MS);
  }
  const last = await step(0);
  return last !== late && last;
}
