// Compiles the methods of dataclasses, with Pyodide's own Python: imports modules and keeps what `@dataclass` compiles.
// argv: the folder of Pyodide's core. stdin: {snapshot, library, archive: paths, wheels: [path], modules: [name]}.
// stdout: {compiled: app/dataclass_code.bin in base64, failed: why modules could not be imported, by name}.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { startFrom } from "../app/memory_snapshot.js";
import { unpack } from "../app/stored_zip.js";

const request = JSON.parse(readFileSync(0, "utf8")); // before Pyodide takes stdin
const folder = process.argv[2];
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`).href);
const asm = () => import(pathToFileURL(`${folder}/pyodide.asm.mjs`).href);
/** @param {string} path */
const bytes = (path) => new Uint8Array(readFileSync(path)).buffer;
const options = { indexURL: folder, stdLibURL: request.library, ...startFrom(bytes(request.snapshot), asm) };
const pyodide = await loadPyodide(options);
await pyodide.loadPackage(request.wheels, { messageCallback() {} });
unpack(pyodide.FS, bytes(request.archive), "/wisp");
const answer = pyodide.runPython(
  `
import base64, builtins, dataclasses, importlib, json, marshal, sys, types
sys.path.insert(0, "/wisp")
from app.dataclass_code import key_of

def without_lines(code):  # half of the file: there is no source to show beside a traceback
    consts = (without_lines(value) if isinstance(value, types.CodeType) else value for value in code.co_consts)
    return code.replace(co_linetable=b"", co_consts=tuple(consts))

def answer(modules):
    compiled_by_key, failed = {}, {}

    def run(source, *namespaces):
        code = compiled_by_key[key_of(source)] = compile(source, "<dataclass>", "exec", dont_inherit=True)
        builtins.exec(code, *namespaces)

    dataclasses.exec = run
    for name in modules.to_py():
        try:
            importlib.import_module(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    packed = marshal.dumps({key: without_lines(code) for key, code in sorted(compiled_by_key.items())})
    return json.dumps({"compiled": base64.b64encode(packed).decode(), "failed": failed})
answer
`,
)(request.modules);
process.stdout.write(answer);
