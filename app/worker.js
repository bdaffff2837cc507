/**
 * The engine's worker, shared by all pages or owned by one. Starts Pyodide, unpacks the Python packages and passes every
 * message of its clients (ports.js) to `app/main.py`. It knows nothing of models or chats.
 */
import { onComputeNeeded } from "../py_engine/cpu/compute.js";
import { addDownloadWorker, onWorkersNeeded } from "../py_engine/files/shards.js";
import { requestAdapter } from "../py_engine/gpu/adapter.js";
import { makesHalfBits } from "../py_engine/gpu/half_bits.js";
import { startPython, wheelOf } from "./boot.js";
import { provide } from "./engine_globals.js";
import { Outbox } from "./outbox.js";
import { Ports } from "./ports.js";

/** @typedef {import("./boot.js").PythonAssets & import("./engine_globals.js").EngineAssets & { catalog?: string }} Assets */

/** @type {Promise<any> | undefined} functions of app.main, from the boot message on */
let main;

/** @param {Assets} assets @param {(stage: string, loaded: number, total: number) => void} report */
async function boot(assets, report) {
  requestAdapter() // starts the browser's GPU process meanwhile
    .then((adapter) => adapter && makesHalfBits())
    .catch(() => {});
  const { pyodide } = await startPython(assets, report, ["regex"]);
  const loading = /** @type {Map<string, Promise<any>>} */ (new Map());
  /** @param {string} name */
  const loadPackage = (name) => {
    if (!loading.has(name)) loading.set(name, pyodide.loadPackage(wheelOf(assets, name), { messageCallback() {} }));
    return /** @type {Promise<any>} */ (loading.get(name));
  };
  provide(assets, loadPackage, {
    wispDecodeSound: (bytes, rate) => ports.askToRead("decodeSound", bytes, { rate }),
    wispReadPdf: (bytes, signal) => ports.askToRead("readPdf", bytes, {}, signal),
    wispReadVideo: (bytes, fps, most, signal) => ports.askToRead("readVideo", bytes, { fps, most }, signal),
    wispStartTrial: (url) => ports.startTrial(url),
  });
  const gc = pyodide.pyimport("gc");
  gc.disable(); // what imports make stays
  pyodide.pyimport("app.event_loop").EventLoop();
  const { connect, handle, leave } = pyodide.pyimport("app.main");
  gc.freeze();
  gc.enable();
  return { connect, handle, leave };
}

/** @type {Set<(stage: string, loaded: number, total: number) => void>} of clients that wait for the boot */
const waiting = new Set();

/** @param {MessagePort} port @returns {import("./ports.js").Served} */
function serve(port) {
  /** @type {Promise<any> | undefined} an app.client.Client */
  let client;
  const outbox = new Outbox(port);
  /** @param {string} text @param {Float32Array[]} [vectors] that stand in it as null */
  const postJson = (text, vectors = []) => {
    const message = JSON.parse(text);
    vectors.forEach((vector, i) => (message.result.data[i].embedding = Array.from(vector)));
    outbox.post(message);
  };
  /** @param {number} id @param {Assets} assets */
  async function booted(id, assets) {
    /** @type {(stage: string, loaded: number, total: number) => void} */
    const report = (stage, loaded, total) =>
      port.postMessage({ id, kind: "progress", progress: { stage, loaded, total, speed: 0 } });
    waiting.add(report);
    main ??= boot(assets, (...progress) => waiting.forEach((each) => each(...progress)));
    await main.finally(() => waiting.delete(report));
    port.postMessage({ id, kind: "result", result: null });
  }
  return {
    greet({ several }) {
      outbox.several = several === true;
    },
    async receive(data) {
      const { id, kind, assets } = data;
      try {
        if (kind === "boot") return await booted(id, assets);
        const python = await main;
        client ??= python.connect((/** @type {any} */ message) => outbox.post(message), postJson);
        await python.handle(await client, data);
      } catch (/** @type {any} */ error) {
        const lines = String(error?.message ?? error)
          .trim()
          .split("\n");
        const message = lines.at(-1) ?? "";
        port.postMessage({
          id,
          kind: "error",
          error: { message, type: "server_error", param: null, code: "internal_error" },
        });
        // A half-booted worker, or one whose interpreter is dead, must end: the next page boots a new one.
        if (kind === "boot" || error?.pyodide_fatal_error) ports.die(message);
      }
    },
    async leave() {
      if (client) (await main).leave(await client);
    },
  };
}

const ports = new Ports(serve, addDownloadWorker);
onWorkersNeeded(() => ports.askForDownloadWorkers());
onComputeNeeded(() => ports.askForCompute());
self.addEventListener("error", (event) => ports.die(event.message));
self.onmessage = ({ data }) => ports.add(data.port); // the page that owns this worker
/** @type {any} */ (self).onconnect = (/** @type {MessageEvent} */ event) => ports.add(event.ports[0]); // all pages
