"""The wheel in other releases of Pyodide, as marimo's notebooks start one and the newest one, and under PyScript.

Marimo itself needs packages that only Pyodide's CDN has.

Runs with WISP_INSTALLS=1 only: it downloads two Pyodides and PyScript.
"""

import hashlib
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.bare_pyodide import MODEL, PYTHON_EXAMPLES, Python, Site
from tests.support.browser import new_profile
from tools import pyodide

pytestmark = pytest.mark.skipif("WISP_INSTALLS" not in os.environ, reason="WISP_INSTALLS=1 runs it")
PYODIDES = {  # package -> options of loadPyodide()
    "pyodide@314.0.0": {"convertNullToNone": True},  # as in the notebooks of marimo 0.25
    "pyodide@314.0.7": {},
}
PYSCRIPT = "@pyscript/core@0.7.31"
PAGE = """<!doctype html><meta charset="utf-8"><title>PyScript</title>
<link rel="stylesheet" href="/pyscript/core.css">
<script type="module" src="/pyscript/core.js"></script>
<script type="py" config='{config}'>
from wisp import Engine
from pyscript import document
engine = await Engine.load("{model}")
async for text in engine.chat("What is the capital of France?", temperature=0):
    document.querySelector("#answer").append(text)
</script><p id="answer"></p>"""


def packed(package: str, folder: Path) -> Path:
    """The files of an npm package."""
    command = ["npm", "pack", package, "--silent", "--pack-destination", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with tarfile.open(folder / done.stdout.strip()) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"


@pytest.mark.parametrize("package", PYODIDES)
def test_another_pyodide(package: str, tmp_path: Path, chromium: Callable[[str | None], Browser]) -> None:
    core = packed(package, tmp_path)
    lock = json.loads((core / "pyodide-lock.json").read_text("utf-8"))
    with Site(tmp_path / "site") as site:
        for name in pyodide.CORE_FILES:
            site.add(f"pyodide/{name}", (core / name).read_bytes())
        for wheel in (*pyodide.wheels(), pyodide.installer()):  # of the pinned release: the interface is the same
            name, version, *_ = wheel.name.split("-")
            entry = {"version": version, "file_name": wheel.name, "sha256": sha256(wheel)}
            lock["packages"][name] |= entry
        site.add("pyodide/pyodide-lock.json", json.dumps(lock).encode())
        python = Python(chromium(None), site, worker=True, **PYODIDES[package])
        assert f"pyodide@{python.run('import pyodide; result = pyodide.__version__')}" == package
        assert python.run_example(PYTHON_EXAMPLES[0]) == "The capital of France is Paris."
        python.page.context.close()


def test_pyscript(tmp_path: Path, chromium: Callable[[str | None], Browser]) -> None:
    dist = packed(PYSCRIPT, tmp_path) / "dist"
    with Site(tmp_path / "site") as site:
        for path in dist.glob("*"):
            if path.suffix in (".js", ".css"):
                site.add(f"pyscript/{path.name}", path.read_bytes())
        packages = [site.url + name for name in site.wheels]
        config = {"interpreter": f"{site.url}pyodide/pyodide.mjs", "packages": packages}
        page = PAGE.format(config=json.dumps(config), model=site.url + MODEL.name)
        site.add("pyscript.html", page.encode())
        context = new_profile(chromium(None))
        shown = context.new_page()
        shown.goto(f"{site.url}pyscript.html")
        expect(shown.locator("#answer")).to_have_text("The capital of France is Paris.", timeout=180_000)
        context.close()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
