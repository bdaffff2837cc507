"""Pool many sequences: packed into full batches, read back once a group, computed again where the GPU was lost."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from py_engine.errors import WispError
from py_engine.generate.generation import Generation
from py_engine.generate.sequence_cache import SequenceCache
from py_engine.plan.lists import EMBED, PACKED, pool
from py_engine.plan.packing import packed_batches
from py_engine.tasks import to_the_end

GPU_SPAN, CPU_SPAN = 2048, 64  # tokens of a packed sequence at most, unless one of its segments is longer

Group = Sequence[list[int]]  # sequences whose rows are read at once


@dataclass(frozen=True)
class Pooled:
    """What to compute: pool by `pooling` into the buffer `name`, then run the lists `after` over its rows."""

    pooling: str
    name: str
    width: int  # values of a row
    after: Sequence[str] = ()


async def pooled_rows(generation: Generation, groups: Iterable[Group], what: Pooled) -> AsyncGenerator[Any]:
    """Yield the rows of all sequences in order, (sequences, width): of a group, or of a part of one.

    On a GPU, the next group is taken and submitted before the result of the one before is awaited.
    """
    rest, unread = iter(groups), deque[Group]()
    while True:
        runner = generation.runner
        try:
            async with aclosing(_rows(generation, rest, unread, what)) as results:
                async for rows in results:
                    yield rows
            return
        except WispError as error:
            await generation.recover_from(error, runner)


async def _rows(
    generation: Generation, groups: Iterator[Group], unread: deque[Group], what: Pooled
) -> AsyncGenerator[Any]:
    """The rows of `unread`, then of the groups. `unread` is updated: what was taken and whose rows were not read."""
    runner, size = generation.runner, generation.plan.batch
    lists = [PACKED, EMBED, pool(what.pooling)]
    known = [part for group in unread for part in _cut(group, size)]  # a GPU that came back may have smaller batches
    unread.clear()
    unread.extend(known)
    waiting = deque[Awaitable[Any]]()  # the results of the first parts of `unread`
    async with generation.sequences.acquire() as sequence:
        generation.set_scales(sequence, generation.scales)
        await runner.prepare([*lists, *what.after], [sequence.number])
        try:
            while True:
                if len(waiting) == len(unread):
                    unread.extend(_cut(next(groups, []), size))
                if more := len(waiting) < len(unread):
                    part = unread[len(waiting)]
                    await _feed(generation, part, lists, sequence)
                    waiting.append(runner.pooled(what.name, len(part), what.width, what.after))
                elif not waiting:
                    return
                while len(waiting) > (runner.on_gpu if more else 0):
                    rows = await waiting.popleft()
                    unread.popleft()
                    yield rows
        except BaseException:
            if runner.numpy:  # which computes when a result is awaited
                await to_the_end(runner.stop())  # the caches count what is fed as computed
            raise


async def _feed(generation: Generation, part: Group, lists: list[str], sequence: SequenceCache) -> None:
    """Feed sequences to the layers, packed."""
    runner, plan, sequences = generation.runner, generation.plan, generation.sequences
    most = GPU_SPAN if runner.on_gpu else CPU_SPAN
    span = min([most, generation.context_length, *(pages * plan.page for pages in sequences.cache.most)])
    for batch in packed_batches(part, span, plan.batch):
        end = batch.position + len(batch.ids)
        if plan.causal and sequence.reserve(end) < end:
            await sequences.wait_for_pages(sequence, end)
            sequence.reserve(end)
            sequences.resumed(sequence)
        await generation.time_slices.wait_for_part()
        runner.feed_packed(batch, lists, sequence.number)
        if plan.causal and batch.long:
            sequence.append(batch.ids.tolist())  # frees the pages before windows
            sequence.advance(end, exact=True)
            if batch.last:
                sequence.release()


def _cut(group: Group, size: int) -> list[Group]:
    """Parts of at most `size` sequences: the result has so many rows."""
    return [group[at : at + size] for at in range(0, len(group), size)]
