"""A real JupyterLite from the package index, with its Pyodide kernel and all of the kernel's packages beside it."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.bare_pyodide import Site
from tools import pyodide

JUPYTERLITE = ("jupyterlite-core==0.8.6", "jupyterlite-pyodide-kernel==0.8.6")
COMM = "0.2.3"  # which the kernel needs, and Pyodide's lock file lacks
# What the kernel imports: packages of Pyodide's lock file that are pure Python, and on the package index, too.
KERNEL = (
    *("ipython", "jedi", "parso", "traitlets", "pygments", "decorator", "executing", "asttokens", "pure-eval", "six"),
    *("stack-data", "wcwidth", "prompt-toolkit", "matplotlib-inline"),
)


def add_jupyterlite(site: Site, work: Path, cells: list[str]) -> str:
    """Build a JupyterLite into a site, with a notebook of these cells; the notebook's address."""
    _add_kernel_packages(site, work / "wheels")
    environment = work / "environment"
    _run(sys.executable, "-m", "venv", environment)
    python = environment / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *JUPYTERLITE)
    source = work / "source"
    source.mkdir()
    (source / "jupyter-lite.json").write_text(json.dumps(_config(site)))
    lite = site.folder / "lite"
    _run(environment / "bin" / "jupyter", "lite", "build", "--lite-dir", source, "--output-dir", lite,
         "--apps", "notebooks", "--no-sourcemaps", cwd=source)  # fmt: skip
    _add_notebook(lite, "wisp.ipynb", cells)
    return f"{site.url}lite/notebooks/index.html?path=wisp.ipynb"


def _config(site: Site) -> dict[str, Any]:
    kernel = {"pyodideUrl": f"{site.url}pyodide/pyodide.mjs", "disablePyPIFallback": True}
    return {
        "jupyter-lite-schema-version": 0,
        "jupyter-config-data": {
            "exposeAppInBrowser": True,
            "contentsAllJsonFile": "all.json",
            "litePluginSettings": {"@jupyterlite/pyodide-kernel-extension:kernel": kernel},
        },
    }


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stdout + done.stderr


def _add_kernel_packages(site: Site, folder: Path) -> None:
    """Publish the kernel's wheels beside Pyodide, with a lock file that names the wheels that are there."""
    lock = json.loads((pyodide.core_dir() / "pyodide-lock.json").read_text())
    packages: dict[str, Any] = lock["packages"]
    packages["comm"] = {**packages["six"], "name": "comm", "version": COMM, "imports": ["comm"], "depends": []}
    wanted = [f"{name}=={packages[name]['version']}" for name in (*KERNEL, "comm")]
    _run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
         "--python-version", "3.14", "--dest", folder, *wanted)  # fmt: skip
    present = {path.name for path in (site.folder / "pyodide").iterdir()}
    for path in folder.iterdir():
        name = path.name.split("-")[0].lower().replace("_", "-")
        entry = packages[name if name in packages else name.replace("-", "_")]
        entry |= {"file_name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        site.add(f"pyodide/{path.name}", path.read_bytes())
        present.add(path.name)
    lock["packages"] = {name: entry for name, entry in packages.items() if entry["file_name"] in present}
    site.add("pyodide/pyodide-lock.json", json.dumps(lock).encode())


def _add_notebook(lite: Path, name: str, cells: list[str]) -> None:
    """Add a notebook to the site's files and to their listing."""
    made: list[dict[str, Any]] = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "execution_count": None, "outputs": [], "source": cell}
        for i, cell in enumerate(cells)
    ]
    kernel = {"kernelspec": {"name": "python", "display_name": "Python (Pyodide)", "language": "python"}}
    notebook = json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": made})
    (lite / "files").mkdir(exist_ok=True)
    (lite / "files" / name).write_text(notebook)
    entry = {"name": name, "path": name, "type": "notebook", "format": "json", "mimetype": None, "content": None}
    times = {"created": "2026-01-01T00:00:00Z", "last_modified": "2026-01-01T00:00:00Z", "writable": True}
    listing = {
        "name": "",
        "path": "",
        "type": "directory",
        "format": "json",
        "mimetype": None,
        "content": [entry | times],
    }
    (lite / "api" / "contents").mkdir(parents=True, exist_ok=True)
    (lite / "api" / "contents" / "all.json").write_text(json.dumps(listing | times))
