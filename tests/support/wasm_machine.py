"""The CPU engine's module in wasmtime: a Device (py_engine/cpu/device.py) that runs commands at once."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Awaitable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import wasmtime
from wasmtime._extern import ffi

from py_engine.cpu.device import Copy, Pack, Read, Region
from tools import python_zip, wasm

INITIAL_PAGES = 32


class _Memory(wasmtime.SharedMemory):
    """A shared memory that can be imported: wasmtime 50.0.1 passes a pointer to the pointer."""

    def _as_extern(self) -> Any:
        union = ffi.wasmtime_extern_union(sharedmemory=self.ptr())
        return ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, union)


@cache
def _engine(is_64: bool) -> wasmtime.Engine:
    config = wasmtime.Config()
    config.wasm_threads = config.wasm_simd = config.wasm_relaxed_simd = True
    config.shared_memory = config.wasm_memory64 = True
    config.cache = True
    if is_64:
        config.memory_reservation = wasm.MAX_PAGES_64 << 16  # shared memory grows into what is reserved
    return wasmtime.Engine(config)


@cache
def _compiled(variant: str) -> wasmtime.Module:
    return wasmtime.Module(_engine(_is_64(variant)), wasm.modules(python_zip.pack(python_zip.sources()))[variant])


def _is_64(variant: str) -> bool:
    return variant.endswith("64")


class Machine:
    """One instance of a module."""

    numpy = True
    lost: str | None = None

    def __init__(self, variant: str = "pairs", threads: int = 1, skipped: int = 0) -> None:
        """`skipped`: bytes at the beginning that nobody uses. Pages that nobody touches take no memory."""
        self.threads, self._variant, self._ms = threads, variant, 0.0
        is_64 = _is_64(variant)
        pages = wasm.MAX_PAGES_64 if is_64 else wasm.MAX_PAGES
        self.limit = pages << 16
        limits = wasmtime.Limits(INITIAL_PAGES, pages)
        self._memory = _Memory(_engine(is_64), wasmtime.MemoryType(limits, is_64=is_64, shared=True))
        self._store, self._exports = self._instance()
        self.base = int(self._exports["__heap_base"].value(self._store)) + skipped
        self._map()

    def _map(self) -> None:
        at, size = ctypes.addressof(self._memory.data_ptr().contents), self._memory.data_len()
        self.bytes = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(at))

    def _instance(self) -> tuple[wasmtime.Store, Any]:
        store = wasmtime.Store(_engine(_is_64(self._variant)))
        return store, wasmtime.Instance(store, _compiled(self._variant), [self._memory]).exports(store)

    def start(self, threads: int, stacks: int, stack_bytes: int, scratch: int, scratch_bytes: int) -> None:
        """Give the threads their memory and start them."""
        self._exports["init"](self._store, threads, scratch, scratch_bytes)
        self._exports["__stack_pointer"].set_value(self._store, stacks + stack_bytes)
        for thread in range(1, threads):
            store, exports = self._instance()
            exports["__stack_pointer"].set_value(store, stacks + (thread + 1) * stack_bytes)
            threading.Thread(target=_work, args=(store, exports, thread), daemon=True).start()

    async def grow(self, end: int) -> None:
        """Make memory up to this address usable."""
        missing = -(-(end - len(self.bytes)) // (1 << 16))
        if missing > 0:
            self._memory.grow(missing)
            self._map()

    def write(self, data: Any, parts: Iterable[Copy]) -> None:
        """Write parts of bytes."""
        if isinstance(data, np.ndarray) and data.dtype != np.int32:
            data = np.ascontiguousarray(data, np.float32)  # embeddings
        raw = np.frombuffer(data.to_bytes() if hasattr(data, "to_bytes") else data, np.uint8)
        for address, source, size in parts:
            self.bytes[address : address + size] = raw[source : source + size]

    def copy(self, parts: Iterable[tuple[int, int, int]]) -> None:
        """Copy memory."""
        for source, to, size in parts:
            self.bytes[to : to + size] = self.bytes[source : source + size]

    async def load(self, data: Any, copies: Sequence[Copy], packs: Sequence[Pack], staging: int, size: int) -> None:
        """Take weights out of a record."""
        data = data.to_bytes() if hasattr(data, "to_bytes") else data
        self.write(data, copies)
        for type, source, address, row0, rows, cols, row_bytes, grid in packs:
            step = max(1, size // row_bytes)
            for done in range(0, rows, step):
                count = min(step, rows - done)
                self.write(data, [Copy(staging, source + done * row_bytes, count * row_bytes)])
                self._exports["pack"](self._store, int(type), staging, address, row0 + done, count, cols, grid)

    def run(self, lists: Sequence[tuple[int, int]], times: int = 1) -> None:
        """Run lists."""
        started = time.perf_counter()
        for _ in range(times):
            for calls, count in lists:
                self._exports["run"](self._store, calls, count)
        self._ms += 1000 * (time.perf_counter() - started)

    def read(self, regions: Iterable[Region]) -> Awaitable[Read]:
        """Read memory at once, as it is after the commands before."""
        return _done(self._read(list(regions)))

    def _read(self, regions: list[Region]) -> Read:
        rows = [r.address + i * r.stride for r in regions for i in range(r.rows)]
        sizes = [r.size for r in regions for _ in range(r.rows)]
        ms, self._ms = self._ms, 0.0
        parts = zip(rows, sizes, strict=True)
        return Read(b"".join(self.bytes[at : at + size].tobytes() for at, size in parts), ms)

    def floats(self, region: Region) -> Any:
        """Read float32 rows, at once."""
        return _done(np.frombuffer(self._read([region]).data, np.float32).reshape(region.rows, -1))

    def close(self) -> None:
        """Free the memory when nothing refers to it."""


def _work(store: wasmtime.Store, exports: Any, thread: int) -> None:
    """Take part in all lists, as compute_worker.js does."""
    try:
        exports["work"](store, thread)
    except wasmtime.Trap:
        exports["fail"](store)


async def _done(value: Any) -> Any:
    return value
