"""Make a memory snapshot of a Python that has started and imported the packages that Wisp needs.

A page that starts from the snapshot is ready in a fraction of the usual time. Wisp's own modules are not in it, so a
change in them needs no new one. The user's cache holds one per Pyodide, set of packages and list of modules.
"""

import base64
import hashlib
import json
import os
import re
import sys
from pathlib import Path

from tools import pyodide
from tools.failure import run, say
from tools.npm import node
from tools.paths import ROOT, cache_dir
from tools.python_zip import OWN_PACKAGES

MAKER = ROOT / "tools" / "make_snapshot.mjs"
IMPORT = re.compile(rb"^\s*(?:from|import) ([\w.]+)", re.M)
ALSO = ("shutil", "zipfile")  # they unpack the archive


def snapshot(members: dict[str, bytes]) -> bytes:
    """Return the snapshot, gzipped. `members`: the archive's files, name -> content."""
    files = {name: data for name, data in members.items() if _package(name) not in (*OWN_PACKAGES, "wgsl")}
    names = modules(members)
    digest = hashlib.sha256(f"{pyodide.version()} {names} ".encode() + MAKER.read_bytes())
    for name, data in sorted(files.items()):
        digest.update(name.encode() + b"\0" + data + b"\0")
    cached = cache_dir("snapshots") / f"{digest.hexdigest()}.bin"
    if not cached.exists():
        say(f"Starting Python of Pyodide {pyodide.version()} once, to take a snapshot of its memory ...")
        part = cached.with_suffix(f".{os.getpid()}.part")
        request = {"files": {name: base64.b64encode(data).decode() for name, data in files.items()}, "modules": names}
        command: list[str | Path] = [node(), MAKER, pyodide.core_dir(), part]
        run(command, "Cannot start Pyodide's Python", stdin=json.dumps(request))
        part.replace(cached)
    return cached.read_bytes()


def modules(members: dict[str, bytes]) -> list[str]:
    """Return what Wisp's modules import from Python's own library and from the packages in the archive."""
    packages = {_package(name) for name in members} - {*OWN_PACKAGES, "wgsl"}
    found = {*ALSO}
    for name, source in members.items():
        if _package(name) in OWN_PACKAGES and name.endswith(".py"):
            found |= {match.decode() for match in IMPORT.findall(source)}
    return sorted(m for m in found if (root := m.partition(".")[0]) in packages or root in sys.stdlib_module_names)


def _package(name: str) -> str:
    return name.partition("/")[0]
