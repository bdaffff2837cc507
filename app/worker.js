/**
 * The worker: starts Pyodide, unpacks the Python packages and hands every message to `app/main.py`.
 * It knows nothing of models or chats. What it offers Python, on `globalThis`:
 *   wispReplay, wispShards, wispKept  the modules py_engine/replay.js, shards.js and app/kept.js
 *   wispAssets       the URLs it was booted with: {pyodide, zip, wheels, catalog, grammar}
 *   wispLoadPackage  (name) => Promise, loads a compiled wheel (numpy) on first need
 *   wispImport       (url) => Promise, loads a JavaScript module
 */
import { Replay } from "../py_engine/replay.js";
import * as wispShards from "../py_engine/shards.js";
import * as wispKept from "./kept.js";

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
  Object.assign(globalThis, {
    wispAssets: assets,
    wispReplay: Replay,
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

self.onmessage = async ({ data }) => {
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
};
