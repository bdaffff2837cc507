/**
 * Starts Python: Pyodide from a memory snapshot (tools/snapshot.py), or without one if that fails. Then unpacks Wisp's
 * packages.
 */

/** @typedef {{ pyodide: string, zip: string, snapshot: string, wheels: string[] }} PythonAssets */

/** @param {string} url @returns {Promise<Uint8Array>} */
async function unzipped(url) {
  const { body } = await fetch(url);
  const stream = /** @type {ReadableStream} */ (body).pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The URL of a wheel. @param {PythonAssets} assets @param {string} name of its package */
export const wheelOf = (assets, name) =>
  assets.wheels.find((url) => url.split("/").at(-1)?.startsWith(`${name}-`)) ?? name;

/**
 * @param {PythonAssets} assets
 * @param {(stage: "pyodide" | "packages" | "python", loaded: number, total: number) => void} report
 * @param {string[]} packages compiled packages to load
 * @returns {Promise<{ pyodide: any, fromSnapshot: boolean }>} a Python that finds Wisp's modules
 */
export async function startPython(assets, report, packages) {
  report("pyodide", 0, 3);
  const indexURL = assets.pyodide;
  const snapshot = unzipped(assets.snapshot).catch(() => undefined);
  const archive = fetch(assets.zip).then((response) => response.arrayBuffer());
  import(`${indexURL}pyodide.asm.mjs`).catch(() => undefined); // fetched in parallel with the snapshot: Pyodide imports it later
  const { loadPyodide } = await import(`${indexURL}pyodide.mjs`);
  const _loadSnapshot = await snapshot;
  let fromSnapshot = _loadSnapshot !== undefined;
  const pyodide = await loadPyodide({ indexURL, _loadSnapshot }).catch((/** @type {unknown} */ error) => {
    if (!fromSnapshot) throw error;
    fromSnapshot = false;
    return loadPyodide({ indexURL });
  });
  report("packages", 1, 3);
  const wheels = pyodide.loadPackage(
    packages.map((name) => wheelOf(assets, name)),
    { messageCallback() {} },
  );
  pyodide.unpackArchive(await archive, "zip", { extractDir: "/wisp" });
  pyodide.runPython("import random, sys; random.seed(); sys.path.insert(0, '/wisp')"); // the snapshot's random state is the same everywhere
  report("python", 2, 3);
  await wheels;
  return { pyodide, fromSnapshot };
}
