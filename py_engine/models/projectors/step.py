"""Step3-VL's end: two convolutions, each of which halves the sides of a picture's grid of patches, then a layer.

Source: step3vl.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.models.projectors.heads import finish
from py_engine.models.projectors.stages import Stages
from py_engine.plan import rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.plan import Buffer

HALVES, QUARTERS = "halves_kernel", "tokens_kernel"  # inputs: taps of the two convolutions
KERNEL = 9  # places of a kernel of 3 x 3


def build(s: Stages, x: Buffer) -> EncoderPlan:
    """The encoder's end, from patches to tokens."""
    s.begin("halves", s.most // 4)
    x = _convolved(s, x, "mm.0", s.tower.embedding_length, HALVES)
    cols = s.w.rows("mm.0.weight")
    s.begin("tokens", s.most // 16)
    x = _convolved(s, x, "mm.1", cols, QUARTERS)
    return finish(s, x, "mm.model.fc", s.w.rows("mm.1.weight"), bias=False)


def _convolved(s: Stages, x: Buffer, name: str, cols: int, taps: str) -> Buffer:
    """A convolution over x (n, cols) with a kernel of 3 x 3 patches and a stride of 2. `taps`: the input's name."""
    w, width = s.w, s.w.rows(name + ".weight")
    y = rows.unfold(s.ops, x, cols, s.taps(taps, KERNEL))
    weight, bias = w.matrix(name + ".weight", width, KERNEL * cols), w.optional_vector((name + ".bias", width))
    return s.ops.project(name, y, weight, bias)
