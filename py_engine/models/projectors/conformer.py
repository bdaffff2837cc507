"""Gemma 4's encoder of sound: a conformer (Gulati et al. 2020).

Convolutions to a quarter of the frames, then blocks of a feed-forward network, attention over the last 12 rows, a
convolution over the last 5 rows, and another feed-forward network.

Every matrix may be clipped. Source: gemma4a.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import cos, e, exp, log, sin

from py_engine.models.projectors.block import qkv
from py_engine.models.projectors.clipped import halves_swapped, project
from py_engine.models.projectors.heads import finish
from py_engine.models.projectors.stages import Stages
from py_engine.plan import attention, products, rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.op_list import pad
from py_engine.plan.ops import TokenRows
from py_engine.plan.plan import Buffer
from py_engine.plan.products import Product

EPS = 1e-6
FRAMES = 3000  # of a piece of sound, at most
WINDOW = 12  # rows that a row attends to, itself included
KERNEL = 5  # rows of a convolution
SOFT_CAP = 50.0
BLOCKS_PER_SUBMIT = 4


def build(s: Stages) -> EncoderPlan:
    """Append the encoder's stages."""
    tower, w, n = s.tower, s.w, s.tower.embedding_length
    x = _subsampled(s)
    most = s.ops.batch
    relative = _relative_keys(s)
    s.begin("tokens", most)
    recent = s.taps("recent", KERNEL)
    for i in range(tower.block_count):
        if i and i % BLOCKS_PER_SUBMIT == 0:
            s.begin("tokens", most)
        x = _Block(s, f"a.blk.{i}.", relative[i], recent).run(x, ("x", "other")[(i + 1) % 2])
    y = s.ops.project(
        "projected", x, w.matrix("a.pre_encode.out.weight", n, n), w.optional_vector(("a.pre_encode.out.bias", n))
    )
    return finish(s, rows.plain_rms_norm(s.ops, y, n, EPS), "mm.a.input_projection", n)


def _subsampled(s: Stages) -> Buffer:
    """Two convolutions over frames and bins, each with a norm over its channels: (frames / 4, n_embd)."""
    tower, w, n = s.tower, s.w, s.tower.embedding_length
    frames, bins = (FRAMES + 1) // 2, (tower.mels + 1) // 2
    ops = s.begin("first", frames * bins)
    name = "a.conv1d.0"
    channels = w.rows(name + ".weight")
    bias = w.optional_vector((name + ".bias", channels))
    x = ops.project("convolved", s.input("frames", 9), w.matrix(name + ".weight", channels, 9), bias)
    s.begin("first_frames", frames)  # a dispatch has up to 65,535 rows: the bins of a frame count as one
    x = _normed(s, x, name, channels, bins)
    frames, bins = (frames + 1) // 2, (bins + 1) // 2
    ops = s.begin("second", frames * bins)
    name, before = "a.conv1d.1", channels
    channels = w.rows(name + ".weight")
    bias = w.optional_vector((name + ".bias", channels))
    unfolded = rows.unfold(ops, x, before, s.taps("second", 9))
    x = _normed(
        s, ops.project("convolved", unfolded, w.matrix(name + ".weight", channels, 9 * before), bias), name, channels
    )
    ops = s.begin("tokens", frames)
    joined = rows.merged(ops, x, channels, bins, None if pad(channels) == channels else s.taps("bins", bins))
    y = s.ops.buffer("audio.x", (frames, pad(n)))
    bias = w.optional_vector(("a.input_projection.bias", n))
    project(s, joined, "a.input_projection", w.matrix("a.input_projection.weight", n, channels * bins), y, bias=bias)
    return y


def _normed(s: Stages, x: Buffer, name: str, cols: int, repeat: int = 1) -> Buffer:
    """relu(the layer norm of each row of `cols` channels). `repeat`: rows of x for each row of the stage."""
    ops = s.ops
    y = ops.buffer(f"{ops.name}.norm", x.shape)
    norm = rows.RowNorm(s.w.vector((name + ".norm.weight", cols)), cols, EPS, mean=True)
    rows.norm_into(ops, x, norm, y, parts=repeat)
    z = ops.buffer(f"{ops.name}.relu", x.shape)
    return ops.activate(y, z, cols, "relu", gated=False, rows=TokenRows(repeat))


def _relative_keys(s: Stages) -> list[Buffer]:
    """The keys of distances 0 to WINDOW - 1 in each block: (WINDOW, n_embd)."""
    n = s.tower.embedding_length
    ops = s.begin("distances", WINDOW)
    table = ops.buffer("audio.distances", (WINDOW, pad(n)), "f32", "state")
    s.plan.constants[table.name] = _sinusoids(n, pad(n))
    found = []
    for i in range(s.tower.block_count):
        name = f"a.blk.{i}.attn_k_rel.weight"
        y = ops.buffer(f"audio.relative.{i}", (WINDOW, pad(n)))
        products.append(ops, Product(table, s.w.matrix(name, n, n), y))
        found.append(y)
    return found


def _sinusoids(cols: int, width: int) -> bytes:
    half = cols // 2
    step = log(10000.0) / max(half - 1, 1)
    out = []
    for distance in range(WINDOW):
        angles = [distance * exp(-i * step) for i in range(half)]
        out += [*map(sin, angles), *map(cos, angles), *[0.0] * (width - 2 * half)]
    return struct.pack(f"<{len(out)}f", *out)


@dataclass(frozen=True)
class _Block:
    """One block. `b`: the prefix of its tensors' names."""

    s: Stages
    b: str
    relative: Buffer
    recent: Buffer  # taps of the rows that the convolution sees

    def run(self, x: Buffer, to: str) -> Buffer:
        """Append the block; x is changed, the result is in the buffer `to`."""
        self._feed_forward(x, "")
        self._attention(x)
        self._convolution(x)
        self._feed_forward(x, "_1")
        n, ops = self.s.tower.embedding_length, self.s.ops
        y = ops.buffer(f"audio.{to}", x.shape)
        rows.norm_into(ops, x, rows.RowNorm(self.s.w.vector((self.b + "ln2.weight", n)), n, EPS), y)
        return y

    def _normed(self, name: str, x: Buffer, *, for_product: bool = True) -> Buffer:
        n, ops = self.s.tower.embedding_length, self.s.ops
        norm = self.s.w.vector((self.b + name + ".weight", n))
        kind = ops.input_dtype if for_product else "f32"
        return ops.rms_norm("normed" if for_product else "post_normed", x, norm, EPS, kind)

    def _project(self, x: Buffer, name: str, cols: int, to: str) -> Buffer:
        w, name = self.s.w, self.b + name
        weight = w.matrix(name + ".weight", w.rows(name + ".weight"), cols)
        y = self.s.ops.rows(to, weight.rows)
        project(self.s, x, name, weight, y)
        return y

    def _feed_forward(self, x: Buffer, suffix: str) -> None:
        """x += half of a feed-forward network."""
        n, ops = self.s.tower.embedding_length, self.s.ops
        up = self._project(self._normed("ffn_norm" + suffix, x), "ffn_up" + suffix, n, "up")
        width = self.s.w.rows(self.b + "ffn_up" + suffix + ".weight")
        hidden = ops.activate(up, ops.rows("hidden", width, ops.input_dtype), width, "silu", gated=False)
        down = self._project(hidden, "ffn_down" + suffix, width, "out")
        ops.add_scaled(self._normed("ffn_post_norm" + suffix, down, for_product=False), 0.5, x)

    def _attention(self, x: Buffer) -> None:
        s, tower = self.s, self.s.tower
        n, w = tower.embedding_length, s.w
        y = qkv(s, self._normed("attn_pre_norm", x), self.b)
        scales = tower.head_dim**-0.5 / log(2), log(1 + e) / log(2)
        factor = w.vector((self.b + "per_dim_scale.weight", tower.head_dim))
        heads = attention.RelativeHeads(tower.head_count, tower.head_dim, WINDOW, SOFT_CAP, *scales)
        out = self._project(attention.relative(s.ops, y, self.relative, factor, heads), "attn_out", n, "out")
        s.ops.add_norm(out, w.vector((self.b + "attn_post_norm.weight", n)), x, EPS)

    def _convolution(self, x: Buffer) -> None:
        """x += a gated convolution. The names of its two norms are swapped in the file."""
        s, w, ops, n = self.s, self.s.w, self.s.ops, self.s.tower.embedding_length
        name = self.b + "conv_pw1"
        both = ops.rows("both", 2 * n)
        project(s, self._normed("conv_norm", x), name, halves_swapped(s, name + ".weight", 2 * n, n), both)
        gated = ops.activate(both, ops.rows("glu", n), n, "sigmoid", gated=True)
        kernel = w.matrix(self.b + "conv_dw.weight", n, KERNEL)
        convolved = rows.depthwise(ops, gated, kernel, n, self.recent)
        normed = self._normed("norm_conv", convolved, for_product=False)
        hidden = ops.activate(normed, ops.rows("hidden", n, ops.input_dtype), n, "silu", gated=False)
        ops.add_scaled(self._project(hidden, "conv_pw2", n, "out"), 1.0, x)
