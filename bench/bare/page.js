/** Starts Pyodide alone in a worker, from the folder that the address names: ?ADDRESS. `startedMs` is the time it took. */
const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
worker.onmessage = () => Object.assign(globalThis, { startedMs: performance.now() });
worker.postMessage(new URL(location.search.slice(1), location.href).href);
