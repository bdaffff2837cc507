"""The cases of the kernels that sort a file's bytes into planes: rows in the middle of a plane, from an odd byte on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from py_engine.gpu.repack import repacks, shader_for
from py_engine.plan import quants
from py_engine.plan.kernels import Device, Shader
from py_engine.plan.placement import Placement
from py_engine.plan.plan import Buffer, Op, Plan, Weight
from py_engine.proof.batches import Batch
from py_engine.proof.case import Case
from py_engine.proof.numbers import Numbers
from py_engine.proof.random_data import planes

ROWS, FIRST, REST = 7, 2, 2  # rows of a placement, rows before it and after it
SOURCE = 6  # byte of the staging buffer where the raw rows begin


def upload_cases(plan: Plan, device: Device, known: Callable[[Shader], bool], seed: int = 1) -> Iterator[Case]:
    """A case for each type of the plan's matrices whose kernel is not known."""
    random, done = Numbers(seed), set[tuple[str, str]]()
    for weight in plan.weights.values():
        shader = shader_for(weight, device)
        if shader is None or known(shader) or (shader.label, weight.layout.fragment) in done:
            continue
        done.add((shader.label, weight.layout.fragment))
        yield from _cases(replace(weight, rows=FIRST + ROWS + REST), device, random)


def _cases(weight: Weight, device: Device, random: Numbers) -> Iterator[Case]:
    """A case for each plane."""
    size = quants.row_bytes(weight.type, weight.cols)
    if weight.layout.plain:
        size = weight.cols * weight.layout.block_bytes // quants.GROUP
    raw = random.integers(0, 256, SOURCE + ROWS * size, dtype=np.uint8)
    records = planes(replace(weight, rows=ROWS), raw[SOURCE:])
    raw = np.concatenate([raw, np.zeros(8 + -len(raw) % 4, np.uint8)])
    for step in repacks(Placement(weight, SOURCE, FIRST, ROWS, size), device):
        plane, row = weight.layout.planes[step.plane], weight.plane_row_bytes(step.plane)
        before = random.integers(0, 256, weight.plane_bytes(step.plane), dtype=np.uint8)
        want, first = before.copy(), plane.table + FIRST * row
        want[first : first + ROWS * row] = records[step.plane][plane.table : plane.table + ROWS * row]
        buffers = {
            "raw": Buffer("raw", (len(raw) // 4,), "u32"),
            step.binding: Buffer("plane", (len(want) // 4,), "u32"),
        }
        op = Op(step.shader.kernel, {}, dict(step.consts), dict(buffers), (*step.grid, 1))
        data = {"raw": raw.view(np.uint32), "plane": before.view(np.uint32)}
        yield Case([op], [step.shader], Batch(((0, 0),), False), data, {}, {"plane": want.view(np.uint32)})
