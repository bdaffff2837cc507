"""Ends of encoders of pictures that are a few layers over joined patches.

Source: kimik25.cpp, ling3vl.cpp, llama4.cpp, muse-glimmer.cpp, nemotron-v2-vl.cpp and siglip.cpp in llama.cpp's
tools/mtmd/models.
"""

from __future__ import annotations

from collections.abc import Callable

from py_engine.models.projectors.block import Norms
from py_engine.models.projectors.heads import finish, hidden, merge, normed_patches, ordered
from py_engine.models.projectors.stages import Stages
from py_engine.plan import rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.plan import Buffer
from py_engine.plan.rows import Parts, copy_columns

NEMOTRON_EPS = 1e-6  # of the norm of Nemotron's squares


def _kimik25(s: Stages, x: Buffer) -> EncoderPlan:
    """Kimi-K2.5: as Kimi-VL, with the encoder's epsilon."""
    return normed_patches(s, x, s.tower.eps, "mm.1", "mm.2", "gelu")


def _ling3vl(s: Stages, x: Buffer) -> EncoderPlan:
    return normed_patches(s, x, s.tower.eps, "mm.0", "mm.2", "gelu")


def _nemotron_v2_vl(s: Stages, x: Buffer) -> EncoderPlan:
    cols = s.tower.merge**2 * s.tower.embedding_length
    norm = Norms(s, rms=True, eps=NEMOTRON_EPS)
    y = norm.apply("mm.model.mlp.0", merge(s, x), "merged_norm", for_product=True, cols=cols)
    y, width = hidden(s, y, "mm.model.mlp.1", cols, "relu2")
    return finish(s, y, "mm.model.mlp.3", width)


def _cohere2v(s: Stages, x: Buffer) -> EncoderPlan:
    """Two layers. The first half of the first one's values is gated by the second half."""
    w, cols = s.w, s.tower.merge**2 * s.tower.embedding_length
    both, x = w.rows("mm.1.weight"), merge(s, x)
    ops, width = s.ops, both // 2
    y = ops.project("first", x, w.matrix("mm.1.weight", both, cols), w.vector(("mm.1.bias", both)))
    gated = ops.rows("gate_up", both)
    for source, to in ((width, 0), (0, width)):
        copy_columns(ops, Parts(y, source, 0), Parts(gated, to, 0), width)
    mid = ops.activate(gated, ops.rows("hidden", width, ops.input_dtype), width, "silu", gated=True)
    return finish(s, mid, "mm.2", width)


def _second(s: Stages, x: Buffer, name: str, cols: int, activation: str) -> tuple[Buffer, int]:
    """A layer after another, in buffers of its own, without a bias; and its width."""
    width, ops = s.w.rows(name + ".weight"), s.ops
    y = ops.project("second", x, s.w.matrix(name + ".weight", width, cols), None)
    return ops.activate(y, ops.rows("second_hidden", width, ops.input_dtype), width, activation, gated=False), width


def _llama4(s: Stages, x: Buffer) -> EncoderPlan:
    y, width = hidden(s, merge(s, x), "mm.model.mlp.1", s.tower.merge**2 * s.tower.embedding_length, bias=False)
    y, width = _second(s, y, "mm.model.mlp.2", width, "gelu")
    return finish(s, y, "mm.model.fc", width, bias=False)


def _muse_glimmer(s: Stages, x: Buffer) -> EncoderPlan:
    """Three layers without biases. A square's values of a column stand beside each other."""
    n, count = s.tower.embedding_length, s.tower.merge**2
    ops = s.begin("tokens", s.most // count)
    y = rows.unfold(ops, x, n, s.taps("merge", count))
    y, width = hidden(s, y, "mm.0", count * n, "gelu_erf", bias=False)
    y, width = _second(s, y, "mm.1", width, "gelu_erf")
    return ordered(s, finish(s, y, "mm.2", width, bias=False))


PERCEPTRONS: dict[str, Callable[[Stages, Buffer], EncoderPlan]] = {
    "cohere2v": _cohere2v,
    "kimik25": _kimik25,
    "ling3vl": _ling3vl,
    "llama4": _llama4,
    "muse-glimmer": _muse_glimmer,
    "nemotron_v2_vl": _nemotron_v2_vl,
}
