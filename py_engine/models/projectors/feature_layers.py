"""The outputs of several blocks beside each other, which LLaVA's projector reads where the file lists them.

Granite Vision 3 has four. Source: llava.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.models.projectors.stages import Stages
from py_engine.plan import rows
from py_engine.plan.plan import Buffer


class Joined:
    """Rows of `features`, side by side: (n, features * n_embd). A list of one needs no copies."""

    def __init__(self, s: Stages) -> None:
        self.s, self.features = s, s.tower.features

    def add(self, x: Buffer, after: int) -> None:
        """Copy the rows after so many blocks, if the projector reads them."""
        n = self.s.tower.embedding_length
        if len(self.features) > 1 and after in self.features:
            joined = self.s.ops.rows("features", n * len(self.features))
            at = self.features.index(after) * n
            rows.copy_columns(self.s.ops, rows.Parts(x), rows.Parts(joined, at), n)

    def finish(self, x: Buffer) -> Buffer:
        """What the projector reads. x: the rows after the last block, normalised if the file has a norm."""
        if len(self.features) < 2:
            return x
        self.add(x, self.features[-1])
        return self.s.ops.rows("features", self.s.tower.features_width)
