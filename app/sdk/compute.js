/** This page's compute workers (py_engine/cpu/compute_worker.js), which it lends to a shared engine. */

/**
 * Starts one. It ends when the engine tells it to, or with the page.
 * @param {string} url of the worker's module @param {(port: MessagePort) => void} lend called with a port to it
 */
export function startComputeWorker(url, lend) {
  const worker = new Worker(url, { type: "module", name: "wisp compute" });
  const { port1, port2 } = new MessageChannel();
  worker.postMessage({ port: port1 }, [port1]);
  lend(port2);
}
