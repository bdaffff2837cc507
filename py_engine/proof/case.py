"""A case of a plan's proof: ops, what their buffers hold before, and what numpy has in them afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from py_engine.cpu.call import Array
from py_engine.plan.kernels import Shader
from py_engine.plan.plan import Buffer, Op, planes_of
from py_engine.proof.batches import Batch

REMOVED = -1e29  # larger logits are of tokens that can be sampled
SAMPLE = 4096  # values that their root mean square is estimated by
# results that only later ops of the same case read
PASSED_ON = {"parts", "sums", "partial", "rows", "bounds", "histogram", "spread", "sorted"}


@dataclass
class Case:
    """Ops, the contents of their buffers before them, and numpy's afterwards."""

    ops: list[Op]
    shaders: list[Shader]
    batch: Batch
    data: dict[str, Array] = field(default_factory=dict)  # by buffer
    planes: dict[str, dict[str, Any]] = field(default_factory=dict)  # by weight
    want: dict[str, Array] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> dict[str, float]:
        """The root mean square of what each float buffer is to hold afterwards: errors are parts of it."""
        compared = {name for name, (_, binding) in self.written().items() if binding not in PASSED_ON}
        return {
            name: rms(values) for name, values in self.want.items() if values.dtype != np.uint32 and name in compared
        }

    def contents(self, op: Op, shader: Shader) -> dict[str, tuple[Any, str | None]]:
        """What each binding of an op holds before the case, and the buffer's name, None for a weight.

        An array, or for experts' matrices SparseBytes.
        """
        found: dict[str, tuple[Any, str | None]] = {}
        for name, bound in op.bindings.items():
            if isinstance(bound, Buffer):
                found[name] = self.data[bound.name], bound.name
            else:
                planes = self.planes[bound.name]
                found |= {there: (planes[plane], None) for there, plane in planes_of(name, bound).items()}
        return {name: found[name] for name in shader.bindings if name != "p"}

    def written(self) -> dict[str, tuple[Op, str]]:
        """The buffers that the ops write: name -> (op, binding) of the last one that does."""
        return {
            bound.name: (op, name)
            for op, shader in zip(self.ops, self.shaders, strict=True)
            for name, bound in op.bindings.items()
            if isinstance(bound, Buffer) and shader.writes(name)
        }


def rms(values: Array) -> float:
    """The root mean square of the values that are no NaNs; 1 if it is 0. Of many values, every n-th is enough.

    The logits of tokens that are never sampled do not count: no error of the others would matter beside theirs.
    """
    flat = values.reshape(-1)
    for step in (len(flat) // SAMPLE | 1, 1):
        numbers = flat[::step].astype(np.float64)
        numbers = numbers[numbers > REMOVED]  # and no NaNs
        if len(numbers) >= SAMPLE // 2:
            break
    return float(np.sqrt(np.dot(numbers, numbers) / len(numbers))) or 1.0 if len(numbers) else 1.0
