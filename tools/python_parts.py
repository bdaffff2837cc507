"""Split Python's library, numpy and the archive's packages into what a page loads at its start, and the rest.

The start has the modules that Wisp imports, as bytecode. The snapshot holds most of the library and
of the packages already. Nothing is lost: the library and numpy are in dist/ whole, too, for app/on_demand.py.
"""

import io
import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.bytecode import bytecode
from tools.python_zip import OWN_PACKAGES, pack
from tools.snapshot import Snapshot

LIBRARY, PACKAGES = "/lib/python314.zip/", "/lib/python3.14/site-packages/"  # in Pyodide's file system
ABOUT_A_WHEEL = re.compile(r"\.dist-info/(METADATA|WHEEL)$")
DOCUMENTED = re.compile(r"_?pyodide/").match  # gives its docstrings to its C types; numpy.ma edits those of numpy


def bytecode_library(library: bytes) -> dict[str, bytes]:
    """Return Python's whole library, name.pyc -> content."""
    return bytecode({name: data for name, data in _files(library).items() if name.endswith(".py")}, LIBRARY, DOCUMENTED)


def start_of_library(library: Mapping[str, bytes], snapshot: Snapshot) -> tuple[bytes, list[str]]:
    """Return a zip of the modules that are imported beside the snapshot, and the names of those that have no place."""
    start = {name: code for name, code in library.items() if LIBRARY + name in snapshot.later}
    left_out = {_module(name) for name in library if name not in start} - snapshot.modules
    return pack(start), sorted(left_out)


def start_of_numpy(wheel: Path, snapshot: Snapshot) -> tuple[bytes, list[str]]:
    """Return the wheel with the modules that `import numpy` imports, and the names of the others."""
    files = _files(wheel.read_bytes())
    needed = {name for name in files if PACKAGES + name in snapshot.later}
    start = bytecode({name: files[name] for name in needed}, PACKAGES, documented=bool)
    start |= {name: data for name, data in files.items() if ABOUT_A_WHEEL.search(name)}
    left_out = [_module(name) for name in files if name.endswith((".py", ".so")) and name not in needed]
    return pack(dict(sorted(start.items(), key=_alike))), sorted(left_out)


def start_of_archive(
    members: Mapping[str, bytes], snapshot: Snapshot, left_out: Mapping[str, Iterable[str]], dataclasses: bytes
) -> tuple[bytes, bytes]:
    """Return the archive without the packages' modules that the snapshot holds, and a zip of all packages.

    `dataclasses`: of dataclass_code.py.
    """
    ours = {name: data for name, data in members.items() if name.split("/")[0] in (*OWN_PACKAGES, "wgsl")}
    packages = {name: data for name, data in members.items() if name not in ours}
    start = {**ours, **{name: data for name, data in packages.items() if _module(name) not in snapshot.modules}}
    start["app/on_demand.json"] = json.dumps(left_out).encode()
    start["app/dataclass_code.bin"] = dataclasses
    return pack(dict(sorted(start.items(), key=_alike))), pack(packages)


def _files(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist() if not name.endswith("/")}


def _module(name: str) -> str:
    """Return the module of a file."""
    return re.sub(r"(/__init__)?(\.[\w-]+)*$", "", name).replace("/", ".")


def _alike(member: tuple[str, bytes]) -> tuple[str, str]:
    """Sort files of a kind side by side: they compress better."""
    return member[0].rpartition(".")[2], member[0]
