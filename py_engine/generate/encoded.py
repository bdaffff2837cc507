"""Prompts of encoder-decoder models: the encoder reads one whole, then the decoder's tokens are computed.

Sequences share nothing: what the encoder makes of a token depends on all of the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from py_engine.generate.sequences import Sequences
from py_engine.plan.lists import BATCH_FORWARD, DECODE, PREFILL, PREFILL_END
from py_engine.plan.plan import Plan
from py_engine.plan.shared_constants import SHORT_BATCH
from py_engine.runners import FLOAT_FEED, FeedOptions, Rounding, Runner


def prompt_lists(plan: Plan) -> tuple[str, ...]:
    """The lists that any prompt and its answer need."""
    return (PREFILL, DECODE) if plan.encodes_prompts else (*PREFILL_END, DECODE)


async def answer_logits(runner: Runner, sequences: Sequences, prompt: list[int], answer: Sequence[int]) -> list[Any]:
    """The logits after the decoder's start token and each token of an answer, in parts of Runner.rows().

    The caller has the engine to itself.
    """
    start = runner.plan.decoder_start
    assert start is not None
    ids, first = [start, *answer], len(prompt)
    async with sequences.acquire() as sequence:
        await runner.prepare([PREFILL, *BATCH_FORWARD], [sequence.number])
        await sequences.wait_for_pages(sequence, first + len(ids))
        sequences.resumed(sequence)
        sequence.reserve(first + len(ids))
        prompted = FeedOptions(shift=-first, rounding=Rounding.FLOATS)
        runner.feed(0, prompt, [PREFILL], sequence.number, options=prompted)
        parts = []
        for at in range(0, len(ids), SHORT_BATCH):
            batch = ids[at : at + SHORT_BATCH]
            runner.feed(first + at, batch, BATCH_FORWARD, sequence.number, options=FLOAT_FEED)
            parts.append(await runner.rows("small_batch_logits.logits", len(batch), runner.plan.n_vocab))
        return parts
