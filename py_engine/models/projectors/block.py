"""The transformer block that encoders share: attention and a feed-forward network, each added to the stream.

A block has the biases, norms, gates, scales and clamps that the file has tensors for.
Source: llama.cpp's `clip_graph::build_vit` in tools/mtmd.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

from py_engine.errors import WispError
from py_engine.models.projectors import mixture
from py_engine.models.projectors.clipped import is_clipped, project
from py_engine.models.projectors.stages import Stages
from py_engine.plan import per_layer, products, rows
from py_engine.plan.cache import Cache
from py_engine.plan.ops import AttentionOptions, HeadNorm, Ops, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.products import Product
from py_engine.plan.rope import Rope
from py_engine.plan.rows import RowNorm

# Conversions of these types may have the names of the two matrices swapped.
OLD = {
    "mlp",
    "ldp",
    "ldpv2",
    "adapter",
    "qwen2vl_merger",
    "qwen2.5vl_merger",
    "exaone4_5",
    "gemma3",
    "idefics3",
    "resampler",
    "minicpmv4_6",
}


# The types whose blocks llama.cpp builds in graphs of their own. These apply no norms of queries and keys, no norms of
# what a block adds, and no scales, even if the file has them.
PLAIN_TYPES = {
    "adapter",
    "exaone4_5",
    "granite4_vision",
    "ldp",
    "ldpv2",
    "mimovl",
    "mlp",
    "qwen2.5vl_merger",
    "qwen2vl_merger",
    "qwen3vl_merger",
    "youtuvl",
}

BARE = re.compile(r"[va]\.blk\.\d+\.ln[12]")  # names of norms that may lack weights, as in llama.cpp


@dataclass(frozen=True)
class Norms:
    """The norms of an encoder: RMS norms, or layer norms."""

    stages: Stages
    rms: bool
    eps: float

    def apply(self, name: str, x: Buffer, to: str, *, for_product: bool = False, cols: int = 0) -> Buffer:
        """The norm of x by the tensors `name`. `for_product`: only products read it. `cols`: if not the encoder's."""
        ops, w, n = self.stages.ops, self.stages.w, cols or self.stages.tower.embedding_length
        dtype = ops.input_dtype if for_product else "f32"
        bias = w.optional_vector((name + ".bias", n))
        if BARE.fullmatch(name) and name + ".weight" not in w:
            y = ops.rows(to, n, dtype)
            ones = ops.constant(f"ones.{n}", [1.0] * n)
            rows.norm_into(ops, x, RowNorm(ones, n, self.eps, mean=not self.rms, bias=bias), y)
            return y
        norm = w.vector((name + ".weight", n))
        if self.rms:
            return ops.rms_norm(to, x, norm, self.eps, dtype, bias)
        y = ops.rows(to, n, dtype)
        ops.layer_norm_into(y, x, norm, bias, self.eps)
        return y


@dataclass(frozen=True)
class Block:
    """One block. `b`: the prefix of its tensors' names."""

    stages: Stages
    norms: Norms
    b: str
    rope: Rope
    cache: Cache
    scale: float
    norm_values: bool = False
    sinks: bool = False
    other_activation: str = ""  # if not the encoder's

    @property
    def ops(self) -> Ops:
        return self.stages.ops

    @property
    def plain(self) -> bool:
        """Whether the block is of one of the PLAIN_TYPES."""
        return self.stages.tower.kind in PLAIN_TYPES

    def add(self, x: Buffer) -> None:
        """x += attention; x += feed-forward network; x *= the block's scale, if it has one."""
        self.attend(x)
        self.feed_forward(x)

    def feed_forward(self, x: Buffer) -> None:
        """x += feed-forward network; x *= the block's scale, if it has one."""
        w, b = self.stages.w, self.b
        normed = self.norms.apply(b + "ln2", x, "normed", for_product=True)
        if mixture.has_experts(self.stages, b):
            mixture.add(self.stages, b, normed, x)
            return
        up, down, width = self._names()
        self._add(down, self._hidden(normed, up, width), width, ("ls2", "ffn_post_norm"), x)
        if b + "out_scale.weight" in w and not self.plain:
            per_layer.scale_by(self.ops, x, w.vector((b + "out_scale.weight", 1)))

    def attend(self, x: Buffer) -> None:
        """x += attention."""
        self._add("attn_out", self._attention(x), self.stages.tower.widths[0], ("ls1", "attn_post_norm"), x)

    def _attention(self, x: Buffer) -> Buffer:
        tower, w, ops, b = self.stages.tower, self.stages.w, self.ops, self.b
        normed, norm = self.norms.apply(b + "ln1", x, "normed", for_product=True), None
        named = [b + f"attn_{name}_norm.weight" for name in "qk"]
        if not self.plain and w.has_all(named):
            size = w.size(b + "attn_q_norm.weight")
            if size not in (tower.head_dim, tower.widths[0]):
                what = f"Tensor {b}attn_q_norm.weight has {size} values; heads have {tower.head_dim}."
                raise WispError(what, "bad_tensor_shape")
            weight = w.vector(*((name, size) for name in named))
            across = size != tower.head_dim
            norm = HeadNorm(weight, across_heads=across, layer_norm=not self.norms.rms, norm_values=self.norm_values)
        queries = split_qkv(self.stages, normed, b, self.cache) if self.rope.dim == 0 and norm is None else None
        if queries is None:
            y = self.arranged(qkv(self.stages, normed, b))
            queries = ops.split_qkv(y, self.cache, tower.heads, self.rope, norm, self.norms.eps)
        sinks = w.vector((b + "attn_sinks", tower.head_count)) if self.sinks else None
        return ops.attention(queries, self.cache, tower.heads, AttentionOptions(self.scale, causal=False, sinks=sinks))

    def arranged(self, y: Buffer) -> Buffer:
        """Queries, keys and values as the rotation takes them."""
        return y

    def _names(self) -> tuple[str, str, int]:
        """The tensors of the first and the second matrix, and the rows of the first."""
        tower, w, b = self.stages.tower, self.stages.w, self.b
        up, down = "ffn_up", "ffn_down"
        if tower.kind in OLD and w.cols(b + "ffn_down.weight") == tower.embedding_length:
            up, down = down, up
        return up, down, w.rows(b + up + ".weight")

    def _hidden(self, normed: Buffer, up: str, width: int) -> Buffer:
        tower, w, ops, b = self.stages.tower, self.stages.w, self.ops, self.b
        n, names, activation = tower.embedding_length, [up], self.other_activation or tower.activation
        if b + "ffn_gate.weight" in w or "<" in activation:  # only gated activations have limits
            names = ["ffn_gate", up]
        bias = w.optional_vector(*((b + name + ".bias", width) for name in names))
        if not is_clipped(self.stages, b + up):
            projection = Projection(w.stack([(b + name + ".weight", width) for name in names], n), bias)
            if len(names) == 1:
                return ops.activated(normed, projection, activation)
            return ops.gated(normed, projection, activation)
        y = ops.rows("gate_up", len(names) * width)
        for i, name in enumerate(names):
            project(self.stages, normed, b + name, w.matrix(b + name + ".weight", width, n), y, i * width, bias)
        hidden = ops.rows("hidden", width, ops.input_dtype)
        return ops.activate(y, hidden, width, activation, gated=len(names) > 1)

    def _add(self, name: str, x: Buffer, cols: int, after: tuple[str, str], to: Buffer) -> None:
        """to += x times the matrix `name`, first scaled column by column or normalised where the file has `after`."""
        w, ops, b = self.stages.w, self.ops, self.b
        n = self.stages.tower.embedding_length
        weight, bias = w.matrix(b + name + ".weight", n, cols), w.optional_vector((b + name + ".bias", n))
        scale, norm = (None if self.plain else w.optional_vector((b + tensor + ".weight", n)) for tensor in after)
        if not (scale or norm or is_clipped(self.stages, b + name)):
            ops.linear(x, weight, bias, to)
            return
        y = ops.rows("out", n)
        project(self.stages, x, b + name, weight, y, bias=bias)
        if norm:
            if scale or not self.norms.rms:
                raise WispError("This kind of projector is not supported yet.", "unsupported_architecture")
            ops.add_norm(y, norm, to, self.norms.eps)
            return
        if scale:
            rows.shift_scale(ops, y, scale)
        ops.add_scaled(y, 1.0, to)


@dataclass(frozen=True)
class Part:
    """Matrices of queries, keys or values that are multiplied at once; `at`: their first row among all."""

    name: str
    weight: Weight
    bias: Weight | None
    at: int


def qkv(s: Stages, normed: Buffer, b: str) -> Buffer:
    """Queries, keys and values beside each other by the tensors of the block `b`."""
    queries, keys = s.tower.widths
    y = s.ops.rows("qkv", queries + 2 * keys)
    for part in _parts(s, b):
        project(s, normed, part.name, part.weight, y, part.at, part.bias)
    return y


def split_qkv(s: Stages, normed: Buffer, b: str, cache: Cache) -> Buffer | None:
    """Put keys and values into the cache as they are; return the queries. None: no kernel can do that."""
    parts, (queries, keys) = _parts(s, b), s.tower.widths
    if any(is_clipped(s, part.name) or not products.stores_halves(s.ops, part.weight) for part in parts):
        return None
    q, epilogue = s.ops.rows("q", queries, s.ops.input_dtype), products.split_heads(cache, queries, keys)
    for part in parts:
        products.append(s.ops, Product(normed, part.weight, q, part.bias, epilogue, row0=part.at))
    return q


def _parts(s: Stages, b: str) -> list[Part]:
    w, n, (queries, keys) = s.w, s.tower.embedding_length, s.tower.widths
    sizes = {"attn_q": queries, "attn_k": keys, "attn_v": keys}
    if b + "attn_qkv.weight" in w:
        sizes = {"attn_qkv": queries + 2 * keys}
    names = list(sizes)
    biased = [name for name in names if b + name + ".bias" in w]
    if biased and len(biased) < len(names) and queries != keys:
        raise WispError("This kind of projector is not supported yet.", "unsupported_architecture")
    # a part without a bias takes the place of one that is not read
    bias = w.optional_vector(
        *((b + (name if name in biased else biased[0]) + ".bias", sizes[name]) for name in names if biased)
    )
    found, at = list[Part](), 0
    for _, group in groupby(names, lambda name: (name in biased, name if is_clipped(s, b + name) else "")):
        together = list(group)
        for weight in w.stack([(b + name + ".weight", sizes[name]) for name in together], n):
            found.append(Part(b + together[0], weight, bias if together[0] in biased else None, at))
            at += weight.rows
    return found
