// Starts Pyodide, imports modules and writes its memory to a file, from which a page starts in a tenth of the time.
// argv: the folder of Pyodide's core, Python's library as the page has it, the file to write.
// stdin: {files: {name: base64}, modules: [name], wheels: [path], later: [name]}. The files belong to the packages that are
// imported; a page puts the same files into the same place.
// stdout: {snapshot: the modules in it, later: the files that the `later` modules need beside it}.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { pack, startFrom, withInitialMemory } from "../app/memory_snapshot.js";

const request = readFileSync(0, "utf8"); // before Pyodide takes stdin
const [folder, stdLibURL, target] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`).href);
const asm = () => import(pathToFileURL(`${folder}/pyodide.asm.mjs`).href);
const env = { HOME: "/home/pyodide", PYTHONHASHSEED: "0" }; // the same memory each time
let initial = new Uint8Array();
const createPyodideModule = withInitialMemory(asm, (memory) => (initial = memory.slice()));
const pyodide = await loadPyodide({ indexURL: folder, stdLibURL, createPyodideModule, _makeSnapshot: true, env });
const { files, modules, wheels, later } = JSON.parse(request);
for (const [name, data] of Object.entries(files)) {
  const path = `/wisp/${name}`;
  pyodide.FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
  pyodide.FS.writeFile(path, Buffer.from(data, "base64"));
}
const free = memoryTop();
pyodide.runPython(
  `
def prepare(modules, end):
    import gc, importlib, sys
    sys.path.insert(0, "/wisp")
    for name in modules.split():
        try:
            importlib.import_module(name)
        except ImportError:  # needs a compiled package, which a snapshot cannot hold
            pass
    sys.path.remove("/wisp")
    for path in [p for p in sys.path_importer_cache if p.startswith("/wisp")]:
        del sys.path_importer_cache[path]
    gc.collect()
    for size in range(496, 0, -16):  # overwrite the free blocks of each size that Python hands out
        blocks = [bytes(size)]
        while id(blocks[-1]) < end:
            blocks.append(bytes(size))
        del blocks
    gc.collect()
prepare
`,
)(modules.join(" "), free);
pyodide.runPython("del prepare");
pyodide.runPython("__import__('zipimport')._zip_directory_cache.clear()"); // last: a page's library has fewer files
overwriteFreeMemory(memoryTop());
const packed = pack(pyodide.makeMemorySnapshot(), initial);

const options = { indexURL: folder, stdLibURL, ...startFrom(packed.buffer, asm) };
const again = await loadPyodide(options); // throws if it has outgrown the first memory
const inSnapshot = again.runPython("import sys; list(sys.modules)").toJs();
if (!inSnapshot.includes("json")) throw new Error("the modules are not in it");
await again.loadPackage(wheels, { messageCallback() {} });
const needed = again.runPython(
  `
def added(names, before):
    import importlib
    for name in names.split():
        importlib.import_module(name)
    before = set(before.to_py())
    return [m.__file__ for n, m in sys.modules.items() if n not in before and getattr(m, "__file__", None)]
added
`,
)(later.join(" "), inSnapshot);
writeFileSync(target, packed);
process.stdout.write(JSON.stringify({ snapshot: inSnapshot, later: needed.toJs() }));

/** The end of what the memory holds. */
function memoryTop() {
  const words = pyodide._module.HEAPU32;
  let end = words.length;
  while (!words[end - 1]) end--;
  return end * 4;
}

/** Fills C's free memory below `end` with zeros: what was there before compresses badly. @param {number} end */
function overwriteFreeMemory(end) {
  const module = pyodide._module;
  const blocks = [];
  for (let size = 1 << 20; size >= 8; size = size > 64 ? (size * 3) >> 2 : size - 8) {
    for (;;) {
      const block = module._malloc(size);
      blocks.push(block);
      if (!block || block + size > end) break;
      module.HEAPU8.fill(0, block, block + size);
    }
  }
  for (const block of blocks) module._free(block);
}
