/** Starts the workers that read for the engine: its script under another name, where readers.js answers. */

export const READER = "wisp-reader";

/** @param {string} url of the worker's script @param {number} count @returns {MessagePort[]} the ways to them */
export function startReaders(url, count) {
  return Array.from({ length: count }, () => {
    const worker = new Worker(url, { type: "module", name: READER });
    worker.onerror = (event) => event.preventDefault(); // it is never "ready", then
    const { port1, port2 } = new MessageChannel();
    worker.postMessage({ port: port2 }, [port2]);
    return port1;
  });
}
