"""Compile Python to bytecode at build time, with Pyodide's own Python.

Importing from bytecode saves the browser about 0.3 s, and docstrings are much of what would travel. Each file is
compiled once: the user's cache holds the result under the hash of its source.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from tools import pyodide
from tools.failure import run, say
from tools.npm import node
from tools.paths import ROOT, cache_dir

MAKER = ROOT / "tools" / "compile_python.mjs"


def bytecode(
    files: Mapping[str, bytes], prefix: str, documented: Callable[[str], object] = lambda _: False
) -> dict[str, bytes]:
    """Replace each NAME.py by its NAME.pyc, without the docstrings of those that are not `documented`.

    `prefix`: of the paths that tracebacks show. They have no source lines: sources are not in the page.
    """
    sources = {name: data for name, data in files.items() if name.endswith(".py")}
    compiled = {f"{name}c": code for name, code in _compile(sources, prefix, documented).items()}
    others = {name: data for name, data in files.items() if name not in sources}
    return dict(sorted({**others, **compiled}.items()))


def _compile(sources: Mapping[str, bytes], prefix: str, documented: Callable[[str], object]) -> dict[str, bytes]:
    """Return the bytecode of each source."""
    stays = [name for name in sources if documented(name)]
    cache = cache_dir("bytecode")
    cached = {}
    for name, source in sources.items():
        key = f"{pyodide.version()} {prefix}{name} {name in stays} ".encode() + MAKER.read_bytes() + source
        cached[name] = cache / f"{hashlib.sha256(key).hexdigest()}.pyc"
    missing = {name: base64.b64encode(sources[name]).decode() for name, path in cached.items() if not path.exists()}
    if missing:
        say(f"Compiling {len(missing)} Python files for Pyodide {pyodide.version()} ...")
        command: list[str | Path] = [node(), MAKER, pyodide.core_dir()]
        request = {"files": missing, "prefix": prefix, "documented": stays}
        answer = run(command, "Cannot compile the page's Python", stdin=json.dumps(request))
        for name, code in json.loads(answer).items():
            part = cached[name].with_suffix(".part")
            part.write_bytes(base64.b64decode(code))
            part.replace(cached[name])
    return {name: path.read_bytes() for name, path in cached.items()}
