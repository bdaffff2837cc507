"""Which pages a sequence holds, what it reuses of others, and that no page is ever lost or given twice."""

import random
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest

from py_engine.generate.kv_cache import KvCache
from py_engine.generate.sequence_cache import SequenceCache
from py_engine.plan.pages import PageGroup

PAGE = 4
FULL, WINDOW = 0, 1  # the groups
WIDTH = 6  # of the window


class Pages:
    """A device that records, for every page and row, which tokens it holds: those of the positions up to the row's."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], tuple[int, ...]] = {}
        self.tables: dict[tuple[int, int], dict[int, int]] = {}
        self.history: dict[int, dict[int, int]] = {}
        self.copies = 0

    def set_pages(self, group: int, seq: int, first: int, pages: Sequence[int]) -> None:
        self.tables.setdefault((group, seq), {}).update({first + i: page for i, page in enumerate(pages)})

    def copy_page(self, group: int, source: int, to: int) -> None:
        self.copies += 1
        for row in range(PAGE):
            self.rows[group, to * PAGE + row] = self.rows.get((group, source * PAGE + row), ())

    def set_tokens(self, seq: int, position: int, ids: list[int]) -> None:
        self.history.setdefault(seq, {}).update({position + i: token for i, token in enumerate(ids)})

    def row(self, group: int, seq: int, position: int) -> int:
        return self.tables[group, seq][position // PAGE] * PAGE + position % PAGE

    def compute(self, sequence: SequenceCache, ids: list[int], generated: bool = False, ahead: int = 0) -> None:
        """Compute the next tokens, after checking what they read. `ahead`: further positions that the device writes."""
        at = len(sequence.tokens)
        assert sequence.reserve(at + len(ids) + ahead) >= at + len(ids) + ahead
        known = sequence.tokens
        for group in (FULL, WINDOW):
            for position in range(at - WIDTH + 1 if group == WINDOW else 0, at):
                if position >= 0:
                    found = self.rows[group, self.row(group, sequence.number, position)]
                    assert found == tuple(known[: position + 1]), (group, position)
            for position in range(at, at + len(ids) + ahead):
                written = tuple((known + ids + [-1] * ahead)[: position + 1])
                self.rows[group, self.row(group, sequence.number, position)] = written
        self.set_tokens(sequence.number, at, ids)
        sequence.append(ids, generated)
        assert [self.history[sequence.number][i] for i in range(len(sequence.tokens))] == sequence.tokens


def make(pages: int = 16, window_pages: int = 16) -> tuple[KvCache, Pages]:
    groups = [PageGroup(FULL, 0, pages, pages), PageGroup(WINDOW, WIDTH, window_pages, window_pages)]
    return KvCache(groups, PAGE), Pages()


def check(cache: KvCache, running: list[SequenceCache]) -> None:
    """Every page is free, cached, or held as often as sequences have it."""
    for group, pool in enumerate(cache.pools):
        holders: dict[int, int] = {}
        for sequence in running:
            for block in sequence._blocks[sequence._first_held[group] :]:
                page = block.pages[group]
                assert page is not None
                holders[page] = holders.get(page, 0) + 1
        assert pool._holders == holders
        assert sorted([*pool._free, *pool._cached, *holders]) == list(range(pool.size))
    assert all(any(page is not None for page in b.pages) or b.users or cache._after.get(b.key)
               for blocks in cache._after.values() for b in blocks)  # fmt: skip


def new(cache: KvCache, device: Pages, number: int = 0) -> SequenceCache:
    return SequenceCache(cache, device, number, number)


def test_longest_common_prefix_without_the_last_token() -> None:
    cache, device = make()
    one = new(cache, device)
    assert one.reuse([1, 2, 3]) == 0
    device.compute(one, [1, 2, 3])
    assert one.reuse([1, 2, 3]) == 2
    device.compute(one, [3])
    device.compute(one, [4, 5], generated=True)
    assert one.reuse([1, 2, 3, 4, 5, 6]) == 5
    assert one.reuse([1, 2, 9, 9]) == 2
    assert one.reuse([7]) == 0
    check(cache, [one])


def test_a_running_sequence_s_prefix_is_shared_and_its_last_page_copied() -> None:
    cache, device = make()
    one, other = new(cache, device), new(cache, device, 1)
    device.compute(one, [*range(10)])
    assert other.reuse([*range(10), 77, 78]) == 10
    assert device.copies == 2, "a page of each group"
    assert [block.users for block in other._blocks] == [2, 2, 1]
    device.compute(other, [77, 78])
    device.compute(one, [10, 11, 12])
    check(cache, [one, other])
    one.release()
    check(cache, [other])
    again = new(cache, device, 0)
    assert again.reuse([*range(13), 5]) == 13
    assert device.copies == 2, "nobody else has the page"


def test_exact_requests_reuse_prompts_only() -> None:
    cache, device = make()
    one, other = new(cache, device), new(cache, device, 1)
    device.compute(one, [1, 2, 3, 4, 5, 6])
    device.compute(one, [7, 8, 9, 10], generated=True)
    assert other.reuse([*range(1, 12)], exact=True) == 6
    other.release()
    assert other.reuse([*range(1, 12)]) == 10


def test_a_window_needs_its_own_pages_only() -> None:
    """Pages before the window are released as tokens come; a request continues where the last window has pages."""
    cache, device = make(pages=20, window_pages=5)
    one = new(cache, device)
    for token in range(60):
        device.compute(one, [token], ahead=3)
        assert len(one._blocks) - one._first_held[WINDOW] <= 4
    one.release()
    assert one.reuse([*range(60), 60]) == 60
    device.compute(one, [60])
    one.release()
    assert one.reuse([*range(30), 99]) == 0, "the pages before position 30 have been used again"


def test_eviction_takes_the_ends_of_old_answers_first() -> None:
    cache, device = make(pages=6)
    for start in (100, 200):
        one = new(cache, device)
        device.compute(one, [*range(start, start + 12)])
        one.release()
    one = new(cache, device)
    device.compute(one, [*range(300, 308)])
    one.release()
    found = {start: len(cache.find([*range(start, start + 12)])[0]) for start in (100, 200, 300)}
    assert found == {100: 1, 200: 3, 300: 2}
    cache.clear()
    check(cache, [])
    assert cache._after == {}


def test_equal_answers_are_each_listed_once() -> None:
    """What follows a block that is there twice is not listed twice, and so on: 40 blocks would take 2^40 visits."""
    cache, device = make(pages=200, window_pages=200)
    ids = [*range(40 * PAGE)]
    running = [new(cache, device, number) for number in (0, 1)]
    for sequence in running:
        device.compute(sequence, ids, generated=True)
    depths = [depth for depth, _ in islice(cache.full_blocks(), 1000)]
    assert sorted(depths) == sorted([*range(40), *range(40)])


def test_a_long_text_behind_a_window_is_dropped_at_once() -> None:
    """Only its last pages are left, so that all of its blocks go together: more than Python's calls may nest."""
    cache = KvCache([PageGroup(FULL, WIDTH, 20, 20)], PAGE)
    one = new(cache, Pages())
    for at in range(0, 1500 * PAGE, PAGE):
        assert one.reserve(at + PAGE) >= at + PAGE
        one.append([at + i for i in range(PAGE)], False)
    one.release()
    cache.clear()
    assert cache._after == {}


@pytest.mark.parametrize("seed", range(12))
def test_random_requests(seed: int) -> None:
    """Requests with common prefixes come, grow, shift, are aborted and preempted; what they read is always theirs."""
    dice = random.Random(seed)
    cache, device = make(pages=24, window_pages=dice.choice([10, 24]))
    running: dict[int, SequenceCache] = {}
    texts = [[dice.randrange(3) for _ in range(60)] for _ in range(3)]

    def ids(length: int) -> list[int]:
        text = list(dice.choice(texts)[:length])
        if dice.random() < 0.5 and text:
            text[dice.randrange(len(text))] = 9
        return text

    def step(sequence: SequenceCache, part: list[int], **options: Any) -> None:
        if max(sequence.missing(len(sequence.tokens) + len(part) + options.get("ahead", 0)), default=0) > 0:
            sequence.release()
        elif part:
            device.compute(sequence, part, **options)

    for _ in range(400):
        free = [n for n in range(4) if n not in running]
        if free and dice.random() < 0.3:
            running[free[0]] = new(cache, device, free[0])
        if not running:
            continue
        number = dice.choice([*running])
        sequence = running[number]
        match dice.randrange(6):
            case 0:  # a prompt, or a shifted context
                prompt = ids(dice.randint(1, 40))
                n = sequence.reuse(prompt, exact=dice.random() < 0.3)
                assert n < len(prompt)
                assert sequence.tokens == prompt[:n]
                step(sequence, prompt[n : n + 8])
            case 1 | 2 | 3:
                if len(sequence.tokens) < 60:
                    step(sequence, [dice.randrange(3) for _ in range(dice.randint(1, 3))], generated=True, ahead=2)
            case 4:
                if dice.random() < 0.2:
                    sequence.release()
                    del running[number]
            case 5:
                if dice.random() < 0.1:
                    sequence.release()
        check(cache, [*running.values()])
    for sequence in running.values():
        sequence.release()
    check(cache, [])
    assert cache.available() == min(pool.size for pool in cache.pools)
    cache.clear()
    assert cache._after == {}
