"""The slots of recurrent models: the running sequences' states, and snapshots that later prompts go on from.

A state is of one position only: unlike keys and values, it cannot serve an earlier one. So the state at the end of a
prompt is copied to a slot of its own. The least recently used snapshot is evicted where a slot is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.generate.page_pool import PagePool
from py_engine.plan.pages import PageGroup


@dataclass(frozen=True)
class Snapshot:
    """States after `end` positions, in a slot that no sequence has (plan/states.py).

    `back`: the slot also has those after `end` - 1 positions. `tokens`: those that led to it, at least `end` - 1.
    `exact`: all were computed as a prompt, in batches. `root`: as a sequence's (sequence_cache.py).
    """

    slot: int
    tokens: list[int]
    end: int
    exact: bool
    root: bytes = b""
    back: bool = True

    def serves(self, ids: list[int], most: int) -> int:
        """The most positions, up to `most`, after which a sequence of `ids` can go on from here; 0: none."""
        for end in (self.end, self.end - self.back):
            if 0 < end <= min(most, len(self.tokens)) and self.tokens[:end] == ids[:end]:
                return end
        return 0


class StateSlots:
    """The slots of one model."""

    def __init__(self, group: PageGroup) -> None:
        self.group, self.most = group.index, group.most  # of one sequence
        self.pool: PagePool[Snapshot] = PagePool(group.pages)
        self._snapshots: list[Snapshot] = []

    def find(self, ids: list[int], most: int, exact: bool, root: bytes = b"") -> tuple[Snapshot | None, int]:
        """The snapshot that serves the longest prefix of `ids`, of up to `most` positions; and its length."""
        best, length = None, 0
        for snapshot in self._snapshots:
            usable = snapshot.root == root and (snapshot.exact or not exact)
            end = snapshot.serves(ids, most) if usable else 0
            if end > length:
                best, length = snapshot, end
        return best, length

    def take(self) -> int | None:
        """A slot; evicts a snapshot if none is free. None: running sequences have all."""
        if not self.pool.available:
            return None
        if not self.pool.free:
            self._snapshots.remove(self.pool.evict())
        return self.pool.take()

    def release(self, slot: int) -> None:
        """Free a slot."""
        self.pool.release(slot, None)

    def add(self, snapshot: Snapshot) -> None:
        """Release a slot, and cache the state in it. An equal snapshot is freed."""
        for other in self._snapshots:
            if replace(other, slot=snapshot.slot) == snapshot:
                self._snapshots.remove(other)
                self.pool.drop(other.slot)
                break
        self.pool.release(snapshot.slot, snapshot)
        self._snapshots.append(snapshot)

    def use(self, snapshot: Snapshot) -> None:
        """Make a snapshot the one that is evicted last."""
        self.pool.hold(snapshot.slot)
        self.pool.release(snapshot.slot, snapshot)

    def clear(self) -> None:
        """Forget all snapshots."""
        while self.pool.available > self.pool.free:
            self._snapshots.remove(self.pool.evict())
