"""Adapters of a bench's list: random matrices for three of them, and every sequence's scales."""

from collections.abc import Sequence

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from py_engine.files.gguf_header import TensorInfo
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan.adapters import Pair
from py_engine.plan.ops import Ops
from py_engine.plan.shared_constants import MAX_SEQUENCES
from tests.support.kernels.bench import Bench, Setup

PLACES = ((30, 0), (7, 3), (8, 3), (9, 3), (0, 5))  # (position, sequence); three consecutive tokens among others
SCALES = {0: (1.5, 0.0, -0.7), 3: (0.0, 2.0, 0.0), 5: (0.0, 0.0, 0.0)}  # by sequence; sequence 5 uses none
FIRST = 9  # position from which adapter 1 counts: not for the first two tokens of sequence 3


def pair(
    bench: Bench, adapter: int, tensor: str, rows: int, cols: int, rank: int, types: tuple[Q, Q],
    experts: Sequence[int] = (),
) -> None:  # fmt: skip
    """Random A and B of an adapter for a tensor of the model. `experts`: how many have matrices of their own."""
    infos = []
    for part, matrix, type in (("a", (rank, cols), types[0]), ("b", (rows, rank), types[1])):
        name, shape = f"adapter.{adapter}.{tensor}.lora_{part}", (*experts, *matrix)
        values = bench.random.standard_normal(shape).astype(np.float32).reshape(-1, shape[-1])
        bench.raw[name] = (
            np.ascontiguousarray(quantize(values, GGMLQuantizationType(type))).view(np.uint8).reshape(len(values), -1)
        )
        infos.append(TensorInfo(name, shape[::-1], type, 0, bench.raw[name].nbytes))
    adapters = bench.plan.adapters
    adapters.pairs.setdefault(tensor, []).append(Pair(adapter, infos[0], infos[1], rank, 0.5 + adapter))


def begin(bench: Bench, setup: Setup) -> Ops:
    """A list with the scales of three adapters for every sequence."""
    ops = bench.begin(setup)
    bench.plan.adapters.defaults[:] = [1.0] * 3
    ops.adapters = bench.plan.adapters
    scales = np.full((MAX_SEQUENCES, 3, 2), np.nan, np.float32)
    for seq, given in SCALES.items():
        scales[seq, :, 0], scales[seq, :, 1] = given, (0, FIRST, 0)
    bench.data["lora_scales"] = scales.reshape(MAX_SEQUENCES, 6)
    return ops


def gather_sources(bench: Bench) -> None:
    """The bytes of weights that are stacked from the tensors of adapters, and the plan's constants."""
    for name, data in bench.plan.constants.items():
        bench.data[name] = np.frombuffer(data, np.uint32)
    for weight in bench.plan.weights.values():
        if weight.name not in bench.raw:
            parts = [bench.raw[tensor][first : first + rows] for tensor, first, rows in weight.sources]
            bench.raw[weight.name] = np.concatenate(parts).reshape(-1)
