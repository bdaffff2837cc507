"""What is known of the kernels on this device: proven or wrong, by the hash of their text, in IndexedDB.

It is valid for one adapter and browser, and lies beside the tuning's choices.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any

import js
from pyodide.ffi import JsException

from py_engine import json_input
from py_engine.plan.kernels import Shader

VERSION = 2  # of the proof: a stricter one does not trust what an earlier one found
HASH_DIGITS = 20

_found: dict[str, dict[str, str]] = {}  # the records of this worker's life, for browsers without storage
_unstored: dict[str, dict[str, str]] = {}  # the same of findings that the next visit should try again


class Proven:
    """What is known of one adapter: the hash of a kernel's text -> "", or why it is wrong."""

    def __init__(self, key: str, known: dict[str, str]) -> None:
        self._key, self._known = key, known
        self._storing: asyncio.Future[None] | None = None
        self._of_worker = _unstored.setdefault(key, {})
        self._of_load: dict[str, str] = {}  # of registered kernels, whose numpy functions may change
        self._findings = known, self._of_worker, self._of_load

    @classmethod
    async def of(cls, adapter: Any) -> Proven:
        """Read what is known of an adapter in this browser."""
        info = adapter.info
        about = [str(getattr(info, name)) for name in ("vendor", "architecture", "description", "device")]
        text = json.dumps([VERSION, about, str(js.navigator.userAgent)])
        key = f"proven {hashlib.sha256(text.encode()).hexdigest()}"
        return cls(key, await _read(key) | _found.setdefault(key, {}))

    def knows(self, shader: Shader) -> bool:
        """Whether the kernel has been run here."""
        return any(_hash(shader) in findings for findings in self._findings)

    def fault(self, shader: Shader) -> str:
        """Why the kernel is known to be wrong; "" if it is not."""
        return next((found for findings in self._findings if (found := findings.get(_hash(shader), ""))), "")

    @property
    def is_empty(self) -> bool:
        """Whether no kernel has been run here."""
        return not any(self._findings)

    @property
    def has_faults(self) -> bool:
        """Whether any kernel is known to be wrong."""
        return any(fault for findings in self._findings for fault in findings.values())

    def add(self, found: Iterable[tuple[Shader, str]], *, of_worker: bool = False) -> None:
        """Remember findings: "", or why the kernel is wrong. The load does not wait until they are stored.

        `of_worker`: they are not stored, so that the next visit tries again. Those of registered kernels are of one
        load: their numpy functions may change.
        """
        found = list(found)
        self._of_load.update({_hash(shader): fault for shader, fault in found if shader.registered})
        new = {_hash(shader): fault for shader, fault in found if not shader.registered}
        if of_worker:
            self._of_worker.update(new)
            return
        _found[self._key] |= new
        self._known.update(new)
        self._storing = asyncio.ensure_future(self._store(self._storing))

    async def _store(self, before: asyncio.Future[None] | None) -> None:
        if before is not None:
            with suppress(Exception):  # of that store: it says nothing about this one
                await before
        with suppress(JsException):  # no storage: the worker remembers it
            others = await _read(self._key)  # another engine may have added some
            await js.wispShards.putChoice(self._key, json.dumps(others | self._known))


async def _read(key: str) -> dict[str, str]:
    text = None
    with suppress(JsException):
        text = await js.wispShards.getChoice(key)
    found = json_input.stored(text if isinstance(text, str) else None)
    return {name: str(fault) for name, fault in found.items()}


@cache
def _text_hash(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()[:HASH_DIGITS]


def _hash(shader: Shader) -> str:
    return _text_hash(shader.code)
