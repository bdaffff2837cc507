"""The machine that runs the CPU engine's module: a worker in a browser (compute.js). Commands run in their order."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from py_engine.errors import SERVER_ERROR, WispError

IN_BROWSER = sys.platform == "emscripten"
MAX_BYTES = 65535 << 16  # of a 32-bit module's memory
MAX_BYTES_64 = 1 << 34  # of a 64-bit module's: browsers allow so many, and calls have addresses in words
HEADROOM = 512 << 20  # a plan that leaves less of a 32-bit module's memory gets a 64-bit one: caches grow


class Copy(NamedTuple):
    """Bytes of a record that stay as they are."""

    address: int
    source: int  # byte in the record
    size: int


class Pack(NamedTuple):
    """Rows of a matrix in a record. compute_worker.js reads the fields in this order."""

    type: int  # GGUF's number
    source: int  # byte in the record
    address: int  # of the matrix
    row0: int
    rows: int
    cols: int
    row_bytes: int
    grid: int  # address of the type's grid, if it has one


class Region(NamedTuple):
    """Memory to read: rows of `size` bytes each, `stride` bytes apart."""

    address: int
    size: int
    rows: int = 1
    stride: int = 0


class Read(NamedTuple):
    """What was read, and the milliseconds of the lists that have run since the last read."""

    data: Any  # a JavaScript ArrayBuffer, or bytes
    ms: float


class Device(Protocol):
    """What the runner needs of the machine."""

    numpy: bool  # whether floats are numpy arrays
    base: int  # first free address
    threads: int  # at most
    limit: int  # bytes of memory that the module can have

    @property
    def lost(self) -> str | None:
        """Why the machine has ended; None while it works."""

    def start(self, threads: int, stacks: int, stack_bytes: int, scratch: int, scratch_bytes: int) -> None:
        """Give the threads their memory and start them."""

    async def grow(self, end: int) -> None:
        """Make memory up to this address usable. WispError out_of_memory."""

    def write(self, data: Any, parts: Iterable[Copy]) -> None:
        """Write parts of bytes, or of a JavaScript ArrayBuffer or typed array."""

    def copy(self, parts: Iterable[tuple[int, int, int]]) -> None:
        """Copy memory: (from, to, bytes) of each part."""

    async def load(self, data: Any, copies: Sequence[Copy], packs: Sequence[Pack], staging: int, size: int) -> None:
        """Take weights out of a record, a JavaScript ArrayBuffer. `staging`: `size` free bytes."""

    def run(self, lists: Sequence[tuple[int, int]], times: int = 1) -> None:
        """Run lists: the address of its calls' addresses, and their number."""

    def read(self, regions: Iterable[Region]) -> Awaitable[Read]:
        """Read memory, end to end. The awaitable is under way at once."""

    def floats(self, region: Region) -> Awaitable[Any]:
        """Read float32: a JavaScript Float32Array, or a numpy array."""

    def close(self) -> None:
        """End the machine, and free its memory."""


class BrowserDevice:
    """A worker, and the memory of its module."""

    numpy = False

    def __init__(self, compute: Any, limit: int = MAX_BYTES) -> None:
        self._compute, self.limit = compute, limit
        self.base, self.threads = int(compute.base), int(compute.threads)

    @classmethod
    def max_bytes(cls) -> int:
        """Bytes of memory that a plan may have in this browser; outside of one, those of a 32-bit module."""
        if not IN_BROWSER:
            return MAX_BYTES
        import js

        return MAX_BYTES_64 if js.wispCompute.memory64 else MAX_BYTES

    @classmethod
    async def open(cls, size: int = 0) -> BrowserDevice:
        """Start a worker for a plan of `size` bytes. WispError device_lost if it does not start."""
        import js
        from pyodide.ffi import JsException

        limit = module_bytes(size, cls.max_bytes())
        try:
            return cls(await js.wispCompute.open(js.wispAssets.cpu, limit > MAX_BYTES), limit)
        except JsException as error:
            raise device_lost(str(error)) from None

    @property
    def lost(self) -> str | None:
        """Why the machine has ended."""
        reason = self._compute.lost
        return str(reason) if reason else None

    def start(self, threads: int, stacks: int, stack_bytes: int, scratch: int, scratch_bytes: int) -> None:
        """Give the threads their memory and start them."""
        import js

        names = ("threads", "stacks", "stackBytes", "scratch", "scratchBytes")
        values = (threads, stacks, stack_bytes, scratch, scratch_bytes)
        self._compute.start(js.Object.fromEntries(_js(list(zip(names, values, strict=True)))))

    async def grow(self, end: int) -> None:
        """Make memory up to this address usable."""
        from pyodide.ffi import JsException

        try:
            await self._compute.grow(end)
        except JsException:
            raise (device_lost(self.lost) if self.lost else out_of_memory(end)) from None

    def write(self, data: Any, parts: Iterable[Copy]) -> None:
        """Write parts of bytes."""
        self._compute.write(_js(data), _numbers(parts))

    def copy(self, parts: Iterable[tuple[int, int, int]]) -> None:
        """Copy memory."""
        self._compute.copy(_numbers(parts))

    async def load(self, data: Any, copies: Sequence[Copy], packs: Sequence[Pack], staging: int, size: int) -> None:
        """Take weights out of a record."""
        await self._awaited(self._compute.load(data, _numbers(copies), _numbers(packs), staging, size))

    def run(self, lists: Sequence[tuple[int, int]], times: int = 1) -> None:
        """Run lists."""
        self._compute.run(_numbers(lists), times)

    def read(self, regions: Iterable[Region]) -> Awaitable[Read]:
        """Read memory."""
        return self._read(self._compute.read(_numbers(regions)))

    async def _read(self, found: Any) -> Read:
        result = await self._awaited(found)
        return Read(result.data, float(result.ms))

    def floats(self, region: Region) -> Awaitable[Any]:
        """Read float32."""
        return self._awaited(self._compute.floats(_numbers([region])))

    async def _awaited(self, work: Awaitable[Any]) -> Any:
        from pyodide.ffi import JsException

        try:
            return await work
        except JsException as error:
            raise device_lost(self.lost or str(error)) from None

    def close(self) -> None:
        """End the worker."""
        self._compute.close()


def module_bytes(size: int, most: int) -> int:
    """Bytes of memory that the module for a plan of `size` bytes can have. `most`: of all that the browser runs.

    A 64-bit module is slower: browsers check the bounds of every access, which 32 bits cannot exceed.
    """
    return most if size > MAX_BYTES - HEADROOM else MAX_BYTES


def device_lost(reason: str | None) -> WispError:
    """The error of every call after the machine has ended."""
    return WispError(f"The CPU engine's worker has ended: {reason}.", "device_lost", SERVER_ERROR)


def out_of_memory(size: int) -> WispError:
    """The error for a model that needs more memory than the machine has."""
    return WispError(
        f"This model needs {size / 2**30:.1f} GiB of memory on the CPU. Choose a smaller model, or a browser and "
        "machine with WebGPU.",
        "out_of_memory",
    )


def too_large(size: int, limit: int) -> WispError:
    """The error for a model that needs more memory than the browser's WebAssembly can have."""
    larger = "64-bit WebAssembly (Chrome and Edge from 133 on, Firefox from 134 on) or " if limit <= MAX_BYTES else ""
    return WispError(
        f"This model needs {size / 2**30:.1f} GiB of memory on the CPU; this browser gives at most "
        f"{limit / 2**30:.1f} GiB. Choose a smaller model, or a browser with {larger}WebGPU.",
        "model_too_large",
    )


def _js(value: Any) -> Any:
    from pyodide.ffi import to_js

    return to_js(value)


def _numbers(rows: Iterable[Iterable[int]]) -> Any:
    """A Float64Array of numbers, row by row."""
    return _js(array("d", (number for row in rows for number in row)))
