/** Starts Python in the sandbox's worker, of files that the page hands in: there is no network here. */

import { startFrom } from "../../memory_snapshot.js";

/** @typedef {import("./worker.js").Runner} Runner */

const BASE = "https://sandbox.invalid/"; // no address is fetched: `parts` has the files by their name
const MODULES = "/sandbox"; // the folder of session.py and others
const TYPES = { wasm: "application/wasm", json: "application/json" };

/**
 * @param {Record<string, ArrayBuffer>} parts name -> content
 * @param {{ names: string[], get: (name: string) => Promise<import("./worker.js").Wheel> }} wheels those that code may import besides
 * @param {boolean} resolves whether it only finds packages in an index (resolver.py), by way of the page
 * @returns {Promise<Runner>}
 */
export async function startPython(parts, wheels, resolves) {
  const nameOf = (/** @type {unknown} */ address) => String(address).split("/").at(-1) ?? "";
  let unloaded = ""; // why the last wheel that failed could not be loaded
  /** The wheel of this name, if there is one. @param {string} name */
  const handed = async (name) => {
    const { data, why } = await wheels.get(name);
    if (why) unloaded = why;
    return data;
  };
  globalThis.fetch = async (address) => {
    const name = nameOf(address);
    const data = parts[name] ?? (wheels.names.includes(name) ? await handed(name) : null);
    const type = TYPES[/** @type {keyof typeof TYPES} */ (nameOf(address).split(".").at(-1))] ?? "";
    return data ? new Response(data, { headers: { "Content-Type": type } }) : new Response(null, { status: 404 });
  };
  parts["pyodide-lock.json"] = joined(parts["pyodide-lock.json"], parts["packages.json"]);
  const asm = () => importPart(parts["pyodide.asm.mjs"]);
  const { loadPyodide } = await importPart(parts["pyodide.mjs"]);
  const env = { HOME: "/files", MPLBACKEND: "module://wisp_sandbox.plots", MPLCONFIGDIR: "/sandbox/matplotlib" };
  // `import js` has nothing.
  const settings = { indexURL: BASE, jsglobals: {}, env, stdin: () => undefined };
  const pyodide = await loadPyodide({ ...settings, ...startFrom(parts["python.bin"], asm) }).catch(async () =>
    loadPyodide({ ...settings, createPyodideModule: (await asm()).default }),
  );
  for (const name of Object.keys(parts).filter((name) => name.endsWith(".py"))) {
    pyodide.FS.mkdirTree(`${MODULES}/${name.split("/")[0]}`);
    pyodide.FS.writeFile(`${MODULES}/${name}`, new Uint8Array(parts[name]));
  }
  pyodide.runPython(`import sys; sys.path.append('${MODULES}')`);
  const session = pyodide.pyimport("wisp_sandbox.session");
  session.begin(pyodide.toPy(env));
  const packages = /** @type {{ name: string, file_name: string, imports: string[] }[]} */ (
    Object.values(pyodide.lockfile.packages)
  );
  const known = packages.filter(({ file_name }) => file_name in parts || wheels.names.includes(file_name));
  if (resolves)
    pyodide.registerJsModule("wisp_page", { get: (/** @type {string} */ name) => wheels.get(name), packages: known });
  const here = pyodide.toPy(known.flatMap(({ imports }) => imports)); // what code may import of them
  const silent = { messageCallback() {}, errorCallback() {} };
  /** Installs a wheel. Throws what went wrong. @param {string} name */
  const install = async (name) => {
    /** @type {unknown[]} */
    const errors = []; // Pyodide tells some, and throws others
    const options = {
      ...silent,
      checkIntegrity: false,
      errorCallback: (/** @type {string} */ text) => errors.push(text),
    };
    await pyodide.loadPackage(BASE + name, options).catch((/** @type {unknown} */ error) => errors.push(error));
    if (errors.length) throw errors.at(-1);
    const needed = session
      .required(name)
      .toJs()
      .filter((/** @type {string} */ each) => known.some(({ name }) => name.toLowerCase() === each));
    await pyodide.loadPackage(needed, silent).catch(() => {}); // the import says what lacks
  };
  return async ({ code, files, wheels: given, importable }, { write }, { installed, begins }) => {
    unloaded = "";
    for (const { name, data } of files) pyodide.FS.writeFile(`/files/${name}`, data);
    for (const { name, data } of [...given, ...files.filter(({ name }) => name.endsWith(".whl"))]) {
      parts[name] = data.buffer;
      try {
        await install(name);
        installed(name);
      } catch (error) {
        write(`${name} cannot be installed: ${error}\n`);
      }
    }
    await pyodide.loadPackagesFromImports(session.imports(code), silent).catch((/** @type {unknown} */ error) => {
      unloaded ||= String(error); // the import says so
    });
    begins();
    const ran = (await session.run(code, write, here, unloaded, importable)).toJs({ create_pyproxies: false });
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

/** Pyodide's lock file with more packages. @param {ArrayBuffer} lock @param {ArrayBuffer} more @returns {ArrayBuffer} */
function joined(lock, more) {
  const [made, packages] = [lock, more].map((content) => JSON.parse(new TextDecoder().decode(content)));
  Object.assign(made.packages, packages);
  return new TextEncoder().encode(JSON.stringify(made)).buffer;
}

/** Imports a module of this content. @param {ArrayBuffer} content @returns {Promise<any>} */
function importPart(content) {
  return import(URL.createObjectURL(new Blob([content], { type: "text/javascript" })));
}
