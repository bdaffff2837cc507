/** Starts Python in the sandbox's worker, of files that the page has handed in: there is no network here. */

/** @typedef {import("./worker.js").Runner} Runner */

const BASE = "https://sandbox.invalid/"; // no address is fetched: `parts` has the files by their name
const PACKAGE = "/sandbox/wisp_sandbox"; // of session.py
const TYPES = { wasm: "application/wasm", json: "application/json" };

/** @param {Record<string, ArrayBuffer>} parts name -> content @returns {Promise<Runner>} */
export async function startPython(parts) {
  const nameOf = (/** @type {unknown} */ address) => String(address).split("/").at(-1) ?? "";
  globalThis.fetch = async (address) => {
    const data = parts[nameOf(address)];
    const type = TYPES[/** @type {keyof typeof TYPES} */ (nameOf(address).split(".").at(-1))] ?? "";
    return data ? new Response(data, { headers: { "Content-Type": type } }) : new Response(null, { status: 404 });
  };
  const { default: createPyodideModule } = await importPart(parts["pyodide.asm.mjs"]);
  const { loadPyodide } = await importPart(parts["pyodide.mjs"]);
  const pyodide = await loadPyodide({
    indexURL: BASE,
    createPyodideModule,
    jsglobals: {}, // what `import js` has
    env: { HOME: "/files" },
    stdin: () => undefined,
  });
  pyodide.FS.mkdirTree(PACKAGE);
  for (const name of ["session.py", "pictures.py"])
    pyodide.FS.writeFile(`${PACKAGE}/${name}`, new Uint8Array(parts[name]));
  pyodide.runPython("import sys; sys.path.append('/sandbox')");
  const session = pyodide.pyimport("wisp_sandbox.session");
  const wheels = Object.keys(parts).filter((name) => name.endsWith(".whl"));
  return async ({ code, files }, { write }, begins) => {
    for (const { name, data } of files) pyodide.FS.writeFile(`/files/${name}`, data);
    const needed = session.packages(code, wheels).toJs();
    if (needed.length) await pyodide.loadPackage(needed, { messageCallback() {}, errorCallback() {} });
    begins();
    const ran = (await session.run(code, write)).toJs({ create_pyproxies: false });
    const [failed, outOfMemory, changed] = ran;
    return {
      failed,
      outOfMemory,
      files: changed.map((/** @type {[string, number]} */ [path, size]) => ({
        name: path.replace("/files/", ""),
        size,
        read: () => pyodide.FS.readFile(path),
      })),
    };
  };
}

/** Imports a module of this content. @param {ArrayBuffer} content @returns {Promise<any>} */
function importPart(content) {
  return import(URL.createObjectURL(new Blob([content], { type: "text/javascript" })));
}
