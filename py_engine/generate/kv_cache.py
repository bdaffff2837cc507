"""What the KV caches hold: pages of tokens after known tokens, of running and of finished requests.

A block is a page-sized stretch of positions: its tokens, what comes before them, and its page in every page group.
A block's key is a hash of all tokens up to its end, so equal prefixes have equal keys, whoever computed them. What
adapters compute differs: the keys of a sequence with adapters begin with a root of its own (generation.py). A page's
number would not do as a key: a page before a window is freed, and what follows it is still of use.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from py_engine.generate.page_pool import PagePool
from py_engine.generate.state_slots import StateSlots
from py_engine.plan.pages import PageGroup, pages_for

UNLIMITED = 1 << 30  # blocks of a model without keys and values
START = b""  # the key before the first position of a sequence without adapters


@dataclass(eq=False)
class Block:
    """A page's positions in every page group."""

    pages: list[int | None]  # by group; None: freed, before a window or evicted
    tokens: list[int] = field(default_factory=list)  # computed so far, in order
    prompted: int = 0  # the first of them were computed as a prompt, in batches
    before: Block | None = None
    before_key: bytes = START
    key: bytes = START  # once it is full
    drafted: int = 0  # the first positions that the draft model has computed, too
    users: int = 0  # sequences whose block table it is in
    private: bool = False  # it must not outlive the page

    def common(self, ids: list[int], exact: bool) -> int:
        """How many of its first tokens are those of `ids`. `exact`: of the prompted ones."""
        own = self.tokens[: self.prompted] if exact else self.tokens
        if own[:1] != ids[:1]:  # quick: most of the blocks that follow one key differ here
            return 0
        if own == ids[: len(own)]:
            return len(own)
        return next(n for n, (a, b) in enumerate(zip(own, [*ids, None], strict=False)) if a != b)


class KvCache:
    """The pages of every group, and the blocks in them that a request may reuse."""

    def __init__(self, groups: Sequence[PageGroup], page: int, *, shares: bool = True) -> None:
        """`shares`: whether equal prefixes have equal keys and values, whatever follows them."""
        self.page = page  # positions of a page
        self._shares = shares
        paged = [group for group in groups if not group.states]
        self.windows = [group.window for group in paged]
        self.pools: list[PagePool[Block]] = [PagePool(group.pages) for group in paged]
        self.most = [group.most for group in paged]  # pages that one sequence has
        self.states = next((StateSlots(group) for group in groups if group.states), None)
        self.waiting: set[int] = set()  # ages of the sequences that wait for pages, or have not taken them yet
        self.freed: Callable[[], None] = lambda: None  # called when the store of prefixes has released pages
        self.taken: Callable[[], None] = lambda: None  # called when a sequence has taken pages
        self._after: dict[bytes, list[Block]] = {}  # the blocks that follow a key
        self._roots: dict[bytes, None] = {}  # the keys before first positions

    def find(self, ids: list[int], exact: bool = False, root: bytes = START) -> tuple[list[Block], int]:
        """The blocks that hold the longest known prefix of `ids`, and its length. The last one may hold more.

        `exact`: of positions that were computed as a prompt. `root`: the key before the first position.
        """
        found: list[Block] = []
        n, key = 0, root
        while self._shares and n < len(ids):
            part = ids[n : n + self.page]
            candidates = self._after.get(key, ())
            best, same = None, 0
            for block in candidates:
                common = block.common(part, exact)
                if common > same or (best and common == same and _pages(block) > _pages(best)):
                    best, same = block, common
            if best is None:
                break
            found.append(best)
            n += same
            if same < self.page:
                break
            key = best.key
        return self.usable(found, n)

    def usable(self, blocks: list[Block], n: int) -> tuple[list[Block], int]:
        """The blocks of the longest prefix of at most `n` tokens whose last window has pages; and its length."""
        runs = [runs_of(block.pages[group] is not None for block in blocks) for group in range(len(self.windows))]
        complete = False
        while not complete:
            complete = True
            for group, run in enumerate(runs):
                end = pages_for(n, self.page)
                if end - run[end] > self.first_block(group, n):
                    n, complete = (end - run[end] - 1) * self.page, False
        return blocks[: pages_for(n, self.page)], n

    def first_block(self, group: int, n: int) -> int:
        """The first block that tokens from position `n` on read."""
        window = self.windows[group]
        return max(0, n - window + 1) // self.page if window else 0

    def take(self, group: int) -> int:
        """A page for new tokens; evicts one if none is free. KeyError if all are held."""
        pool = self.pools[group]
        if not pool.free:
            block = pool.evict()
            block.pages[group] = None
            if not self.windows[group]:
                self._forget(block)
            self._prune(block)
        return pool.take()

    def older_waits(self, age: int) -> bool:
        """Whether a sequence that is older than one of this age waits for pages, or for a slot of states."""
        return bool(self.waiting) and min(self.waiting) < age

    def available(self, age: int = 0) -> int:
        """Pages of every group that a sequence of this age may take: none while an older one waits."""
        if self.older_waits(age):
            return 0
        return min((pool.available for pool in self.pools), default=UNLIMITED)

    def pages_to_read(self, n: int, end: int) -> list[int]:
        """By group: the pages that positions `n` to `end` read or write, at most as many as one sequence ever has."""
        last = pages_for(end, self.page)
        return [min(last - self.first_block(group, n), most) for group, most in enumerate(self.most)]

    def new_block(self, private: bool = False) -> Block:
        """A block without tokens, with a page in every group, in one sequence's table. KeyError if a group has none."""
        return Block([self.take(group) for group in range(len(self.pools))], users=1, private=private)

    def fill(self, block: Block, before: Block | None, ids: list[int], generated: bool, root: bytes = START) -> int:
        """Record computed tokens in the block that follows `before`, as many as fit; return how many."""
        part = ids[: self.page - len(block.tokens)]
        if not block.tokens:
            block.before, block.before_key = before, before.key if before else root
            if before is None:
                self._roots[root] = None
            self._after.setdefault(block.before_key, []).append(block)
        if not generated and block.prompted == len(block.tokens):
            block.prompted += len(part)
        block.tokens += part
        if len(block.tokens) == self.page:
            block.key = key_after(block.before_key, block.tokens)
        return len(part)

    def full_blocks(self) -> Iterator[tuple[int, Block]]:
        """(blocks before it, block) of every full block that may be stored: with pages, from the first position on."""
        following = [(0, root) for root in self._roots]
        while following:
            depth, key = following.pop()
            keys: dict[bytes, None] = {}  # each once: equal blocks of several requests share what follows them
            for block in self._after.get(key, ()):
                readable = all(
                    page is not None or window for page, window in zip(block.pages, self.windows, strict=True)
                )
                if block.key and readable and not block.private:
                    yield depth, block
                    keys[block.key] = None
            following += [(depth + 1, key) for key in keys]

    def truncate(self, block: Block, n: int) -> None:
        """Keep the first `n` tokens of a block, fewer than a page."""
        del block.tokens[n:]
        block.prompted, block.key = min(block.prompted, n), START

    def hold(self, group: int, block: Block) -> None:
        """Hold a block's page."""
        page = block.pages[group]
        assert page is not None
        self.pools[group].hold(page)

    def release(self, group: int, block: Block) -> None:
        """Stop holding a block's page."""
        page = block.pages[group]
        assert page is not None
        self.pools[group].release(page, block if block.tokens else None)

    def hold_all(self, block: Block) -> None:
        """Hold a block's page in every group."""
        for group in range(len(self.pools)):
            self.hold(group, block)

    def release_all(self, block: Block) -> None:
        """Undo hold_all()."""
        for group in range(len(self.pools)):
            self.release(group, block)

    def leave(self, block: Block) -> None:
        """Remove a block from a sequence's table; the sequence no longer holds its pages."""
        block.users -= 1
        self._prune(block)

    def clear(self) -> None:
        """Free everything that no sequence holds."""
        for group, pool in enumerate(self.pools):
            while pool.available > pool.free:
                block = pool.evict()
                block.pages[group] = None
                self._prune(block)
        if self.states is not None:
            self.states.clear()

    def _forget(self, block: Block) -> None:
        """Free all pages of a block that no sequence holds."""
        for group, page in enumerate(block.pages):
            if page is not None:
                self.pools[group].drop(page)
                block.pages[group] = None

    def _prune(self, block: Block) -> None:
        """Drop a block without pages, users and known continuations; then likewise those before it."""
        waiting = [block]
        while waiting:
            block = waiting.pop()
            if block.users or _pages(block) or (block.key and self._after.get(block.key)):
                continue
            following = self._after.get(block.before_key, [])
            if block in following:
                following.remove(block)
            if following:
                continue
            self._after.pop(block.before_key, None)
            if block.before is None:
                self._roots.pop(block.before_key, None)
            else:
                equal = self._after.get(block.before.before_key, [])
                waiting += [before for before in equal if before.key == block.before_key]


def key_after(before: bytes, tokens: list[int]) -> bytes:
    """The key of a full block with these tokens, after a block with the key `before`."""
    return hashlib.blake2b(before + array("I", tokens).tobytes(), digest_size=16).digest()


def runs_of(present: Iterable[bool]) -> list[int]:
    """How many of the blocks just before each end (0, 1, ... all of them) are present without a gap."""
    runs = [0]
    for there in present:
        runs.append(runs[-1] + 1 if there else 0)
    return runs


def _pages(block: Block) -> int:
    return sum(page is not None for page in block.pages)
