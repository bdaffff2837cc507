"""Compile the methods of dataclasses at build time, for app/dataclass_code.py.

The user's cache holds the result under the hash of the modules that have dataclasses: also what a class inherits is in
them. A page compiles what the result lacks.
"""

import base64
import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools import pyodide
from tools.failure import Failure, run, say
from tools.npm import node
from tools.paths import ROOT, cache_dir
from tools.python_zip import OWN_PACKAGES, pack

CANNOT_COMPILE = "Cannot compile the page's dataclasses"
MAKERS = [ROOT / "tools" / "dataclass_code.mjs", ROOT / "app" / "dataclass_code.py"]


def dataclass_code(
    sources: Mapping[str, bytes], members: Mapping[str, bytes], snapshot: bytes, library: bytes, wheels: Sequence[Path]
) -> bytes:
    """Return app/dataclass_code.bin.

    `sources`, `members`: the archive's files, as text and as bytecode; `library`: Python's own, as a zip.
    """
    ours = {name: data for name, data in sources.items() if name.split("/")[0] in OWN_PACKAGES}
    with_dataclasses = {name: data for name, data in ours.items() if b"@dataclass" in data}
    digest = hashlib.sha256(pyodide.version().encode() + b"".join(maker.read_bytes() for maker in MAKERS))
    for name, data in with_dataclasses.items():
        digest.update(name.encode() + b"\0" + data + b"\0")
    cached = cache_dir("dataclasses") / f"{digest.hexdigest()}.bin"
    if not cached.exists():
        say(f"Compiling the dataclasses of {len(with_dataclasses)} modules for Pyodide {pyodide.version()} ...")
        modules = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in with_dataclasses]
        with tempfile.TemporaryDirectory() as folder:
            paths = {name: str(Path(folder) / f"{name}.zip") for name in ("snapshot", "library", "archive")}
            for path, data in zip(paths.values(), (snapshot, library, pack(members)), strict=True):
                Path(path).write_bytes(data)
            request = {**paths, "wheels": [str(wheel) for wheel in wheels], "modules": modules}
            command: list[str | Path] = [node(), MAKERS[0], pyodide.core_dir()]
            answer = json.loads(run(command, CANNOT_COMPILE, stdin=json.dumps(request)))
        if answer["failed"]:
            raise Failure(f"{CANNOT_COMPILE}: {answer['failed']}")
        part = cached.with_suffix(".part")
        part.write_bytes(base64.b64decode(answer["compiled"]))
        part.replace(cached)
    return cached.read_bytes()
