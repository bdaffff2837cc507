// A page with the engine alone: Pyodide, the Python archive and replay.js, driven by tests/support/browser.py.
const sdk = await (await fetch("/wisp.js")).text();
const assets = JSON.parse(sdk.slice(sdk.indexOf("{"), sdk.indexOf("};") + 1));
globalThis.wispAssets = JSON.parse(JSON.stringify(assets), (_, value) =>
  typeof value === "string" ? new URL(`/${value}`, location.href).href : value,
);
const { startPython } = await import("/repo/app/boot.js");
const { pyodide, fromSnapshot } = await startPython(globalThis.wispAssets, () => undefined, ["numpy", "regex"]);
globalThis.fromSnapshot = fromSnapshot;
const { Replay } = await import("/repo/py_engine/gpu/replay.js").catch(() => ({ Replay: undefined }));
globalThis.wispReplay = Replay;
globalThis.wispPages = (await import("/repo/py_engine/gpu/pages.js")).Pages;
globalThis.wispRequestAdapter = (await import("/repo/py_engine/gpu/adapter.js")).requestAdapter;
globalThis.wispMakesHalfBits = (await import("/repo/py_engine/gpu/half_bits.js")).makesHalfBits;
globalThis.wispUpload = (await import("/repo/py_engine/gpu/upload.js")).Upload;
globalThis.wispCompute = (await import("/repo/py_engine/cpu/compute.js")).Compute;
globalThis.wispProof = await import("/repo/py_engine/proof/dispatches.js");
globalThis.wispShards = await import("/repo/py_engine/files/shards.js");
globalThis.wispHashes = await import("/repo/node_modules/hash-wasm/dist/index.esm.js");
globalThis.wispMedia = () => import("/repo/py_engine/media/media.js");
globalThis.wispLoadPackage = async () => undefined;
globalThis.pyodide = pyodide;

/**
 * Runs Python; `args` are its variables. Returns the last expression as JSON, or the traceback.
 * @param {string} code @param {Record<string, any>} args
 */
globalThis.runPython = async (code, args) => {
  const globals = pyodide.toPy(args);
  try {
    const value = await pyodide.runPythonAsync(code, { globals, filename: "<test>" });
    globals.set("_value", value);
    return { ok: pyodide.runPython("import json; json.dumps(_value)", { globals }) };
  } catch (error) {
    return { error: String(error?.message ?? error) };
  } finally {
    globals.destroy();
  }
};
globalThis.ready = true;
