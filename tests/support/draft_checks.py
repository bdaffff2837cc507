"""Checks of draft models that read a model's hidden states: texts are those without drafts; some are rejected."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from py_engine.engine import Engine
from py_engine.plan.sampling import Sampling
from tests.support import wasm_engines
from tests.support.cpu_engines import PROMPT, PROMPTS, SHAPED, WARM, Counting, collect, draft_counts, let_drafts_pay
from tests.support.cpu_models import load

GREEDY = Sampling(temperature=0)
SAMPLINGS = {"greedy": GREEDY, "seed": WARM, "shaped": SHAPED}
Files = tuple[Path, Path]  # of a model and of its draft model


def engine(files: Files, *, drafts: bool = True) -> Engine:
    """The model on numpy, which drafts whatever that costs."""
    model, draft = files
    cpu = load(model, 256, draft=draft if drafts else None)
    runner = Counting(cpu.plan)
    runner._cpu = cpu
    let_drafts_pay(runner)
    return Engine(cpu.plan, runner, "cpu", 4, speculation=drafts)


async def check_text(files: Files, sampling: Sampling) -> None:
    """One request's text."""
    used = engine(files)
    want = await collect(engine(files, drafts=False), PROMPT, sampling, 60)
    assert await collect(used, PROMPT, sampling, 60) == want
    totals = used._generation.totals
    assert 0 < totals.model_accepted < totals.model_drafted, "some are rejected"


async def check_side_by_side(files: Files) -> None:
    """The texts of four requests at once."""
    used, plain = engine(files), engine(files, drafts=False)
    requests = list(zip(PROMPTS, [GREEDY, WARM, SHAPED, GREEDY], [40, 40, 60, 30], strict=False))
    want = [await collect(plain, *request) for request in requests]
    assert await asyncio.gather(*(collect(used, *request) for request in requests)) == want
    totals = used._generation.totals
    assert 0 < totals.model_accepted < totals.model_drafted


async def check_cpu_engine(files: Files) -> None:
    """The CPU engine's text and drafts are those of numpy."""
    on_numpy, on_wasm = engine(files), await wasm_engines.load(files[0], 256, draft=files[1])
    let_drafts_pay(on_wasm.runner)
    assert await collect(on_numpy, PROMPT, GREEDY, 40) == await collect(on_wasm, PROMPT, GREEDY, 40)
    assert draft_counts(on_numpy) == draft_counts(on_wasm)
    assert draft_counts(on_numpy)[2] > 0


async def check_end(files: Files) -> None:
    """Drafts that take three times a plain step end after few steps, and the text goes on without them."""
    used = engine(files)
    runner: Any = used.runner
    runner.step_ms = lambda rows, *, drafting=False, n_model_draft=0: 10.0 if not drafting else 30.0
    want = await collect(engine(files, drafts=False), PROMPT, WARM, 80)
    assert await collect(used, PROMPT, WARM, 80) == want
    steps, _, _ = draft_counts(used)
    assert 0 < steps < 10
    drafter = used._generation._scheduler._drafter
    assert drafter is not None
    assert not drafter.account.on
