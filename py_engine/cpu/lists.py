"""A plan's lists as calls in the module's memory, lowered when they first run."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate

from py_engine.cpu.call_layouts import WORD
from py_engine.cpu.device import Copy, Device
from py_engine.cpu.lowering import lower
from py_engine.cpu.memory import Memory


class Lists:
    """The lists of one plan on a device."""

    def __init__(self, device: Device, memory: Memory) -> None:
        self._device, self._memory = device, memory
        self._known: dict[tuple[str, bool], tuple[int, list[int]]] = {}  # the address, and the calls of each op
        self._next = memory.calls

    def forget(self) -> None:
        """Lower all lists again when they next run: buffers have moved."""
        self._known.clear()
        self._next = self._memory.calls  # commands run in order: what was submitted still has its calls

    def of(self, names: Iterable[str], *, exact: bool = False) -> list[tuple[int, int]]:
        """The addresses of the lists, and how many calls each has. `exact`: products with floats (lowering.py)."""
        found = [self._known.get((name, exact)) or self._lower(name, exact) for name in names]
        return [(start, sum(counts)) for start, counts in found]

    def ops_of(self, name: str) -> list[tuple[int, int]]:
        """The address of each op of a list, and how many calls it has."""
        start, counts = self._known.get((name, False)) or self._lower(name, False)
        return [(start + 4 * before, count) for before, count in zip(accumulate([0, *counts]), counts, strict=False)]

    def _lower(self, name: str, exact: bool) -> tuple[int, list[int]]:
        by_op, start = lower(self._memory.plan.lists[name], self._memory, exact), self._next
        calls = [call for of_op in by_op for call in of_op]
        addresses, at = array("I"), start + 4 * len(calls)
        for call in calls:
            addresses.append(at // WORD)
            at += len(call)
        data = addresses.tobytes() + b"".join(calls)
        self._device.write(data, [Copy(start, 0, len(data))])
        self._next = at
        self._known[name, exact] = start, [len(of_op) for of_op in by_op]
        return self._known[name, exact]
