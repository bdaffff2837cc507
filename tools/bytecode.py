"""Compile the archive's Python to bytecode at build time, with Pyodide's own Python.

Importing from bytecode saves the browser about 0.3 s. Each file is compiled once: the user's cache holds the result
under the hash of its source.
"""

import base64
import hashlib
import json
from pathlib import Path

from tools import pyodide
from tools.failure import run, say
from tools.npm import node
from tools.paths import ROOT, cache_dir


def with_bytecode(members: dict[str, bytes]) -> dict[str, bytes]:
    """Add to each package/module.py its package/__pycache__/module.cpython-XY.pyc."""
    tag, cache = _cache_tag(), cache_dir("bytecode")
    cached = {
        name: cache / f"{hashlib.sha256(f'{pyodide.version()} {name} '.encode() + source).hexdigest()}.pyc"
        for name, source in members.items()
        if name.endswith(".py")
    }
    missing = {name: base64.b64encode(members[name]).decode() for name, path in cached.items() if not path.exists()}
    if missing:
        say(f"Compiling {len(missing)} Python files for Pyodide {pyodide.version()} ...")
        command: list[str | Path] = [node(), ROOT / "tools" / "compile_python.mjs", pyodide.core_dir()]
        answer = run(command, "Cannot compile the page's Python", stdin=json.dumps(missing))
        for name, code in json.loads(answer).items():
            part = cached[name].with_suffix(".part")
            part.write_bytes(base64.b64decode(code))
            part.replace(cached[name])
    compiled = {_beside(name, tag): path.read_bytes() for name, path in cached.items()}
    return dict(sorted({**members, **compiled}.items()))


def _cache_tag() -> str:
    """Return the tag in the names of Pyodide's bytecode files, such as cpython-314."""
    lock = json.loads((pyodide.core_dir() / "pyodide-lock.json").read_text(encoding="utf-8"))
    major, minor = lock["info"]["python"].split(".")[:2]
    return f"cpython-{major}{minor}"


def _beside(name: str, tag: str) -> str:
    folder, _, file = name.rpartition("/")
    return f"{folder}/__pycache__/{file.removesuffix('.py')}.{tag}.pyc"
