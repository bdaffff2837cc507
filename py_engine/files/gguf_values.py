"""Reads the values of a GGUF header: numbers, strings and arrays, within limits of bytes and memory.

A string is a u64 length and UTF-8 bytes. An array is an element type u32, a u64 count and the elements.
"""

import struct
import sys
from array import array
from typing import Any, NoReturn

from gguf.constants import GGUFValueType

from py_engine.errors import WispError

MAX_HEADER = 48 * 1024 * 1024  # bytes; known headers are under 30 MB, and a larger one must not fill the WASM heap
MAX_MEMORY = 112 * 1024 * 1024  # bytes of the metadata and tensor table as Python objects
MAX_ARRAY_DEPTH = 4
MAX_ARRAYS = 1 << 16  # within other arrays; each takes long to read, and no known model has any
MAX_STRING = 16 * 1024 * 1024  # bytes of one text
STRINGS_AT_ONCE = 1 << 14  # strings read between two looks at the memory

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_ARRAY_BYTES, _NUMBER_BYTES = 72, 40  # of the Python objects, roughly

# GGUF value type -> array/struct type code of the numbers
_NUMBERS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "B",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}


class NeedMoreBytes(Exception):
    """The prefix ends inside the header. `needed`: the prefix length, in bytes, to try next."""

    def __init__(self, needed: int) -> None:
        super().__init__(f"The header continues: {needed} bytes are needed.")
        self.needed = needed


def corrupt(why: str) -> NoReturn:
    """Raise WispError corrupt_header."""
    raise WispError(f"The header of the GGUF file is damaged: {why}. Download the model again.", "corrupt_header")


class ValueReader:
    """Reads values one after the other from the first bytes of a file of `file_size` bytes (None: unknown)."""

    def __init__(self, file_size: int | None) -> None:
        self.file_size = file_size
        self.buf = b""
        self.pos = 0
        self.arrays = 0  # within other arrays, so far
        self.memory = 0  # bytes of the objects made so far, roughly

    def value_type(self, key: str) -> GGUFValueType:
        """Read the type of a key's value."""
        number = self.u32(f"the type of {key!r}")
        try:
            return GGUFValueType(number)
        except ValueError:
            corrupt(f"metadata key {key!r} has the unknown value type {number}")

    def value(self, kind: GGUFValueType, key: str, depth: int = 0) -> Any:
        """Read a key's value. Arrays are lists."""
        if kind == GGUFValueType.STRING:
            text = self._bytes(f"the value of {key!r}", MAX_STRING).decode("utf-8", "replace")
            self.allocate(sys.getsizeof(text))
            return text
        if kind == GGUFValueType.ARRAY:
            return self._array(key, depth)
        return self._numbers(kind, 1, key)[0]

    def _array(self, key: str, depth: int) -> list[Any]:
        if depth >= MAX_ARRAY_DEPTH:
            corrupt(f"the arrays of {key!r} are nested too deep")
        kind = self.value_type(key)
        count = self.u64(f"the count of {key!r}")
        if kind == GGUFValueType.STRING:
            return self._strings(count, key)
        if kind == GGUFValueType.ARRAY:
            self.require(count * 12, f"the arrays of {key!r}")
            self.allocate(count * _ARRAY_BYTES)
            self.arrays += count
            if self.arrays > MAX_ARRAYS:
                corrupt(f"its metadata has more than {MAX_ARRAYS} arrays within arrays")
            return [self._array(key, depth + 1) for _ in range(count)]
        return self._numbers(kind, count, key)

    def _numbers(self, kind: GGUFValueType, count: int, key: str) -> list[Any]:
        numbers = array(_NUMBERS[kind])
        start, length = self.pos, count * numbers.itemsize
        self.require(length, f"the values of {key!r}")
        self.allocate(count * (8 if numbers.itemsize == 1 else _NUMBER_BYTES))
        self.pos = start + length
        numbers.frombytes(self.buf[start : self.pos])
        return list(map(bool, numbers)) if kind == GGUFValueType.BOOL else numbers.tolist()

    def _strings(self, count: int, key: str) -> list[str]:
        """Read an array of strings. Hot loop: a vocabulary and its merges are 300,000 strings."""
        start = self.pos
        self.require(8 * count, f"the strings of {key!r}")
        buf, size, pos, length = self.buf, len(self.buf), start, 0
        unpack = _U64.unpack_from
        out: list[str] = []
        append = out.append
        try:
            while len(out) < count:
                done = len(out)
                for _ in range(min(STRINGS_AT_ONCE, count - done)):
                    (length,) = unpack(buf, pos)
                    pos += 8
                    end = pos + length
                    if end > size:
                        break
                    append(buf[pos:end].decode("utf-8", "replace"))
                    pos = end
                self.allocate(sum(map(sys.getsizeof, out[done:])) + 8 * len(out[done:]))
                if len(out) < min(done + STRINGS_AT_ONCE, count):
                    break
        except struct.error:
            length = 8
        if len(out) < count:
            self.pos = pos
            estimate = start + (pos - start) * count // max(len(out), 1)
            self.require(length, f"string {len(out)} of {key!r}", estimate * 17 // 16)
        self.pos = pos
        return out

    def name(self, what: str) -> str:
        """Read the name of a key or a tensor."""
        start = self.pos
        try:
            return self._bytes(what, 65535).decode("utf-8")
        except UnicodeDecodeError:
            corrupt(f"{what} at byte {start} is not UTF-8")

    def _bytes(self, what: str, limit: int = MAX_HEADER) -> bytes:
        length = self.u64(what)
        if length > limit:
            corrupt(f"{what} is {length} bytes long")
        self.require(length, what)
        start = self.pos
        self.pos = start + length
        return self.buf[start : self.pos]

    def u32(self, what: str) -> int:
        """Read a number of four bytes."""
        self.require(4, what)
        (value,) = _U32.unpack_from(self.buf, self.pos)
        self.pos += 4
        return int(value)

    def u64(self, what: str) -> int:
        """Read a number of eight bytes."""
        self.require(8, what)
        (value,) = _U64.unpack_from(self.buf, self.pos)
        self.pos += 8
        return int(value)

    # -- bounds

    def require(self, length: int, what: str, hint: int = 0) -> None:
        """Check that the prefix has `length` more bytes; else raise. `hint`: a prefix length that may be enough."""
        end = self.pos + length
        if end <= len(self.buf):
            return
        if end > MAX_HEADER:
            corrupt(f"{what} would end at byte {end}")
        if self.file_size is not None and end > self.file_size:
            self.truncated(end, what)
        raise NeedMoreBytes(max(end, min(hint, MAX_HEADER)))

    def allocate(self, size: int) -> None:
        """Account for an object. A header of many small values takes far more memory than bytes."""
        self.memory += size
        if self.memory > MAX_MEMORY:
            corrupt(f"its metadata needs more than {MAX_MEMORY >> 20} MB of memory")

    def truncated(self, end: int, what: str) -> NoReturn:
        """Raise WispError truncated_file."""
        raise WispError(
            f"The file is truncated: {what} needs at least {end} bytes, and the file has {self.file_size}. "
            "Download the model again.",
            "truncated_file",
        )
