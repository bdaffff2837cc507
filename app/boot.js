/**
 * Starts Python: Pyodide from a memory snapshot (tools/snapshot.py), or without one if that fails. Then unpacks Wisp's
 * packages. Modules that this leaves out are fetched when Python imports them (on_demand.py).
 */
import { sha256 } from "../py_engine/files/buffers.js";
import { fetchEncoded } from "./encoded.js";
import { startFrom } from "./memory_snapshot.js";
import { unpack } from "./stored_zip.js";

/**
 * @typedef {{ pyodide: string, zip: string, snapshot: string, library: string, packages: string, wheels: string[],
 *   whole: { library: string, numpy: string } }} PythonAssets
 * The snapshot holds the modules of `packages`; a Python that starts without one needs them. `library` and `wheels` have
 * the modules that Wisp imports, `whole` has all.
 */

/** Fetches a file. @param {string} url @returns {Promise<ArrayBuffer>} */
async function bytes(url) {
  const response = await fetchEncoded(url);
  if (!response.ok) throw new Error(`${url} answers ${response.status}`);
  return response.arrayBuffer();
}

/** Fetches a file and checks it against the start of its SHA-256, which its name has (tools/dist.py). @param {string} url */
async function verified(url) {
  const data = await bytes(url);
  const [, wanted = ""] = /-([0-9a-f]+)\.\w+$/.exec(url) ?? [];
  if (!globalThis.crypto.subtle) return data; // not in pages from plain http
  if (!(await sha256(data)).startsWith(wanted))
    throw new Error(`${url} is damaged; clear this site's data and load the page again`);
  return data;
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
  const asm = () => import(`${indexURL}pyodide.asm.mjs`);
  const snapshot = bytes(assets.snapshot);
  const archive = verified(assets.zip);
  asm().catch(() => undefined); // fetched in parallel with the snapshot: Pyodide imports it later
  const { loadPyodide } = await import(`${indexURL}pyodide.mjs`);
  let fromSnapshot = true;
  const pyodide = await snapshot
    .then((packed) => loadPyodide({ indexURL, stdLibURL: assets.library, ...startFrom(packed, asm) }))
    .catch(() => {
      fromSnapshot = false;
      return loadPyodide({ indexURL });
    });
  report("packages", 1, 3);
  const wheels = pyodide.loadPackage(
    packages.map((name) => wheelOf(assets, name)),
    { messageCallback() {} },
  );
  unpack(pyodide.FS, await archive, "/wisp");
  if (!fromSnapshot) unpack(pyodide.FS, await verified(assets.packages), "/wisp");
  pyodide.runPython("import random, sys; random.seed(); sys.path.insert(0, '/wisp')"); // the snapshot's random state is the same everywhere
  pyodide.pyimport("app.dataclass_code").install();
  pyodide.pyimport("app.on_demand").install(pyodide.toPy(assets.whole));
  report("python", 2, 3);
  await wheels;
  return { pyodide, fromSnapshot };
}
