"""The compiled methods of dataclasses.

`@dataclass` writes the source of `__init__` and others for each class, and compiles it. That would take two fifths of
the imports at a page's start, so the build compiles the same sources (tools/dataclass_code.py). Others, of users'
classes, are compiled as always.
"""

import builtins
import dataclasses
import hashlib
import marshal
from pathlib import Path
from types import CodeType
from typing import Any

COMPILED = Path(__file__).with_suffix(".bin")  # key_of(source) -> its code, by marshal; made by the build


def key_of(source: str) -> bytes:
    """The key of a source in a collection of compiled ones: half of its SHA-256."""
    return hashlib.sha256(source.encode()).digest()[:16]


def install() -> None:
    """Let dataclasses take the build's compiled methods. Without the build's file, all are compiled as always."""
    try:
        compiled: dict[bytes, CodeType | str] = marshal.loads(COMPILED.read_bytes())
    except (OSError, ValueError, EOFError, TypeError):
        return

    def run(source: str, *namespaces: Any) -> None:
        builtins.exec(compiled.get(key_of(source), source), *namespaces)  # equal classes share one source

    dataclasses.exec = run  # type: ignore[attr-defined] # what the module finds in place of the built-in function
