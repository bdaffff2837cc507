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

COMPILED = Path(__file__).with_suffix(".bin")  # SHA-256 of a source -> its code, by marshal; made by the build


def key_of(source: str) -> bytes:
    """The key of a source in a collection of compiled ones."""
    return hashlib.sha256(source.encode()).digest()


def use() -> None:
    """Let dataclasses take the build's compiled methods."""
    found: dict[bytes, CodeType | str] = marshal.loads(COMPILED.read_bytes())

    def run(source: str, *namespaces: Any) -> None:
        builtins.exec(found.pop(key_of(source), source), *namespaces)

    dataclasses.exec = run  # type: ignore[attr-defined] # what the module finds in place of the built-in function
