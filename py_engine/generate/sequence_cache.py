"""The part of the KV caches that one sequence uses: its block table, and which tokens it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from py_engine.generate.kv_cache import START, Block, KvCache
from py_engine.generate.state_slots import Snapshot
from py_engine.plan.pages import pages_for

MIN_EQUAL = 1 / 4  # of a page: less is computed again instead of copied


class PageDevice(Protocol):
    """What a device does with pages (runners.py)."""

    def set_pages(self, group: int, seq: int, first: int, pages: Sequence[int]) -> None:
        """Write entries of a sequence's block table, from entry `first` on."""

    def copy_page(self, group: int, source: int, to: int) -> None:
        """Copy a page in every cache of the group."""

    def set_tokens(self, seq: int, position: int, ids: list[int]) -> None:
        """Write tokens of a sequence that are not fed: penalties and drafts read them."""


class SequenceCache:
    """One sequence. `number`: of its block tables on the device. `age`: how many sequences came before it."""

    def __init__(self, cache: KvCache, device: PageDevice, number: int, age: int) -> None:
        self.number, self.age = number, age
        self.tokens: list[int] = []  # whose keys and values are computed
        self.preempted = False  # it is to release its pages: an older sequence needs them
        self.private = False  # what it computes must not outlive the page
        self.end = 0  # positions that its answer has at most: the caches may grow for them before they are needed
        self.root = START  # the key before its first position: other adapters have other roots
        self._cache, self._device = cache, device
        self._blocks: list[Block] = []
        self._first_held = [0] * len(cache.windows)  # by group: the first block whose page it holds
        self._slot: int | None = None  # of a recurrent model's states
        self._states_end: int | None = 0  # positions that its states have seen; None: unknown
        self._exact = True  # they have seen all of these positions as a prompt
        self._back = True  # the states after one position less are there, too
        self.checkpoint = 0  # where a prompt leaves what others have in common with it: worth a snapshot; 0: nowhere

    @property
    def capacity(self) -> int:
        """Positions that have pages."""
        return len(self._blocks) * self._cache.page

    @property
    def holds(self) -> bool:
        """Whether it has pages, or a slot of states."""
        return bool(self._blocks) or self._slot is not None

    def reuse(self, ids: list[int], exact: bool = False) -> int:
        """Hold the pages with the longest known prefix of `ids`, and no others; return its length.

        The last token of `ids` is never reused, because its logits are needed.
        `exact`: reuse only positions that were computed as a prompt. Tokens computed one at a time round a little
        differently, which can flip a choice between two nearly equal logits.
        """
        before = self.tokens
        if not (before and before == ids[:-1] and self._has_state(len(before))):
            self._find(ids, exact)
            first = len(before) if before == ids[: len(before)] else 0
            if first < len(self.tokens):
                self._device.set_tokens(self.number, first, self.tokens[first:])
        self._forget_drafted()
        return len(self.tokens)

    def known(self, ids: list[int], exact: bool = False) -> int:
        """About how many tokens reuse() would find. They are not held, so they may be evicted before."""
        _, n = self._cache.find(ids[:-1], exact, self.root)
        states = self._cache.states
        return n if states is None else states.find(ids, n, exact, self.root)[1]

    def _find(self, ids: list[int], exact: bool) -> None:
        """Hold the pages with the longest known prefix of `ids` without its last token.

        Of a recurrent model, only a prefix that a snapshot serves.
        """
        cache, states = self._cache, self._cache.states
        snapshot: Snapshot | None = None
        if states is not None:  # or a slot for this sequence might evict the snapshot that serves it
            snapshot, _ = states.find(ids, len(ids) - 1, exact, self.root)
            if snapshot is not None:
                states.use(snapshot)
        if not self._take_slot():
            self._switch([], 0)
            self.tokens = []
            return
        blocks, n = cache.find(ids[:-1], exact, self.root)
        known = n
        if states is not None and not cache.pools:
            snapshot, n = states.find(ids, len(ids) - 1, exact, self.root)
            if not self._restart(ids[:n]):
                snapshot, n = None, 0
        while states is None or cache.pools:  # each pass shortens the prefix, until all of it can be held
            if states is not None:
                snapshot, n = states.find(ids, n, exact, self.root)
            blocks, usable = cache.usable(blocks, n)
            if usable < n:
                n = usable
                continue
            part = n % cache.page
            if not part or self._may_extend(blocks[-1], part):
                self._switch(blocks, n)
                self.tokens = ids[:n]
                if part:
                    cache.truncate(blocks[-1], part)
                break
            if (snapshot or part >= MIN_EQUAL * cache.page) and self._copy(blocks, ids[:n]):
                break
            blocks, n = blocks[:-1], n - part
        if states is not None and self._slot is not None:
            self._states_end, self._exact, self._back = 0, True, True
            if snapshot is not None:
                self._device.copy_page(states.group, snapshot.slot, self._slot)
                self._states_end, self._exact, self._back = snapshot.end, snapshot.exact, snapshot.back
                states.use(snapshot)
            self.checkpoint = known if known - n >= cache.page else 0

    def _restart(self, ids: list[int]) -> bool:
        """Hold new blocks for `ids`. They have no pages: the model has no keys and values. False: not now."""
        self._switch([], 0)
        self.tokens = []
        if self.reserve(len(ids)) < len(ids):
            return False
        self.append(ids)
        return True

    def _may_extend(self, block: Block, part: int) -> bool:
        """Whether this sequence may write after the first `part` tokens of a block: no other one has it.

        A full block of a finished request stays as it is, because more may be cached after it.
        """
        mine = block in self._blocks
        return block.users == mine and (mine or not block.key)

    def _copy(self, blocks: list[Block], ids: list[int]) -> bool:
        """Hold all blocks but the last, and a copy of its first tokens, to the end of `ids`. False: no page is left."""
        last, cache = blocks[-1], self._cache
        first = cache.page * (len(blocks) - 1)
        cache.hold_all(last)  # or its copy might evict it
        self._switch(blocks[:-1], len(ids))
        self.tokens = ids[:first]
        copied = self.reserve(len(ids)) >= len(ids)
        if copied:
            for group, (source, to) in enumerate(zip(last.pages, self._blocks[-1].pages, strict=True)):
                assert source is not None
                assert to is not None
                self._device.copy_page(group, source, to)
            self._blocks[-1].drafted = last.drafted
            prompted = min(len(ids) - first, last.prompted)
            self.append(ids[first : first + prompted])
            self.append(ids[first + prompted :], generated=True)
        cache.release_all(last)
        return copied

    def reserve(self, end: int) -> int:
        """Take pages for the positions before `end`, as far as there are any. Return how many positions have pages.

        Frees the pages before windows. 0: the sequence is preempted, or has no slot for its states.
        """
        self._release_before_windows()
        if self.preempted or not self._take_slot():
            return 0
        cache, first = self._cache, len(self._blocks)
        count = min(pages_for(end, cache.page) - first, cache.available(self.age))
        if count > 0:
            self._blocks += [cache.new_block(self.private) for _ in range(count)]
            self._write_table([first] * len(self._first_held))
            cache.taken()
        return self.capacity

    def reach(self, position: int, end: int, ahead: int) -> int:
        """Up to where tokens may be sampled: `ahead` of `position`, or further, as pages allow; not past `end`.

        The last token's own keys and values are not computed, so it needs no page.
        """
        return min(end, self.reserve(min(position + ahead, end - 1)) + 1)

    def append(self, ids: list[int], generated: bool = False) -> None:
        """Record tokens whose keys and values are computed."""
        at, page = 0, self._cache.page
        while at < len(ids):
            i = len(self.tokens) // page
            before = self._blocks[i - 1] if i else None
            part = ids[at : at + page]
            count = self._cache.fill(self._blocks[i], before, part, generated, self.root)
            self.tokens += part[:count]
            at += count

    def release(self) -> None:
        """Hold nothing. What was computed stays cached until its pages are needed."""
        self._switch([], 0)
        self._release_slot()
        self.tokens, self.preempted = [], False

    def list_pages(self, number: int, at: int, first: int, end: int) -> None:
        """List its pages from `first` to `end` in sequence `number`'s block tables, from entry `at` on.

        Without those before windows, which it does not hold.
        """
        for group, held in enumerate(self._first_held):
            begin = max(first, held)
            pages = [block.pages[group] for block in self._blocks[begin:end]]
            if pages:
                self._device.set_pages(group, number, at + begin - first, [page for page in pages if page is not None])

    def pages_in_common(self, other: SequenceCache) -> int:
        """How many of the first pages with tokens are full, and the same ones as another sequence's."""
        most = min(len(self.tokens), len(other.tokens)) // self._cache.page
        pairs = zip(self._blocks[:most], other._blocks, strict=False)
        return next((i for i, (own, its) in enumerate(pairs) if own is not its), most)

    def holds_from(self, first: int) -> bool:
        """Whether it holds all pages from `first` on: none of them is before a window."""
        return all(held <= first for held in self._first_held)

    # -- the draft model's part of the caches

    @property
    def drafted(self) -> int:
        """How many of the first positions the draft model has computed."""
        n = 0
        for block in self._blocks:
            n += block.drafted
            if block.drafted < self._cache.page:
                break
        return n

    def record_drafted(self, end: int) -> None:
        """Record that the draft model has computed the positions before `end`."""
        page = self._cache.page
        for i in range(self.drafted // page, pages_for(end, page)):
            block = self._blocks[i]
            block.drafted = max(block.drafted, min(page, end - i * page))

    def _forget_drafted(self) -> None:
        """Forget the draft model's positions after the tokens: an answer that has ended had gone on there."""
        page = self._cache.page
        for i, block in enumerate(self._blocks[len(self.tokens) // page :], len(self.tokens) // page):
            block.drafted = min(block.drafted, max(0, len(self.tokens) - i * page))

    # -- the states of a recurrent model

    def advance(self, end: int | None, *, exact: bool, back: bool = True) -> None:
        """Record that the states will have seen the positions before `end`; None: it is not known which.

        `exact`: the new ones are computed as a prompt. `back`: the states after one position less will be there, too.
        """
        self._states_end, self._exact, self._back = end, self._exact and exact, back

    def take_snapshot(self) -> None:
        """Copy the states after the tokens for later prompts, if there is a slot."""
        states = self._cache.states
        if states is None or self._slot is None or not self._has_state(len(self.tokens)):
            return
        slot = states.take()
        if slot is not None:
            self._device.copy_page(states.group, self._slot, slot)
            states.add(self._snapshot(slot))

    def _snapshot(self, slot: int) -> Snapshot:
        assert self._states_end is not None
        return Snapshot(slot, self.tokens[: self._states_end], self._states_end, self._exact, self.root, self._back)

    def _has_state(self, n: int) -> bool:
        """Whether the states after `n` positions are there."""
        end = self._states_end
        return self._cache.states is None or (end is not None and end - n in (0, int(self._back)))

    def _take_slot(self) -> bool:
        """Have a slot, if the model has states. False: there is none, or an older sequence waits for one."""
        states = self._cache.states
        if states is None or self._slot is not None:
            return True
        if self._cache.older_waits(self.age):
            return False
        self._slot, self._states_end, self._exact, self._back = states.take(), 0, True, True
        if self._slot is not None:
            self._device.set_pages(states.group, self.number, 0, [self._slot])
        return self._slot is not None

    def _release_slot(self) -> None:
        """Release the slot. Its states stay cached, if it is known which they are."""
        states, slot, self._slot = self._cache.states, self._slot, None
        if states is None or slot is None:
            return
        if self.tokens and self._has_state(len(self.tokens)):
            states.add(self._snapshot(slot))
        else:
            states.release(slot)

    # -- blocks

    def held(self) -> list[int]:
        """By group: the pages that it holds."""
        return [len(self._blocks) - first for first in self._first_held]

    def wanted(self) -> list[int]:
        """By group: the pages that it does not hold, and that its answer may need at once at some time."""
        pages = pages_for(self.end, self._cache.page)
        return [max(0, min(pages, most) - held) for held, most in zip(self.held(), self._cache.most, strict=True)]

    def missing(self, end: int) -> list[int]:
        """By group: the pages that are not available now for the positions before `end`; last, the slots of states."""
        self._release_before_windows()
        cache = self._cache
        needed = cache.pages_to_read(len(self.tokens), end)
        lacking = [n - h - pool.available for n, h, pool in zip(needed, self.held(), cache.pools, strict=True)]
        if cache.states is not None:
            lacking.append((self._slot is None) - cache.states.pool.available)
        return lacking

    def _release_before_windows(self) -> None:
        for group, first in enumerate(self._first_held):
            self._first_held[group] = max(first, self._cache.first_block(group, len(self.tokens)))
            for block in self._blocks[first : self._first_held[group]]:
                self._cache.release(group, block)

    def _switch(self, blocks: list[Block], n: int) -> None:
        """Hold the pages that `n` tokens in `blocks` read, instead of the present ones."""
        old, old_first, cache = self._blocks, self._first_held, self._cache
        self._blocks, self._first_held = blocks, [cache.first_block(group, n) for group in range(len(self._first_held))]
        for block in blocks:
            block.users += 1
        for group, first in enumerate(self._first_held):
            for block in blocks[first:]:
                cache.hold(group, block)
        for group, first in enumerate(old_first):
            for block in reversed(old[first:]):  # the first block last: evicted last, since the others need it
                cache.release(group, block)
        for block in reversed(old):
            cache.leave(block)
        self._write_table(self._first_held)

    def _write_table(self, first: list[int]) -> None:
        """Write each group's entries from `first` on to the device."""
        for group, at in enumerate(first):
            pages = [block.pages[group] for block in self._blocks[at:]]
            if pages:
                self._device.set_pages(group, self.number, at, [page for page in pages if page is not None])
