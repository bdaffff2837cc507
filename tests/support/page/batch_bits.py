"""Whether sequences get the same logits and texts alone and in batches, bit by bit, on any device."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import js

from py_engine import planner
from py_engine.engine import Engine
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.plan.lists import (
    BATCH_FORWARD,
    DECODE,
    DRAW,
    LAST_LOGITS,
    PREFILL,
    SAMPLE,
    SMALL_BATCH_END,
    adapted,
)
from py_engine.plan.plan import Plan
from py_engine.plan.sampling import Sampling
from py_engine.plan.shared_constants import SHORT_BATCH
from py_engine.runners import Row
from tests.support.page.patches import patched

GREEDY = Sampling(temperature=0)
LENGTHS = (3, 17, 140, 1, 66)  # tokens of each sequence's prompt
STEPS = 5  # fewer than a small batch has tokens
COPIES = 2  # of each sequence in batches, which then have up to ten tokens: more than a slice of products
BATCH_LOGITS = "small_batch_logits.logits"
UNUSED = {PREFILL, LAST_LOGITS, DRAW, SAMPLE}  # lists that logits() does without


@contextmanager
def small_batches_alone() -> Iterator[None]:
    """Loads do not compile what logits() does not use, which takes a software GPU longer than all that it uses."""
    make_plan = planner.make_plan

    def made(*arguments: Any) -> Plan:
        plan = make_plan(*arguments)
        plan.lazy |= plan.lists.keys() & {*UNUSED, *map(adapted, UNUSED)}
        return plan

    with patched(planner, make_plan=made):
        yield


async def logits(engine: Engine) -> dict[str, Any]:
    """How many rows of logits differ between sequences alone, in batches, and as drafts; and how many there are.

    Prompts are read as small batches, which are compiled anyway.
    """
    runner: Any = engine.runner
    count = len(LENGTHS)
    await runner.reserve_pages(
        [((1 + COPIES) * count + 1) * _pages(runner)] * len(engine.plan.page_groups), nullcontext
    )
    alone = [await _alone(runner, which) for which in range(count)]
    batches = await _in_batches(runner)
    drafts = await _as_draft(runner, alone[1])
    pairs = [
        *((a, b) for i, others in enumerate(batches) for a, b in zip(alone[i % count][1], others, strict=True)),
        *zip(alone[1][1], drafts, strict=True),
    ]
    different = [abs(_floats(a) - _floats(b)) for a, b in pairs if a != b]
    return {
        "rows": len(pairs),
        "different": len(different),
        "worst": max((float(d.max()) for d in different), default=0),
    }


async def _start(runner: Any, which: int, seq: int) -> None:
    """Compute a prompt as sequence `seq`, and sample its first token."""
    prompt = [(31 * which + 7 * k) % runner.plan.n_vocab for k in range(LENGTHS[which])]
    await runner.configure(GREEDY, len(prompt), 0, False, seq)
    if adapters := runner.plan.adapters.count:  # every other prompt has them; its partners run the same lists
        runner.set_scales(seq, runner.plan.adapters.pack([0.7 * (which % 2)] * adapters))
        await runner.prepare([DECODE], [seq])
    await runner.prepare(SMALL_BATCH_END, [seq])
    for group in range(len(runner.plan.page_groups)):
        runner.set_pages(group, seq, 0, range(_pages(runner) * seq, _pages(runner) * (seq + 1)))
    for at in range(0, len(prompt), SHORT_BATCH):
        part = prompt[at : at + SHORT_BATCH]
        runner.feed(at, part, [*SMALL_BATCH_END, *GREEDY.lists()], seq, read=True)
        await runner.result()


def _pages(runner: Any) -> int:
    """Pages of a sequence."""
    return int(-(-runner.plan.n_ctx // runner.plan.page))


async def _alone(runner: Any, which: int) -> tuple[list[int], list[bytes]]:
    """The ids that a sequence decodes alone, and their logits."""
    await _start(runner, which, which)
    ids, rows = [], []
    for step in range(STEPS):
        runner.decode([Row(which, LENGTHS[which] + step)], 1)
        rows.append(await _row(runner, "logits", 0))
        (batch,) = await runner.result()
        ids += batch.ids
    return ids, rows


async def _in_batches(runner: Any) -> list[list[bytes]]:
    """The logits of each copy of each sequence, decoded in batches of changing members."""
    dice, count = random.Random(3), len(LENGTHS)
    for copy in range(COPIES * count):
        await _start(runner, copy % count, count + copy)
    for members in ([0, 2], [0, 1]):  # without adapters, with some
        await runner.prepare(runner.step_lists([count + which for which in members]))
    rows: list[list[bytes]] = [[] for _ in range(COPIES * count)]
    while unfinished := [copy for copy, found in enumerate(rows) if len(found) < STEPS]:
        members = dice.sample(unfinished, dice.randint(min(2, len(unfinished)), len(unfinished)))
        runner.decode([Row(count + copy, LENGTHS[copy % count] + len(rows[copy])) for copy in members], 1)
        for i, copy in enumerate(members):
            name, row = (BATCH_LOGITS, i) if len(members) > 1 else ("logits", 0)
            rows[copy].append(await _row(runner, name, row))
        await runner.result()
    return rows


async def _as_draft(runner: Any, alone: tuple[list[int], list[bytes]]) -> list[bytes]:
    """The logits of a sequence's tokens as a small batch of consecutive tokens. `alone`: of sequence 1."""
    first, seq = LENGTHS[1], (1 + COPIES) * len(LENGTHS)
    await _start(runner, 1, seq)
    token = await _token(runner, 1, first)
    runner.feed(first, [token, *alone[0][:-1]], [*BATCH_FORWARD], seq)
    return [await _row(runner, BATCH_LOGITS, i) for i in range(STEPS)]


async def _row(runner: Any, name: str, row: int) -> bytes:
    """A row of logits, without padding."""
    buffer, offset, _ = runner.gpu.places[name]
    vocab = runner.plan.n_vocab
    width = runner.plan.buffers[name].shape[-1]
    return bytes((await runner.gpu.replay.download(buffer, offset + 4 * row * width, 4 * vocab)).to_bytes())


async def _token(runner: Any, seq: int, position: int) -> int:
    tokens = runner.gpu.places["tokens"][0]
    at = 4 * (seq * runner.plan.buffers["tokens"].shape[1] + position)
    return int(js.Uint32Array.new(await runner.gpu.replay.download(tokens, at, 4))[0])


def _floats(row: bytes) -> Any:
    import numpy as np

    return np.frombuffer(row, np.float32)


KINDS = [
    Sampling(temperature=1.2, seed=5),
    Sampling(temperature=0.9, seed=6, top_k=30, top_p=0.95, min_p=0.02, repeat_penalty=1.2),
    Sampling(temperature=1.1, seed=7, presence_penalty=0.6, dry_multiplier=0.8, logit_bias=((9, 2.0),)),
]


async def texts(engine: Engine, tokens: int = 24) -> dict[str, Any]:
    """Seeded answers alone, and among others that come and go in mid-answer; `shared`: steps that several shared."""
    runner: Any = engine.runner
    prompts = [[(11 * i + 5 * k) % 200 for k in range(4 + 9 * i)] for i in range(len(KINDS))]

    async def one(which: int) -> list[int]:
        request = GenerationRequest(prompts[which], KINDS[which], AnswerLimits(tokens))
        return [i async for batch in engine.generate(request) for i in batch.ids]

    alone = []
    for which in range(len(KINDS)):
        engine.forget()
        alone.append(await one(which))
    await runner.prepare(BATCH_FORWARD)
    for sampling in (*KINDS, GREEDY):
        await runner.prepare([f"{name}_each" for name in sampling.lists()])
    shared = 0
    decode = runner.decode

    def counting(rows: list[Row], steps: int) -> None:
        nonlocal shared
        shared += steps * (len(rows) > 1)
        decode(rows, steps)

    runner.decode = counting
    dice = random.Random(8)

    async def other(number: int) -> None:
        """A request that begins when another one ends, and ends in the midst of the seeded ones."""
        for _ in range(3):
            prompt = [dice.randrange(200) for _ in range(dice.randint(1, 30))]
            sampling = KINDS[number % 3] if number % 2 else GREEDY
            stream = engine.generate(GenerationRequest(prompt, sampling, AnswerLimits(40)))
            left = dice.randint(1, tokens // 2)
            while left > 0 and (batch := await anext(stream, None)) is not None:
                left -= len(batch.ids)
            await stream.aclose()

    try:
        engine.forget()
        beside, _ = await asyncio.gather(
            asyncio.gather(*(one(which) for which in range(len(KINDS)))),
            asyncio.gather(*(other(number) for number in range(min(engine.parallel - len(KINDS), 9)))),
        )
    finally:
        runner.decode = decode
    return {"alone": alone, "beside": list(beside), "shared": shared, "largest": SHORT_BATCH}
