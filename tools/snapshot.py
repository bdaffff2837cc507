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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import pyodide
from tools.failure import run, say
from tools.npm import node
from tools.paths import ROOT, cache_dir
from tools.python_zip import OWN_PACKAGES

MAKERS = [ROOT / "tools" / "make_snapshot.mjs", ROOT / "app" / "memory_snapshot.js"]
IMPORT = re.compile(rb"^\s*(?:from|import) ([\w.]+)", re.M)
ALSO = ("shutil", "zipfile")  # they unpack wheels, and what on_demand.py fetches
# Imported after the snapshot was taken: compiled packages, and what Python imports by itself when it is needed.
LATER = (
    "numpy", "numpy.typing", "regex", "tarfile", "_strptime", "calendar", "encodings.ascii", "encodings.cp437",
    "encodings.idna", "encodings.latin_1", "encodings.raw_unicode_escape", "encodings.unicode_escape",
    "encodings.utf_16_le", "encodings.utf_8_sig",
)  # fmt: skip


@dataclass(frozen=True)
class Snapshot:
    """A started Python: its memory (app/memory_snapshot.js), the modules in it, and files LATER needs beside it."""

    data: bytes
    modules: frozenset[str]
    later: frozenset[str]


def snapshot(members: Mapping[str, bytes], modules: Sequence[str], library: bytes, wheels: Sequence[Path]) -> Snapshot:
    """Return the snapshot.

    `members`: the archive's files, name -> content; `modules`: what to import; `library`: Python's own, as a zip.
    """
    files = {name: data for name, data in members.items() if _package(name) not in (*OWN_PACKAGES, "wgsl")}
    digest = hashlib.sha256(f"{pyodide.version()} {modules} {LATER} {[wheel.name for wheel in wheels]} ".encode())
    for name, data in [("library", library), *((maker.name, maker.read_bytes()) for maker in MAKERS), *files.items()]:
        digest.update(name.encode() + b"\0" + data + b"\0")
    cached = cache_dir("snapshots") / f"{digest.hexdigest()}.bin"
    about = cached.with_suffix(".json")
    if not (cached.exists() and about.exists()):
        say(f"Starting Python of Pyodide {pyodide.version()} once, to take a snapshot of its memory ...")
        part, zip = (cached.with_suffix(f".{os.getpid()}.{kind}") for kind in ("part", "zip"))
        zip.write_bytes(library)
        request = {"files": {name: base64.b64encode(data).decode() for name, data in files.items()}, "modules": modules,
                   "wheels": [str(wheel) for wheel in wheels], "later": LATER}  # fmt: skip
        command: list[str | Path] = [node(), MAKERS[0], pyodide.core_dir(), zip, part]
        about.write_text(run(command, "Cannot start Pyodide's Python", stdin=json.dumps(request)))
        part.replace(cached)
        zip.unlink()
    found = json.loads(about.read_text())
    return Snapshot(cached.read_bytes(), frozenset(found["snapshot"]), frozenset(found["later"]))


def imported(sources: Mapping[str, bytes]) -> list[str]:
    """Return what Wisp's modules import from Python's own library and from the packages in the archive."""
    packages = {_package(name) for name in sources} - {*OWN_PACKAGES, "wgsl"}
    found = {*ALSO}
    for name, source in sources.items():
        if _package(name) in OWN_PACKAGES and name.endswith(".py"):
            found |= {match.decode() for match in IMPORT.findall(source)}
    return sorted(m for m in found if (root := m.partition(".")[0]) in packages or root in sys.stdlib_module_names)


def _package(name: str) -> str:
    return name.partition("/")[0]
