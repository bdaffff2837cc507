/**
 * The worker, shared by all pages or of one: starts Pyodide, unpacks the Python packages and hands every message of its
 * clients (ports.js) to `app/main.py`.
 * It knows nothing of models or chats. What it offers Python, on `globalThis`:
 *   wispReplay, wispUpload, wispShards, wispKept  of the modules py_engine/replay.js, upload.js, shards.js with
 *                    readers.js, and app/kept.js
 *   wispAssets       the URLs it was booted with: {pyodide, zip, wheels, catalog, grammar}
 *   wispLoadPackage  (name) => Promise, loads a compiled wheel (numpy) on first need
 *   wispImport       (url) => Promise, loads a JavaScript module
 */
import { Replay } from "../py_engine/replay.js";
import { NAME, Readers, serve as serveReads } from "../py_engine/readers.js";
import * as shards from "../py_engine/shards.js";
import { Upload } from "../py_engine/upload.js";
import * as wispKept from "./kept.js";
import { Ports } from "./ports.js";

/** @typedef {{ pyodide: string, zip: string, wheels: string[], catalog?: string }} Assets */

/** @type {Promise<any> | undefined} the module app.main, from the boot message on */
let main;

/** @param {Assets} assets @param {(stage: string, loaded: number, total: number) => void} report */
async function boot(assets, report) {
  report("pyodide", 0, 3);
  /** @param {string} name */
  const wheel = (name) => assets.wheels.find((url) => url.split("/").at(-1)?.startsWith(`${name}-`)) ?? name;
  const [zip, pyodide] = await Promise.all([
    fetch(assets.zip).then((response) => response.arrayBuffer()),
    import(`${assets.pyodide}pyodide.mjs`).then(({ loadPyodide }) =>
      loadPyodide({ indexURL: assets.pyodide, packages: [wheel("regex")] }),
    ),
  ]);
  report("packages", 1, 3);
  const loading = /** @type {Map<string, Promise<any>>} */ (new Map());
  /** @param {string} name */
  const wispLoadPackage = (name) => {
    if (!loading.has(name)) loading.set(name, pyodide.loadPackage(wheel(name), { messageCallback() {} }));
    return loading.get(name);
  };
  const wispImport = (/** @type {string} */ url) => import(url);
  const { getRecord, slice } = new Readers(import.meta.url);
  const wispShards = { ...shards, getRecord, slice };
  Object.assign(globalThis, {
    wispAssets: assets,
    wispReplay: Replay,
    wispUpload: Upload,
    wispShards,
    wispKept,
    wispLoadPackage,
    wispImport,
  });
  pyodide.unpackArchive(zip, "zip", { extractDir: "/wisp" });
  pyodide.pyimport("sys").path.insert(0, "/wisp");
  report("python", 2, 3);
  return pyodide.pyimport("app.main");
}

/** @type {Set<(stage: string, loaded: number, total: number) => void>} of clients that wait for the boot */
const waiting = new Set();

/** @param {MessagePort} port @returns {import("./ports.js").Served} */
function serve(port) {
  /** @type {Promise<any> | undefined} an app.client.Client */
  let client;
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
    async receive(data) {
      const { id, kind, assets } = data;
      try {
        if (kind === "boot") return await booted(id, assets);
        const python = await main;
        client ??= python.connect(port);
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
        // A half-booted worker is of no use, nor is one whose interpreter is dead: the next page boots a new one.
        if (kind === "boot" || error?.pyodide_fatal_error) ports.die(message);
      }
    },
    async leave() {
      if (client) (await main).leave(await client);
    },
  };
}

const ports = new Ports(serve);
if (self.name === NAME) serveReads();
else {
  self.addEventListener("error", (event) => ports.die(event.message));
  self.onmessage = ({ data }) => ports.add(data.port); // the page whose own worker this is
  /** @type {any} */ (self).onconnect = (/** @type {MessageEvent} */ event) => ports.add(event.ports[0]); // all pages
}
