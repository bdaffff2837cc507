"""The machine that runs the CPU engine's module: a worker in a browser (compute.js). Commands run in their order."""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from py_engine.errors import SERVER_ERROR, WispError

MAX_BYTES = 65535 << 16  # of a module's memory


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

    def __init__(self, compute: Any) -> None:
        self._compute = compute
        self.base, self.threads = int(compute.base), int(compute.threads)

    @classmethod
    async def open(cls) -> BrowserDevice:
        """Start a worker. WispError device_lost if it does not start."""
        import js
        from pyodide.ffi import JsException

        try:
            return cls(await js.wispCompute.open(js.wispAssets.cpu))
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

        if end > MAX_BYTES:
            raise out_of_memory(end)
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


def device_lost(reason: str | None) -> WispError:
    """The error of every call after the machine has ended."""
    return WispError(f"The CPU engine's worker has ended: {reason}.", "device_lost", SERVER_ERROR)


def out_of_memory(size: int) -> WispError:
    """The error for a model that needs more memory than the browser gives."""
    limit = f"; a browser gives at most {MAX_BYTES / 2**30:.1f} GiB" if size > MAX_BYTES else ""
    return WispError(
        f"This model needs {size / 2**30:.1f} GiB of memory on the CPU{limit}. Choose a smaller model, or a browser "
        "and machine with WebGPU.",
        "model_too_large" if limit else "out_of_memory",
    )


def _js(value: Any) -> Any:
    from pyodide.ffi import to_js

    return to_js(value)


def _numbers(rows: Iterable[Iterable[int]]) -> Any:
    """A Float64Array of numbers, row by row."""
    return _js(array("d", (number for row in rows for number in row)))
