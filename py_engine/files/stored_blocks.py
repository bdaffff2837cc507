"""What a store of computed blocks does. prefixes.py has the one in the browser's storage."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol


class Put(Enum):
    """What became of a block that was to be stored."""

    STORED = auto()
    IN_USE = auto()  # another worker reads or writes it now: what is stored stays
    FULL = auto()  # storage is full, or there is none


@dataclass(frozen=True)
class StoredBlock:
    """A block of tokens whose keys and values are stored. Its key is kv_cache.Block's, in hex."""

    depth: int  # blocks before it
    prompted: int  # its first tokens that were computed as a prompt
    groups: int  # bit g: it has the page of page group g
    hash: str = ""  # of its bytes

    def has(self, group: int) -> bool:
        """Whether it has the page of a page group."""
        return bool(self.groups >> group & 1)

    def covers(self, other: StoredBlock) -> bool:
        """Whether it is of use wherever another one with the same key is."""
        return self.prompted >= other.prompted and not other.groups & ~self.groups


class BlockStore(Protocol):
    """Blocks of one model, of one type of cache, computed by the same kernels."""

    async def blocks(self) -> dict[str, StoredBlock]:
        """Key -> entry of what is stored."""

    def changed(self) -> bool:
        """Whether another worker has changed what is stored since the last call."""

    def removals(self) -> int:
        """How often a user has removed blocks. What was computed before is not to be stored any more."""

    def read(self, blocks: Sequence[tuple[str, StoredBlock]]) -> AsyncGenerator[Any, None]:
        """Yield blocks' bytes as Runner.read_pages() returned them, which the next ones may overwrite.

        It ends where a block is missing or damaged.
        """

    async def put(self, key: str, block: StoredBlock, data: Any) -> Put:
        """Store a block's bytes."""

    async def touch(self, keys: list[str]) -> None:
        """Note that blocks were used now: the least recently used ones are removed first."""

    async def tidy(self) -> None:
        """Remove what exceeds the limit."""
