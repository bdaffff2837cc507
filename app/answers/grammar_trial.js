/**
 * Tries grammars in a worker of their own: nothing interrupts the mask engine, but a worker can be ended.
 *
 * The engine's side. grammar.js is the worker's script: over a port it gets a Job, answers "ready" when the vocabulary is
 * open, and {error}, which may be null, when it is done.
 */
const START_MS = 5000; // for a worker to be ready; a computer may be busy
const MOST_MS = 1300; // to compile a grammar, and to write some tokens

/**
 * @typedef {{ bytes: Uint8Array, ends: Uint32Array, size: number, stops: number[], text: string }} Job  of open() and compile()
 * @typedef {{ port: MessagePort, end: () => void, failed: Promise<unknown> }} Trial  a worker; `failed`: its script did not load
 */

/** Starts a worker. @param {string} url of its module @returns {Trial} */
export function startTrial(url) {
  const worker = new Worker(url, { type: "module", name: "wisp grammar" });
  const { port1: port, port2 } = new MessageChannel();
  worker.postMessage({ port: port2 }, [port2]);
  const failed = new Promise((resolve) => (worker.onerror = (event) => (event.preventDefault(), resolve(event))));
  return { port, end: () => worker.terminate(), failed };
}

/**
 * Whether a grammar is quick on this device. What cannot be tried counts as quick.
 * @param {string} url of grammar.js @param {Job} job @returns {Promise<boolean>}
 */
export async function isQuick(url, job) {
  // A shared worker can start none: a page does (app/ports.js).
  const start = globalThis.Worker ? startTrial : /** @type {any} */ (globalThis).wispStartTrial;
  /** @type {Trial | null | undefined} */
  const trial = start?.(url);
  if (!trial) return true;
  try {
    return await new Promise((resolve) => {
      let timer = setTimeout(resolve, START_MS, true);
      trial.failed.then(() => resolve(true));
      trial.port.onmessage = ({ data }) => {
        clearTimeout(timer);
        if (data === "ready") timer = setTimeout(resolve, MOST_MS, false);
        else resolve(data.error === null);
      };
      trial.port.postMessage(job);
    });
  } finally {
    trial.end();
    trial.port.close();
  }
}
