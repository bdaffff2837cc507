"""The engine's Python in real Pyodide, under Node, through pytest-pyodide."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_pyodide.config import get_global_config
from pytest_pyodide.fixture import selenium_common

from tools import pyodide as pyodide_files
from tools import python_zip

STACK_KB = 500  # of Chromium's workers; Node's own is twice that
ROOT = Path(__file__).parents[2]
SET_UP = """
const fs = require("fs");
const bytes = (path) => new Uint8Array(new Uint8Array(fs.readFileSync(path)));
for (const wheel of {wheels}) pyodide.unpackArchive(bytes(wheel), "wheel");
pyodide.unpackArchive(bytes({zip}), "zip", {{ extractDir: "/wisp" }});
pyodide.FS.mkdir("/repo");
pyodide.FS.mount(pyodide.FS.filesystems.NODEFS, {{ root: {root} }}, "/repo");
pyodide.runPython(`import sys; sys.path.insert(0, "/wisp")`);
"""


@pytest.fixture(scope="session")
def selenium_node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Pyodide with the packages of the page's zip and the regex wheel; the checkout is at /repo."""
    archive = tmp_path_factory.mktemp("zip") / "py.zip"
    archive.write_bytes(python_zip.pack(python_zip.sources()))
    wheels = [str(path) for path in pyodide_files.wheels() if path.name.startswith("regex-")]
    request.config.option.dist_dir = str(pyodide_files.core_dir())
    get_global_config().set_flags("node", [f"--stack-size={STACK_KB}"])
    with selenium_common(request, "node", ("127.0.0.1", 0, None)) as runner:
        runner.set_script_timeout(120)
        names = {"wheels": wheels, "zip": str(archive), "root": str(ROOT)}
        runner.run_js(SET_UP.format(**{name: json.dumps(value) for name, value in names.items()}))
        yield runner
