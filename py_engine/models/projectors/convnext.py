"""Reka Edge's encoder of pictures (ConvNeXt V2, Woo et al. 2023): convolutions of channels between products.

Each stage has half of the side of the one before. Positions are added to the last one's places, which are averaged to
8 x 8. A row is a place, a column a channel; the host writes the taps of all convolutions.
Source: yasa2.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.media.kinds import CONVNEXT_SIDE
from py_engine.models.projectors.block import Norms
from py_engine.models.projectors.colours import byte_values
from py_engine.models.projectors.heads import finish, hidden
from py_engine.models.projectors.stages import Stages
from py_engine.plan import products, rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.products import ADD, Product
from py_engine.plan.tiles import MAX_WORKGROUPS

KERNEL = 7  # side of a convolution
HALF = 2  # side of one that halves the number of places along a side
MAX_STAGES = 8
MAX_BLOCKS = 128  # of a stage


def rows_of(stage: int) -> str:
    """The name of a stage's rows."""
    return f"stage_{stage}" if stage else "patches"


def build(s: Stages) -> EncoderPlan:
    """Append the encoder's stages."""
    w, side = s.w, s.tower.merge * CONVNEXT_SIDE
    if side**2 > MAX_WORKGROUPS:
        raise WispError(f"Pictures of {side} x {side} patches are too large.", "unsupported_architecture")
    norms = Norms(s, rms=False, eps=s.tower.eps)
    x, cols = _patches(s, norms, side)
    stage = 0
    while stage < MAX_STAGES and f"v.stage.{stage}.blk.0.dw.weight" in w:
        if stage:
            x, cols = _halved(s, norms, stage, x, cols, side)
            side //= 2
        for i in range(MAX_BLOCKS):
            b = f"v.stage.{stage}.blk.{i}."
            if b + "dw.weight" not in w:
                break
            _add_block(s, norms, b, stage, x, cols, side)
        stage += 1
    if not stage or side % CONVNEXT_SIDE:
        raise WispError(
            f"An encoder of {stage} stages that end with {side} x {side} places is not supported.",
            "unsupported_architecture",
        )
    if w.rows("v.vision_pos_embed") == side**2:  # llama.cpp ignores others
        table = w.matrix("v.vision_pos_embed", side**2, cols)
        rows.gather(s.ops, table, cols, s.taps("positions", 1), x, add=True)
    ops = s.begin("tokens", CONVNEXT_SIDE**2)
    pooled = ops.rows("pooled", cols)
    rows.gather(ops, x, cols, s.taps("pool", (side // CONVNEXT_SIDE) ** 2), pooled)
    y, width = hidden(s, pooled, "mm.0", cols, "gelu_erf")
    return finish(s, y, "mm.2", width)


def _patches(s: Stages, norms: Norms, side: int) -> tuple[Buffer, int]:
    """The patches times the first convolution's kernel, normalised, and their channels."""
    ops, w, pixels = s.begin(rows_of(0), side**2), s.w, 3 * s.tower.patch**2
    cols = w.rows("v.patch_embd.weight")
    bytes_ = s.words("pixels", -(-(side**2) * pixels // 4))
    patches = rows.patches(ops, bytes_, s.taps("patches", 1), byte_values(s), s.tower.patch)
    y = ops.project("embedded", patches, *_weight_and_bias(s, "v.patch_embd", cols, pixels))
    return norms.apply("v.patch_ln", y, "x", cols=cols), cols


def _halved(s: Stages, norms: Norms, stage: int, x: Buffer, cols: int, side: int) -> tuple[Buffer, int]:
    """Begin a stage with a convolution of squares of four places of the stage before."""
    if side % HALF:
        raise WispError(f"Stages of {side} x {side} places cannot be halved.", "unsupported_architecture")
    b = f"v.stage.{stage}.down."
    normed = norms.apply(b + "ln", x, "normed_places", cols=cols)
    ops, out = s.begin(rows_of(stage), (side // HALF) ** 2), s.w.rows(b + "conv.weight")
    squares = rows.unfold(ops, normed, cols, s.taps(f"squares_{stage}", HALF**2))
    return ops.project("x", squares, *_weight_and_bias(s, b + "conv", out, HALF**2 * cols)), out


def _add_block(s: Stages, norms: Norms, b: str, stage: int, x: Buffer, cols: int, side: int) -> None:
    """x += a convolution of each channel, then a network with a norm of its channels over the picture."""
    ops, w = s.begin(rows_of(stage), side**2), s.w
    kernel = w.matrix(b + "dw.weight", cols, KERNEL**2)
    y = rows.depthwise(ops, x, kernel, cols, s.taps(f"near_{stage}", KERNEL**2), w.vector((b + "dw.bias", cols)))
    normed = norms.apply(b + "ln", y, "normed", for_product=True, cols=cols)
    wide = w.rows(b + "pw1.weight")
    up = ops.project("up", normed, *_weight_and_bias(s, b + "pw1", wide, cols))
    activated = ops.activate(up, ops.rows("activated", wide), wide, "gelu_erf", gated=False)
    terms = w.vector((b + "grn.weight", wide), (b + "grn.bias", wide))
    down, bias = _weight_and_bias(s, b + "pw2", cols, wide)
    products.append(ops, Product(rows.response_norm(ops, activated, terms, wide), down, x, bias, ADD))


def _weight_and_bias(s: Stages, name: str, count: int, cols: int) -> tuple[Weight, Weight]:
    return s.w.matrix(name + ".weight", count, cols), s.w.vector((name + ".bias", count))
