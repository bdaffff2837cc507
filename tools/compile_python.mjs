// Compiles Python sources to the bytecode of Pyodide's own Python, with that Python.
// argv: the folder of Pyodide's core; stdin: {name: base64 of a .py}; stdout: {name: base64 of its .pyc}.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const request = readFileSync(0, "utf8"); // before Pyodide takes stdin
const folder = process.argv[2];
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`).href);
const pyodide = await loadPyodide({ indexURL: folder });
const compiled = pyodide.runPython(
  `
import base64, importlib._bootstrap_external as external, importlib.util, json

def compile_all(request):
    out = {}
    for name, text in json.loads(request).items():
        source = base64.b64decode(text)
        code = compile(source, f"/wisp/{name}", "exec", dont_inherit=True, optimize=0)
        # Unchecked: the archive's name has the hash of everything in it, nothing can be out of date.
        pyc = external._code_to_hash_pyc(code, importlib.util.source_hash(source), False)
        out[name] = base64.b64encode(pyc).decode()
    return json.dumps(out)
compile_all
`,
)(request);
process.stdout.write(compiled);
