"""MobileVLM's projectors.

The first ("ldp"): two blocks of a depthwise convolution, gates from the picture's mean, and a product. The second
("ldpv2"): the averages of squares of four patches, and a depthwise convolution that is added to them.

Source: llava.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.models.projectors.block import Norms
from py_engine.models.projectors.stages import Stages
from py_engine.plan import per_layer, products, rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.op_list import pad
from py_engine.plan.ops import Projection
from py_engine.plan.plan import Buffer
from py_engine.plan.products import Product

KERNEL = 9  # places of a 3 x 3 kernel


def build(s: Stages, x: Buffer) -> EncoderPlan:
    """Append the projector to encoded patches, class tokens among them."""
    w, n, ops = s.w, s.tower.embedding_length, s.begin("grid", s.most)
    chosen = ops.rows("chosen", n)
    rows.gather(ops, x, n, s.taps("merge", 1), chosen)
    width = w.rows("mm.model.mlp.1.weight")
    first, second = ("mm.model.mlp.1", "mm.model.mlp.3")
    bias = w.vector((first + ".bias", width))
    hidden = ops.activated(chosen, Projection([w.matrix(first + ".weight", width, n)], bias), "gelu")
    x = ops.project("grid", hidden, w.matrix(second + ".weight", width, width), w.vector((second + ".bias", width)))
    y = _block(s, x, width, 1, "grid", s.most)
    s.ops.add_scaled(x, 1.0, y)
    y = _block(s, y, width, 2, "tokens", s.most // 4)
    return s.finish(y, width)


def build_second(s: Stages, x: Buffer) -> EncoderPlan:
    """Append the second version's projector to encoded patches, class tokens among them."""
    w, n = s.w, s.tower.embedding_length
    first, second = ("mm.model.mlp.0", "mm.model.mlp.2")
    width = w.rows(first + ".weight")
    bias = w.vector((first + ".bias", width))
    hidden = s.ops.activated(x, Projection([w.matrix(first + ".weight", width, n)], bias), "gelu")
    weight, bias = w.matrix(second + ".weight", width, width), w.vector((second + ".bias", width))
    y = s.ops.project("projected", hidden, weight, bias)
    ops = s.begin("tokens", s.most // 4)
    squares = ops.rows("squares", width)
    rows.gather(ops, y, width, s.taps("squares", 4), squares)
    kernel, bias = w.matrix("mm.model.peg.0.weight", width, KERNEL), w.vector(("mm.model.peg.0.bias", width))
    y = rows.depthwise(ops, squares, kernel, width, s.taps("tokens_kernel", KERNEL), bias)
    ops.add_scaled(squares, 1.0, y)
    return s.finish(y, width)


def _block(s: Stages, x: Buffer, width: int, number: int, stage: str, most: int) -> Buffer:
    """Append the stages of a block; return its result, (n, width)."""
    w, b = s.w, f"mm.model.mb_block.{number}.block."
    norms = Norms(s, rms=False, eps=s.tower.eps)
    ops = s.begin(stage, most)
    y = rows.depthwise(ops, x, w.matrix(b + "0.0.weight", width, KERNEL), width, s.taps(f"{stage}_kernel", KERNEL))
    y = norms.apply(b + "0.1", y, "convolved_norm", cols=width)
    swished = ops.activate(y, ops.buffer(f"image.swished.{number}", y.shape), width, "hard_swish", gated=False)
    _gates(s, swished, width, b, stage)
    ops = s.begin(stage, most)
    spread = ops.rows("spread", width)
    rows.gather(ops, s.plan.buffers[f"image.gates.{stage}"], width, s.taps(f"{stage}_picture", 1), spread)
    gated = per_layer.gate(ops, per_layer.Gates(spread, "hard_sigmoid"), swished, 0, width)
    y = ops.project("pointwise", gated, w.matrix(b + "2.0.weight", width, width), None)
    out = ops.buffer(f"image.block.{number}", (ops.batch, pad(width)))
    ops.layer_norm_into(out, y, w.vector((b + "2.1.weight", width)), w.vector((b + "2.1.bias", width)), s.tower.eps)
    return out


def _gates(s: Stages, x: Buffer, width: int, b: str, stage: str) -> None:
    """Append the stage that computes a gate for each channel of each picture from the mean of its rows."""
    w = s.w
    pictures = max(1, s.most // s.tower.max_patches)
    ops = s.begin("pictures", pictures)
    mean = ops.rows("mean", width)
    most = s.tower.max_patches // (1 if stage == "grid" else 4)
    rows.gather(ops, x, width, s.taps(f"{stage}_members", most), mean)
    size = w.rows(b + "1.fc1.weight")
    bias = w.vector((b + "1.fc1.bias", size))
    hidden = ops.activated(mean, Projection([w.matrix(b + "1.fc1.weight", size, width)], bias), "relu")
    gates = ops.buffer(f"image.gates.{stage}", (ops.batch, pad(width)))
    weight, bias = w.matrix(b + "1.fc2.weight", width, size), w.vector((b + "1.fc2.bias", width))
    products.append(ops, Product(hidden, weight, gates, bias))
