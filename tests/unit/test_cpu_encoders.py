"""Encoders in the CPU engine's module: llama.cpp's embeddings, with the same bits on one thread and on two."""

import asyncio
from typing import Any

import numpy as np
import pytest

from py_engine.cpu.wasm_runner import WasmRunner
from py_engine.encode.arrange import batches, parts
from py_engine.encoder import joined
from py_engine.files.convolutions import flattened
from py_engine.files.gguf_header import parse
from py_engine.files.records import PieceIndex, plan_records
from py_engine.load_plan import CPU
from py_engine.models.projectors.tower import towers
from py_engine.plan.placement import Placements
from py_engine.planner import PlanOptions, make_plan
from tests.support.encoders import LIMITS, distance, media_of
from tests.support.media import NAMES, VISION, Golden, golden
from tests.support.wasm_machine import Machine

SLOW = ("deepseekocr", "deepseekocr2")  # the attention of a picture takes seconds


async def encoded(
    model: Golden, modality: str, inputs: list[np.ndarray], variant: str, threads: int
) -> list[np.ndarray]:
    """The embeddings of each input, of a projector loaded for this."""
    data = (VISION / model.about["mmproj"]).read_bytes()
    header = flattened(parse(data, len(data)))
    plan = make_plan(header, CPU, PlanOptions(1, 1, "f32"))
    machine: Any = Machine(variant, threads)
    runner = WasmRunner(plan, machine)
    await runner.open()
    index, placements = PieceIndex(header), Placements(header, plan, CPU.max_binding)
    for record in plan_records(header, len(data)):
        piece = data[record.offset : record.offset + record.length]
        await runner.load(piece, placements.of(index.pieces(record)))
    found: list[np.ndarray] = []
    tower = towers(header)[modality]
    ((each, spans),) = [parts(tower, given) for given in inputs[:1]] if tower.kind == "deepseekocr" else [(inputs, [])]
    for batch in batches(tower, plan.encoders[modality], each):
        rows = await runner.encode(plan.encoders[modality], batch.inputs())
        found += np.split(rows, np.cumsum(batch.tokens)[:-1])
    return [joined([(rows, rows.shape) for rows in found], spans)[0]] if spans else found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_embeddings_are_llama_cpps(name: str) -> None:
    """Of the first pictures and the first clip."""
    model = golden(name)
    for modality in towers(flattened(parse(data := (VISION / model.about["mmproj"]).read_bytes(), len(data)))):
        case, media = next((case, media) for case in model.cases if (media := media_of(model, case, modality)))
        inputs = [given for _, given in media[: 1 if name in SLOW else 2]]
        plain = asyncio.run(encoded(model, modality, inputs, "simd", 1))
        for (index, _), rows in zip(media, plain, strict=False):
            assert distance(model, case, index, rows) <= LIMITS["f32"]
        one, two = (asyncio.run(encoded(model, modality, inputs, "pairs", threads)) for threads in (1, 2))
        for (index, _), rows, others in zip(media, one, two, strict=False):
            assert distance(model, case, index, rows) <= LIMITS["f32"]
            np.testing.assert_array_equal(rows, others)
