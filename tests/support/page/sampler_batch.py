"""Sequences with any samplers, masks and log-probabilities in one batch of a runner, on any device."""

from array import array
from contextlib import nullcontext
from typing import Any

from py_engine.engine import Engine
from py_engine.plan.lists import PREFILL_END
from py_engine.plan.sampling import Batch, Sampling
from py_engine.runners import Row

SAMPLINGS = [
    Sampling(temperature=0, logprobs=4),
    Sampling(temperature=1.2, seed=3),
    Sampling(temperature=1.2, seed=4, top_k=20, top_p=0.9, min_p=0.02, logprobs=0),
    Sampling(temperature=0.9, seed=5, repeat_penalty=1.4, dry_multiplier=0.8, dry_breakers=(7, 9)),
    Sampling(temperature=0, presence_penalty=0.7, frequency_penalty=0.3, logit_bias=((11, -100.0), (200, 2.5))),
    Sampling(temperature=1.1, seed=6, typical_p=0.8, xtc_probability=0.5, top_n_sigma=2.0, dynatemp_range=0.4),
]
MASKED = (1, 4)  # sequences whose tokens a mask restricts
COUNT = 20


def allowed(seq: int, vocab: int) -> bytes:
    """The tokens that a sequence's mask allows."""
    words = [0] * (-(-vocab // 32))
    for token in range(seq, vocab, 3):
        words[token // 32] |= 1 << token % 32
    return array("I", words).tobytes()


async def tokens_of(runner: Any, sequences: list[int]) -> list[Batch]:
    """COUNT tokens of each of these sequences, decoded side by side."""
    for seq in sequences:
        prompt = [3 * seq + k for k in range(6)]
        await runner.configure(SAMPLINGS[seq], len(prompt), 0, False, seq)
        for group in range(len(runner.plan.page_groups)):
            runner.set_pages(group, seq, 0, [seq])
        runner.feed(0, prompt[:-1], [*PREFILL_END], seq)
        runner.feed(5, prompt[5:], [*PREFILL_END, *SAMPLINGS[seq].lists()], seq, read=True)
    found = [Batch([], []) for _ in sequences]

    def add(i: int, batch: Batch) -> None:
        found[i] = Batch(found[i].ids + batch.ids, (found[i].logprobs or []) + (batch.logprobs or []))

    for i, seq in enumerate(sequences):
        add(i, (await runner.result())[0])
        if seq in MASKED:
            runner.mask(allowed(seq, runner.plan.n_vocab), seq)
    await runner.prepare(runner.step_lists(sequences))
    for position, steps in ((6, 4), (10, COUNT - 5)):
        runner.decode([Row(seq, position) for seq in sequences], steps)
    for _ in range(2):
        for i, batch in enumerate(await runner.result()):
            add(i, batch)
    return found


async def batch_and_pairs(engine: Engine) -> list[Any]:
    """(ids, log-probabilities) of each sequence among all of them, and of each beside one other."""
    await engine.runner.reserve_pages([len(SAMPLINGS)] * len(engine.plan.page_groups), nullcontext)
    everyone = await tokens_of(engine.runner, list(range(len(SAMPLINGS))))
    pairs = []
    for seq in range(len(SAMPLINGS)):
        own, _ = await tokens_of(engine.runner, [seq, (seq + 3) % len(SAMPLINGS)])
        pairs.append(own)
    return [_plain(everyone), _plain(pairs)]


def _plain(batches: list[Batch]) -> list[Any]:
    return [[b.ids, [[p.token, p.logprob, p.top] for p in b.logprobs or []]] for b in batches]


def check(results: list[Any]) -> None:
    """Assert that a sequence's tokens do not depend on the others, and keep to its mask and its bias."""
    everyone, pairs = results
    assert [ids for ids, _ in everyone] == [ids for ids, _ in pairs]
    for seq, (ids, logprobs) in enumerate(everyone):
        for (token, value, top), (other_token, other_value, other_top) in zip(logprobs, pairs[seq][1], strict=True):
            assert token == other_token
            assert abs(value - other_value) < 1e-4
            assert [i for i, _ in top] == [i for i, _ in other_top]
        assert len(ids) == COUNT
        assert len(logprobs) == (COUNT if SAMPLINGS[seq].logprobs >= 0 else 0)
        assert all(len(top) == SAMPLINGS[seq].logprobs for _, _, top in logprobs)
        assert [token for token, _, _ in logprobs] == (ids if logprobs else [])
        if seq in MASKED:
            assert all(token % 3 == seq % 3 for token in ids[1:])  # the first was sampled before the mask
    assert 11 not in everyone[4][0]
    assert all(token == top[0][0] for token, _, top in everyone[0][1]), "greedy"
