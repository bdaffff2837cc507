"""The pages of the KV caches in the CPU engine's memory: growing their number, copying, storing and restoring them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from py_engine.cpu.device import Copy, Device, Region
from py_engine.cpu.memory import Memory
from py_engine.plan.plan import Plan


class CachePages:
    """The pages of all caches of a plan. A page is its group and its number there."""

    def __init__(self, plan: Plan, device: Device, memory: Memory) -> None:
        self._plan, self._device, self._memory = plan, device, memory

    async def reserve(self, pages: Sequence[int]) -> None:
        """Runner.reserve_pages()."""
        grown = {
            b.name: b
            for group, count in zip(self._plan.page_groups, pages, strict=True)
            if count > group.pages
            for b in self._plan.with_pages(group, count)
        }
        await self._device.grow(self._memory.end_with(grown.values()))  # may fail, with nothing changed
        self._device.copy(self._memory.move(grown.values()))
        for group, count in zip(self._plan.page_groups, pages, strict=True):
            self._plan.set_pages(group, count)

    def _stored(self, group: int, page: int) -> list[tuple[int, int]]:
        of = self._plan.page_groups[group]
        return self._memory.page_regions(of, page, of.stored)

    def copy(self, group: int, source: int, to: int) -> None:
        """Runner.copy_page()."""
        of = self._plan.page_groups[group]
        both = zip(*(self._memory.page_regions(of, page, of.caches) for page in (source, to)), strict=True)
        self._device.copy([(old, new, size) for (old, size), (new, _) in both])

    async def read(self, pages: Sequence[tuple[int, int]]) -> Any:
        """Runner.read_pages()."""
        return (await self._device.read(Region(*r) for page in pages for r in self._stored(*page))).data

    def write(self, pages: Sequence[tuple[int, int, int]], data: Any) -> None:
        """Runner.write_pages()."""
        parts = []
        for group, page, first in pages:
            at = first
            for address, size in self._stored(group, page):
                parts.append(Copy(address, at, size))
                at += size
        self._device.write(data, parts)
