"""Compares the SHA-256 of a downloaded file with the one that the caller or the file's host states."""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING, Any
from urllib.parse import urlunsplit

import js
from pyodide.ffi import JsException, to_js

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.files.addresses import host_of, parts_of

if TYPE_CHECKING:
    from py_engine.files.records import Record

MOST = 1024  # bytes of a pointer or of a .sha256 file that are read
_HEX = r"[0-9a-fA-F]{64}"
# https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
_POINTER = re.compile(rf"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:({_HEX})\n")
_SUMS = re.compile(rf"\s*({_HEX})(?:\s|$)")  # as sha256sum writes it


class Verification:
    """Of one file that is cached record by record. `sha256`: the file's, once it was compared with an expected one."""

    def __init__(self, url: str, name: str) -> None:
        self.sha256 = ""
        self._url, self._name = url, name
        self._abort = js.AbortController.new()

    async def run(self, plan: list[Record], expected: str | None, linked: str | None) -> None:
        """Compare, while records arrive. Nothing to do where no one states a hash. WispError hash_mismatch.

        `expected`: by the load request. `linked`: the host's header X-Linked-ETag; None: do not ask the host.
        """
        origin = "the load request"
        if expected is None and linked is not None and not self.sha256:
            origin = host_of(self._url)
            expected = of_header(linked) or await stated_by_host(self._url)
        if expected is None or expected == self.sha256:
            return
        parts = sorted((record.offset, record.length) for record in plan)
        spans = to_js(memoryview(array("d", [number for part in parts for number in part])))
        try:
            found = self.sha256 or str(await js.wispShards.modelSha256(self._url, spans, self._abort.signal))
        except JsException:  # stopped: the browser could not store all of the file
            return
        finally:
            self.stop()
        if found != expected:
            raise mismatch(self._name, found, expected, origin)
        self.sha256 = expected
        await js.wispShards.putVerified(self._url, expected)

    def stop(self) -> None:
        """Give up."""
        self._abort.abort()


def of_header(value: str) -> str | None:
    """The SHA-256 in a Hub's X-Linked-ETag header; None where it has none."""
    found = re.fullmatch(rf'(?:W/)?"?({_HEX})"?', value.strip())
    return found[1].lower() if found else None


async def stated_by_host(url: str) -> str | None:
    """The SHA-256 that a file's host states beside it: in an LFS pointer, or in a file of the same name and .sha256.

    A Hub has the pointer of /resolve/REVISION/FILE at /raw/REVISION/FILE.
    """
    parts = parts_of(url)
    if parts.scheme not in ("http", "https"):
        return None
    beside = [(urlunsplit(parts._replace(path=f"{parts.path}.sha256")), _SUMS)]
    if "/resolve/" in parts.path:
        beside.insert(0, (urlunsplit(parts._replace(path=parts.path.replace("/resolve/", "/raw/", 1))), _POINTER))
    for address, pattern in beside:
        try:
            text: Any = await js.wispShards.beginningOf(address, MOST)
        except JsException:
            continue
        if text is not None and (found := pattern.match(str(text))):
            return found[1].lower()
    return None


def mismatch(name: str, found: str, expected: str, origin: str) -> WispError:
    """The error for a file that is not the expected one. `origin`: who states the expected SHA-256."""
    return WispError(
        f"{name} is not the file that was expected: its SHA-256 is {found}, and {origin} states {expected}. It was "
        "removed from this browser's storage. Check the address and the hash, then load it again.",
        "hash_mismatch",
        SERVER_ERROR,
    )
