/**
 * The worker: starts Pyodide, unpacks the Python packages and hands every message to `app/main.py`.
 * It knows nothing of models or chats. What it offers Python, on `globalThis`:
 *   wispReplay, wispUpload, wispShards  of the modules py_engine/replay.js, upload.js and shards.js with readers.js
 *   wispAssets       the URLs it was booted with: {pyodide, zip, snapshot, wheels, catalog, grammar}
 *   wispLoadPackage  (name) => Promise, loads a compiled wheel (numpy) on first need
 *   wispImport       (url) => Promise, loads a JavaScript module
 */
import { Replay } from "../py_engine/replay.js";
import { startPython, wheelOf } from "./boot.js";
import { NAME, Readers, serve } from "../py_engine/readers.js";
import * as shards from "../py_engine/shards.js";
import { Upload } from "../py_engine/upload.js";

/** @typedef {import("./boot.js").PythonAssets & { catalog?: string }} Assets */

/** @type {Promise<any> | undefined} the module app.main, from the boot message on */
let main;

/** @param {Assets} assets @param {(stage: string, loaded: number, total: number) => void} report */
async function boot(assets, report) {
  navigator.gpu?.requestAdapter({ powerPreference: "high-performance" }); // the browser's GPU process starts, too
  const { pyodide } = await startPython(assets, report, ["regex"]);
  const loading = /** @type {Map<string, Promise<any>>} */ (new Map());
  /** @param {string} name */
  const wispLoadPackage = (name) => {
    if (!loading.has(name)) loading.set(name, pyodide.loadPackage(wheelOf(assets, name), { messageCallback() {} }));
    return loading.get(name);
  };
  const wispImport = (/** @type {string} */ url) => import(url);
  const { getRecord, slice } = new Readers(import.meta.url);
  const wispShards = { ...shards, getRecord, slice };
  const wispAssets = assets;
  Object.assign(globalThis, { wispAssets, wispReplay: Replay, wispUpload: Upload, wispShards });
  Object.assign(globalThis, { wispLoadPackage, wispImport });
  return pyodide.pyimport("app.main");
}

if (self.name === NAME) serve();
else self.onmessage = answer;

/** @param {MessageEvent} event */
async function answer({ data }) {
  const { id, kind, assets } = data;
  try {
    if (kind !== "boot") return void (await (await main).handle(data));
    main = boot(assets, (stage, loaded, total) =>
      self.postMessage({ id, kind: "progress", progress: { stage, loaded, total, speed: 0 } }),
    );
    await main;
    self.postMessage({ id, kind: "result", result: null });
  } catch (/** @type {any} */ error) {
    const lines = String(error?.message ?? error)
      .trim()
      .split("\n");
    const body = { message: lines.at(-1), type: "server_error", param: null, code: "internal_error" };
    self.postMessage({ id, kind: "error", error: body });
    if (error?.pyodide_fatal_error) reportError(error); // the interpreter is dead: the page boots a new worker
  }
}
