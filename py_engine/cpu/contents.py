"""What a plan has in the CPU engine's memory: weights, and pages of the caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from py_engine.cpu.cache_pages import CachePages
from py_engine.cpu.device import Copy, Device, Pack, device_lost, too_large
from py_engine.cpu.inputs import Inputs
from py_engine.cpu.lists import Lists
from py_engine.cpu.memory import STACK_BYTES, Memory
from py_engine.plan.placement import Placement
from py_engine.plan.plan import Plan
from py_engine.plan.quants import grid
from py_engine.runners import Turn


class WasmContents:
    """Writes and reads the memory of one plan. WasmRunner adds what computes."""

    def __init__(self, plan: Plan, device: Device, threads: int | None = None) -> None:
        self.plan, self._device, self.numpy = plan, device, device.numpy
        self.threads = min(threads or device.threads, device.threads)
        self._memory = Memory(plan, device.base, self.threads)
        self._lists, self._pages = Lists(device, self._memory), CachePages(plan, device, self._memory)
        self._inputs = Inputs(plan, device, self._memory)

    @property
    def lost(self) -> str | None:
        return self._device.lost

    async def open(self) -> None:
        """Take the memory of the plan. WispError out_of_memory or model_too_large."""
        memory = self._memory
        if memory.end > self._device.limit:
            raise too_large(memory.end, self._device.limit)
        await self._device.grow(memory.end)
        self._device.start(self.threads, memory.stacks, STACK_BYTES, memory.scratch, memory.scratch_bytes)
        for name, data in self.plan.constants.items():
            self._inputs.write(name, data)
        for type, address in memory.grids.items():
            data = grid(type)
            self._device.write(data, [Copy(address, 0, len(data))])
        self._inputs.first_tables()

    async def load(self, data: Any, placements: Sequence[Placement]) -> None:
        copies, packs = [], []
        for p in placements:
            address = self._memory.of(p.weight)
            if self._memory.is_matrix(p.weight):
                grid_at = self._memory.grids.get(p.weight.type, 0)
                packs.append(Pack(p.weight.type, p.src, address, p.row0, p.rows, p.weight.cols, p.row_bytes, grid_at))
            else:  # floats; the first row of a vector counts bytes
                at = p.row0 if p.weight.rows == 1 else p.row0 * p.row_bytes
                copies.append(Copy(address + at, p.src, p.rows * p.row_bytes))
        await self._device.load(data, copies, packs, self._memory.staging, self._memory.staging_bytes)

    async def ready(self) -> None:
        await self._device.read([])

    async def reserve_pages(self, pages: Sequence[int], turn: Turn) -> None:
        async with turn():
            self._check()
            await self._pages.reserve(pages)
            self._lists.forget()

    def set_pages(self, group: int, seq: int, first: int, pages: Sequence[int]) -> None:
        self._inputs.pages(group, seq, first, pages)

    def copy_page(self, group: int, source: int, to: int) -> None:
        self._check()
        self._pages.copy(group, source, to)

    async def read_pages(self, pages: Sequence[tuple[int, int]]) -> Any:
        self._check()
        return await self._pages.read(pages)

    def write_pages(self, pages: Sequence[tuple[int, int, int]], data: Any) -> None:
        self._check()
        self._pages.write(pages, data)

    def set_tokens(self, seq: int, position: int, ids: Sequence[int]) -> None:
        self._inputs.tokens(seq, position, ids)

    def close(self) -> None:
        self._device.close()

    def _check(self) -> None:
        if self._device.lost:
            raise device_lost(self._device.lost)
