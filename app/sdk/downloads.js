/** This page's download workers (py_engine/files/download_worker.js), which it lends to the engine for a while. */

const MOST = 6;

/**
 * Starts workers: one for every three cores, so that pages and GPU have the others.
 * @param {string} url of the workers' module
 * @param {(port: MessagePort) => void} lend called with a port to each
 * @returns {() => void} ends them
 */
export function startDownloadWorkers(url, lend) {
  const count = Math.max(1, Math.min(MOST, Math.floor(navigator.hardwareConcurrency / 3)));
  const workers = Array.from({ length: count }, () => {
    const worker = new Worker(url, { type: "module", name: "wisp download" });
    worker.onerror = (event) => event.preventDefault(); // the engine downloads in its own thread then
    const { port1, port2 } = new MessageChannel();
    worker.postMessage({ port: port1 }, [port1]);
    lend(port2);
    return worker;
  });
  return () => workers.forEach((worker) => worker.terminate());
}
