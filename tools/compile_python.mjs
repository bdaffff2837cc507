// Compiles Python sources to the bytecode of Pyodide's own Python, with that Python.
// argv: the folder of Pyodide's core; stdin: {files: {name: base64 of a .py}, prefix: of their paths in the page,
// documented: [name of a file whose docstrings stay]}; stdout: {name: base64 of its .pyc}.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const request = readFileSync(0, "utf8"); // before Pyodide takes stdin
const folder = process.argv[2];
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`).href);
// Tracebacks have no source lines, in which they could mark columns, and tables of columns are a sixth of the bytecode.
const pyodide = await loadPyodide({ indexURL: folder, args: ["-X", "no_debug_ranges"] });
const compiled = pyodide.runPython(
  `
import ast, base64, importlib._bootstrap_external as external, importlib.util, json

def without_docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.copy_location(ast.Pass(), first)]
            if getattr(node, "decorator_list", ()) and isinstance(node, ast.ClassDef):
                # A dataclass without a docstring makes one from its signature, which takes as long as all else of it.
                node.body.insert(0, ast.copy_location(ast.Expr(ast.copy_location(ast.Constant("-"), first)), first))
    return tree

def compile_all(request):
    out = {}
    request = json.loads(request)
    for name, text in request["files"].items():
        source = base64.b64decode(text)
        tree = ast.parse(source) if name in request["documented"] else without_docstrings(ast.parse(source))
        code = compile(tree, request["prefix"] + name, "exec", dont_inherit=True, optimize=0)
        # Unchecked: the archive's name has the hash of everything in it, nothing can be out of date.
        pyc = external._code_to_hash_pyc(code, importlib.util.source_hash(source), False)
        out[name] = base64.b64encode(pyc).decode()
    return json.dumps(out)
compile_all
`,
)(request);
process.stdout.write(compiled);
