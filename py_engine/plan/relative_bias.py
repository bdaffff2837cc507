"""T5's relative positions (Raffel et al. 2020): scores get a bias for each head by the bucket of the distance."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import floor, log

from py_engine.errors import WispError
from py_engine.files.tensor_types import TensorType
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.shared_constants import MOST_DISTANCE

TYPES = {
    TensorType.F32: "f32",
    TensorType.F16: "f16",
    TensorType.BF16: "bf16",
}  # of a table, as attention.wgsl names them


@dataclass(frozen=True)
class RelativeBias:
    """`table`: (buckets, heads). `buckets`: of keys that are -MOST_DISTANCE to MOST_DISTANCE after the query, u32."""

    table: Weight
    buckets: Buffer

    @property
    def kind(self) -> str:
        """The table's type in attention.wgsl."""
        return TYPES[self.table.type]

    @property
    def bindings(self) -> dict[str, Buffer | Weight]:
        """What attention reads."""
        return {"relative": self.table, "buckets": self.buckets}


def bucket(relative: int, count: int, *, causal: bool = False) -> int:
    """The bucket of a key so many positions after the query. Half of the `count` buckets are for keys after it.

    `causal`: none are, because no query sees any. Near keys have a bucket each; farther ones share them, in steps that
    grow by a factor. Rounds as llama.cpp.
    """
    half, distance = count if causal else count // 2, abs(relative)
    exact = half // 2
    if distance >= exact:
        steps = _float32(_float32(log(_float32(distance / exact))) * (half - exact)) / log(MOST_DISTANCE / exact)
        distance = min(half - 1, floor(exact + steps))
    return distance + (half if relative > 0 and not causal else 0)


def _float32(x: float) -> float:
    rounded: float = struct.unpack("<f", struct.pack("<f", x))[0]
    return rounded


def relative_bias(ops: OpList, table: Weight, *, causal: bool) -> RelativeBias:
    """The bias of a table of the file. `causal`: of a decoder.

    WispError unsupported_quantization for a quantized table.
    """
    if table.type not in TYPES:
        raise WispError(
            f"Tensor {table.name} is {table.type.name}; biases of positions must be F32, F16 or BF16.",
            "unsupported_quantization",
        )
    name = f"relative_buckets.{table.rows}" + (".causal" if causal else "")
    places = [bucket(i, table.rows, causal=causal) for i in range(-MOST_DISTANCE, MOST_DISTANCE + 1)]
    ops.plan.constants[name] = struct.pack(f"<{len(places)}I", *places)
    return RelativeBias(table, ops.buffer(name, (len(places),), "u32", "state"))
