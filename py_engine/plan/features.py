"""The hidden states of some of a model's layers side by side, for what drafts from them: EAGLE-3 heads
(models/eagle.py) and DFlash models (models/dflash.py)."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer
from py_engine.plan.rows import Parts, clamp, copy_columns


@dataclass(frozen=True)
class Features:
    """The inputs of `layers`, of `cols` columns each. Layer 0, which reads the embeddings, is none of them."""

    layers: tuple[int, ...]
    cols: int

    def buffer(self, ops: OpList) -> Buffer:
        """Where a list has them: (n, len(layers) * cols), padded."""
        return ops.rows("features", len(self.layers) * self.cols)

    def collect(self, ops: OpList, layer: int, x: Buffer) -> None:
        """Append the copy of layer `layer`'s input x (n, cols), if it is one of `layers`."""
        y, cols = self.buffer(ops), len(self.layers) * self.cols
        for i, wanted in enumerate(self.layers):
            if wanted == layer:
                copy_columns(ops, Parts(x), Parts(y, i * self.cols), self.cols)
        if layer == max(self.layers) and (padding := y.shape[1] - cols):  # products read it
            clamp(ops, x, ops.constant("limits.0", [0.0, 0.0]), y, padding, cols)
