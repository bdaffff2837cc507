"""Engines on the CPU engine's module in wasmtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from py_engine import planner
from py_engine.cpu.device import Region
from py_engine.cpu.wasm_runner import WasmRunner
from py_engine.engine import Engine
from py_engine.files.records import PieceIndex, plan_records
from py_engine.load_plan import CPU
from py_engine.plan.lists import DECODE, PREFILL_END
from py_engine.plan.pages import PAGE
from py_engine.plan.placement import Placements
from tests.support.model_files import ModelFiles
from tests.support.wasm_machine import Machine


def region(address: int, size: int) -> Region:
    """One row of memory."""
    return Region(address, size)


async def load(
    path: Path, n_ctx: int, batch: int = 16, kv_type: str = "f32", *, page: int = PAGE, variant: str = "pairs",
    threads: int = 1, parallel: int = 4, media_width: int = 0, whole_media: bool = False, adapters: Sequence[Path] = (),
    draft: Path | None = None, skipped: int = 0, mtp: bool = False,
) -> Engine:  # fmt: skip
    """An engine for a file, its adapters and a draft model."""
    files = ModelFiles.read(path, adapters, draft=draft)
    header = files.parts.header
    options = planner.PlanOptions(
        n_ctx, batch, kv_type, files.factors(n_ctx), page, media_width, whole_media, files.adapters, mtp=mtp,
        draft=files.parts.draft, draft_factors=files.draft_factors(n_ctx), draft_tokens=files.draft_tokens(),
    )  # fmt: skip
    plan = planner.make_plan(header, CPU, options)
    machine: Any = Machine(variant, threads, skipped)
    runner = WasmRunner(plan, machine)
    await runner.open()
    placements = Placements(header, plan, CPU.max_binding)
    for data, one in zip(files.data, files.parts.headers, strict=True):
        index = PieceIndex(one)
        for record in plan_records(one, len(data)):
            piece = data[record.offset : record.offset + record.length]
            await runner.load(piece, placements.of(index.pieces(record)))
    await runner.ready()
    return Engine(plan, runner, "cpu", parallel)


async def rounded_logits(engine: Engine, ids: list[int]) -> np.ndarray:
    """Logits of the last position, with activations rounded to bytes: of a prompt, then of one step."""
    runner: Any = engine.runner
    found = []
    async with engine._generation.sequences.acquire() as sequence:
        sequence.reserve(len(ids))
        for at, part, lists in ((0, ids, PREFILL_END), (len(ids) - 1, ids[-1:], [DECODE])):
            for first in range(0, len(part), engine.plan.batch):
                runner.feed(at + first, part[first : first + engine.plan.batch], lists, sequence.number)
            name = "logits" if lists == [DECODE] else "last_logits.logits"
            name = name if name in engine.plan.buffers else "logits"
            last = region(runner._memory.buffer(name), 4 * engine.plan.n_vocab)
            found.append(np.frombuffer((await runner._device.read([last])).data, np.float32))
    return np.array(found)
