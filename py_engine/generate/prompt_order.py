"""In which order prompts are read: as they came, but shorter ones pass longer ones.

So a short question is answered soon while the long prompt of another request is read: it waits for one part of that
prompt. Before its next part, a prompt lets younger ones pass for as long as its last part took: half of the time is its
own, however many short ones come.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from py_engine.generate.running_sequence import RunningSequence

SHARED = 16  # tokens that a prompt has in common with one that is being read: worth waiting for


def admit(unread: Sequence[RunningSequence], batch_tokens: int, tokens_left: Callable[[RunningSequence], int]) -> bool:
    """Admit the requests whose prompts may be read now. True if some were admitted.

    `unread`: those whose prompts were not submitted, as they came. A request waits for older ones that are not longer,
    unless one batch of `batch_tokens` may read all of their prompts with its own. It also waits for what it has in
    common with an admitted one, and then finds that in the caches.
    """
    admitted = [one for one in unread if one.admitted]
    before, total, shortest = len(admitted), 0, sys.maxsize
    for one in unread:
        left = tokens_left(one)
        total += left
        turn = left < shortest or total <= batch_tokens
        if turn and not one.admitted and not any(_reads_common(other, one) for other in admitted):
            one.admitted = True
            admitted.append(one)
        shortest = min(shortest, left)
    return len(admitted) > before


def next_prompt(sequences: Sequence[RunningSequence]) -> RunningSequence:
    """Whose part is read next: the shortest one's, unless the oldest has let others pass for long enough."""
    oldest = min(sequences, key=lambda sequence: sequence.cache.age)
    if oldest.lets_pass_ms <= 0:
        return oldest
    return min(sequences, key=lambda sequence: (tokens_left(sequence), sequence.cache.age))


def count_passed(sequence: RunningSequence, ms: float, sequences: Sequence[RunningSequence]) -> None:
    """Charge `ms` of a prompt's part to the older prompts among `sequences`, which it has passed."""
    for other in sequences:
        if other.prompting and other.cache.age < sequence.cache.age:
            other.lets_pass_ms -= ms


def tokens_left(sequence: RunningSequence) -> int:
    """The tokens of its prompt that were not read; before it is admitted, those that the caches lack."""
    answer, cache = sequence.answer, sequence.cache
    known = len(cache.tokens) if sequence.admitted else cache.known(answer.ids, answer.exact)
    return len(answer.ids) - known


def _reads_common(other: RunningSequence, sequence: RunningSequence) -> bool:
    """Whether the next tokens that `other` reads, and all before them, are those of `sequence`, too."""
    if not other.admitted or other.cache.root != sequence.cache.root:
        return False
    end = len(other.cache.tokens) + SHARED
    return len(other.answer.ids) >= end and other.answer.ids[:end] == sequence.answer.ids[:end]
