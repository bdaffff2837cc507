/** This page's compute workers (py_engine/cpu/compute_worker.js), which it lends to a shared engine. */

/**
 * Starts one. It ends when the engine tells it to, or with the page.
 * @param {string} url of the worker's module
 * @param {(port: MessagePort, failure: MessagePort) => void} lend called with a port to it, and with one at which a
 *   message says why it does not work
 */
export function startComputeWorker(url, lend) {
  const worker = new Worker(url, { type: "module", name: "wisp compute" });
  const [work, failure] = [new MessageChannel(), new MessageChannel()];
  worker.onerror = (event) => {
    event.preventDefault();
    failure.port1.postMessage(event.message || "its script did not load");
  };
  worker.postMessage({ port: work.port1 }, [work.port1]);
  lend(work.port2, failure.port2);
}
