// Starts Pyodide, imports modules and writes its memory to a file, from which a page starts in a tenth of the time.
// argv: the folder of Pyodide's core, the file to write; stdin: {files: {name: base64}, modules: [name]}. The files
// belong to the packages that are imported; a page puts the same files into the same place.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

const request = readFileSync(0, "utf8"); // before Pyodide takes stdin
const [folder, target] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`).href);
const env = { HOME: "/home/pyodide", PYTHONHASHSEED: "0" }; // the same memory each time
const pyodide = await loadPyodide({ indexURL: folder, _makeSnapshot: true, env });
const { files, modules } = JSON.parse(request);
for (const [name, data] of Object.entries(files)) {
  const path = `/wisp/${name}`;
  pyodide.FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
  pyodide.FS.writeFile(path, Buffer.from(data, "base64"));
}
pyodide.runPython(
  `
def prepare(modules):
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
prepare
`,
)(modules.join(" "));
pyodide.runPython("del prepare");
const memory = pyodide.makeMemorySnapshot();
const again = await loadPyodide({ indexURL: folder, _loadSnapshot: memory }); // throws if it has outgrown the first memory
if (!again.runPython("import sys; 'json' in sys.modules")) throw new Error("the modules are not in it");
writeFileSync(target, gzipSync(memory, { level: 9 }));
