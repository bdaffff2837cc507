"""Pyodide without Wisp's page: a plain server with Pyodide, its packages and the wheel, and pages that run Python."""

import json
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from playwright.sync_api import Browser, Page

from tests.support.browser import new_profile
from tools import pyodide, wheel
from tools.goldens import GOLDEN
from tools.paths import ROOT, STATIC, site_packages

PYTHON_DOCS = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
PYTHON_EXAMPLES = re.findall(r"```python\n(.*?)```", PYTHON_DOCS, re.DOTALL)
MODEL = STATIC / "models" / "wisp-mini-q4_0.gguf"
PLAMO = GOLDEN / "plamo" / "plamo.F16.gguf"
# Pure wheels of packages that Pyodide has on its CDN. name -> (version in their file's name, requirements)
CARRIED = {"jinja2": ("3.1.6", ("MarkupSafe",)), "markupsafe": ("3.0.4", ())}
TYPES = {".mjs": "text/javascript", ".wasm": "application/wasm"}  # which Python's table may lack
START = """async ([indexURL, wheels, options]) => {
  const { loadPyodide } = await import(`${indexURL}pyodide.mjs`);
  const pyodide = await loadPyodide({ indexURL, ...options });
  await pyodide.loadPackage("micropip", { messageCallback() {} });
  const micropip = pyodide.pyimport("micropip");
  for (const wheel of wheels) await micropip.install(wheel);
  globalThis.runPython = (code, globals) =>
    pyodide.runPythonAsync(code, { globals: pyodide.toPy({ __name__: "__main__", ...globals }) });
}"""
WORKER = f"""self.onmessage = async ({{ data: {{ start, code, globals, answer }} }}) => {{
  try {{
    if (start) await ({START})(start);
    answer.postMessage({{ result: start ? null : await runPython(code, globals) }});
  }} catch (error) {{
    answer.postMessage({{ error: String(error) }});
  }}
}};
"""
IN_WORKER = """(message) => new Promise((resolve, reject) => {
  globalThis.pythonWorker ??= new Worker("/worker.js", { type: "module" });
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data }) => (data.error ? reject(new Error(data.error)) : resolve(data.result));
  globalThis.pythonWorker.postMessage({ ...message, answer: port2 }, [port2]);
})"""
# Runs an example in the namespace that all examples share, and returns what it printed.
RUN_EXAMPLE = """
import contextlib, io, sys, types
from pyodide.code import eval_code_async
shared = sys.modules.setdefault("shared", types.ModuleType("shared"))
with contextlib.redirect_stdout(io.StringIO()) as printed:
    await eval_code_async(example, shared.__dict__)
result = printed.getvalue()
"""


class Quiet(SimpleHTTPRequestHandler):
    """A plain file server: no ranges, no headers for isolation."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | TYPES

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class Site:
    """A folder with Pyodide, the wheels, a model and more files, and its address."""

    def __init__(self, folder: Path, *files: Path) -> None:
        self.folder, self.wheels = folder, list[str]()
        for name in (*pyodide.CORE_FILES,):
            self.add(f"pyodide/{name}", (pyodide.core_dir() / name).read_bytes())
        for path in (*pyodide.wheels(), pyodide.installer()):
            self.add(f"pyodide/{path.name}", path.read_bytes())
        for name, (version, requires) in reversed(CARRIED.items()):
            source = site_packages() / name
            modules = {f"{name}/{p.relative_to(source).as_posix()}": p.read_bytes() for p in source.rglob("*.py")}
            self.wheels.append(f"{name}-{version}-py3-none-any.whl")
            self.add(self.wheels[-1], wheel.wheel(name, version, modules, {}, requires))
        self.wheels.append(wheel.build(folder).name)
        for path in (MODEL, *files):
            self.add(path.name, path.read_bytes())
        self.add("index.html", b"<!doctype html><title>a plain page</title>")
        self.add("worker.js", WORKER.encode())
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def add(self, path: str, data: bytes) -> None:
        """Publish a file."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()


class Python:
    """A Pyodide with the wheel, on a page's main thread or in a worker."""

    def __init__(self, browser: Browser, site: Site, *, worker: bool = False, **options: Any) -> None:
        """`options`: more of loadPyodide()."""
        self.page: Page = new_profile(browser).new_page()
        self.page.goto(site.url)
        self._worker = worker
        start = [f"{site.url}pyodide/", [site.url + name for name in site.wheels], options]
        self.page.evaluate(IN_WORKER, {"start": start}) if worker else self.page.evaluate(START, start)

    def run(self, code: str, **given: Any) -> Any:
        """Run Python code in a namespace of its own, with JSON values `given`; what it assigns to `result`, as JSON."""
        source = f"import json\nresult = None\n{code}\njson.dumps(result)"
        if self._worker:
            found = self.page.evaluate(IN_WORKER, {"code": source, "globals": given})
        else:
            found = self.page.evaluate("([code, given]) => runPython(code, given)", [source, given])
        return json.loads(found)

    def run_example(self, source: str) -> str:
        """Run an example of docs/python.md in the module `shared`, whose names later examples use; what it printed."""
        printed: str = self.run(RUN_EXAMPLE, example=source)
        return printed

    def example(self, has: str) -> str:
        """Run the example of docs/python.md that contains a text; what it printed."""
        (found,) = (one for one in PYTHON_EXAMPLES if has in one)
        return self.run_example(found)
