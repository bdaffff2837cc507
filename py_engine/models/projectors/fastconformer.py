"""LFM2-Audio's and Parakeet's encoders of sound: a FastConformer (Rekesh et al. 2023) and an MLP.

Convolutions to an eighth of the frames, then blocks of a conformer: half a feed-forward network, attention to all rows
with a key for each distance, a convolution over some rows, and half of another feed-forward network.
Source: conformer.cpp and parakeet.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.media.kinds import D1OMNI_SECONDS, LFM2_SOUND, MAX_SECONDS
from py_engine.models.projectors.block import Norms, qkv
from py_engine.models.projectors.heads import finish, hidden, output
from py_engine.models.projectors.stages import Stages
from py_engine.models.projectors.tower import Tower
from py_engine.plan import attention, per_layer, products, rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.ops import Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.products import Product
from py_engine.plan.tiles import MAX_WORKGROUPS

EPS = 1e-5  # of LFM2-Audio's norms, whatever the metadata says
PARAKEET_EPS = 1e-6  # of the norm after Parakeet's blocks
POSITIONS = 512  # values of a distance's sinusoids in LFM2-Audio
PLACES = 9  # of a convolution in two dimensions
BLOCKS_PER_SUBMIT = 4


def most_frames(tower: Tower) -> int:
    """Frames of the longest clip. A dispatch has a limited number of rows."""
    seconds = MAX_SECONDS.get(tower.kind, D1OMNI_SECONDS)
    return min(100 * seconds + 1, 4 * (MAX_WORKGROUPS // -(-tower.mels // 4)))


def build(s: Stages) -> EncoderPlan:
    """Append the encoder's stages."""
    tower, w, n = s.tower, s.w, s.tower.embedding_length
    channels, bins, y = _subsampled(s)
    most = -(-s.most // 8)
    relative = _relative_keys(s, 2 * most - 1)
    ops = s.begin("tokens", most)
    joined = rows.unfold(ops, y, channels, s.taps("bins", bins))
    x = ops.project(
        "x", joined, w.matrix("a.pre_encode.out.weight", n, channels * bins), _bias(s, "a.pre_encode.out", n)
    )
    norms, near = Norms(s, rms=False, eps=EPS if tower.kind in LFM2_SOUND else tower.eps), s.taps("near", tower.kernel)
    for i in range(tower.block_count):
        if i and i % BLOCKS_PER_SUBMIT == 0:
            s.begin("tokens", most)
        x = ConformerBlock(s, norms, f"a.blk.{i}.", relative[i], near).run(x, ("x", "other")[(i + 1) % 2])
    if tower.kind == "parakeet":
        last = Norms(s, rms=True, eps=PARAKEET_EPS).apply("mm.a.norm_pre", x, "normed", for_product=True)
        y, width = hidden(s, last, "mm.a.mlp.1", n, "relu2", bias=False)
        return finish(s, y, "mm.a.mlp.2", width, bias=False)
    y, width = hidden(s, norms.apply("mm.a.mlp.0", x, "normed", for_product=True), "mm.a.mlp.1", n, "gelu_erf")
    return _with_residual(s, y, width) if tower.kind == "d1omni_a" else finish(s, y, "mm.a.mlp.3", width)


def _with_residual(s: Stages, x: Buffer, cols: int) -> EncoderPlan:
    """D1-Omni's end: a layer, then a residual block of a norm and two layers."""
    w, ops, names = s.w, s.ops, [f"mm.a.mlp.{i}" for i in range(3, 7)]
    width, inner = (w.rows(names[i] + ".weight") for i in (0, 2))
    y = output(s, width)
    products.append(ops, Product(x, w.matrix(names[0] + ".weight", width, cols), y, _bias(s, names[0], width)))
    normed = Norms(s, rms=False, eps=EPS).apply(names[1], y, "projected_norm", for_product=True, cols=width)
    mid = ops.project("mid", normed, w.matrix(names[2] + ".weight", inner, width), _bias(s, names[2], inner))
    mid = ops.activate(mid, ops.rows("mid_activated", inner, ops.input_dtype), inner, "gelu_erf", gated=False)
    ops.linear(mid, w.matrix(names[3] + ".weight", width, inner), _bias(s, names[3], width), y)
    return s.finish(y, width)


def positions(tower: Tower) -> int:
    """Values of a distance's sinusoids."""
    return POSITIONS if tower.kind in LFM2_SOUND else tower.embedding_length


def _bias(s: Stages, name: str, size: int) -> Weight | None:
    return s.w.optional_vector((name + ".bias", size))


def _subsampled(s: Stages) -> tuple[int, int, Buffer]:
    """Append three convolutions that halve frames and bins: channels, bins, and (an eighth of both, channels)."""
    tower, w = s.tower, s.w
    channels = w.rows("a.conv1d.0.weight")
    quarters, bins = -(-s.most // 4), -(-tower.mels // 4)
    ops = s.begin("quarter_frames", quarters)
    names = ("a.conv1d.0", "a.conv1d.2")
    kernels, *others = w.stack([(name + ".weight", channels) for name in names], PLACES)
    if others:
        raise WispError(f"Tensors {' and '.join(names)} differ in type.", "unsupported_quantization")
    biases = w.vector(*((name + ".bias", channels) for name in names))
    frames, length = s.input("frames", tower.mels, 4 * quarters), s.words("length", 4)
    x = rows.subsample(ops, frames, length, kernels, biases, tower.mels)
    s.begin("quarters", quarters * bins)
    x = _pointwise(s, x, "a.conv1d.3", channels)
    eighths, bins = -(-quarters // 2), -(-bins // 2)
    ops = s.begin("eighths", eighths * bins)
    kernel, bias = w.matrix("a.conv1d.5.weight", channels, PLACES), _bias(s, "a.conv1d.5", channels)
    x = rows.depthwise(ops, x, kernel, channels, s.taps("eighths", PLACES), bias)
    return channels, bins, _pointwise(s, x, "a.conv1d.6", channels)


def _pointwise(s: Stages, x: Buffer, name: str, channels: int) -> Buffer:
    """relu(x times the kernel of one place + bias)."""
    weight, ops = s.w.matrix(name + ".weight", channels, channels), s.ops
    y = ops.project("convolved", x, weight, _bias(s, name, channels))
    return ops.activate(y, ops.rows("activated", channels), channels, "relu", gated=False)


def _relative_keys(s: Stages, most: int) -> list[Buffer]:
    """The keys of all distances in each block: (2 * tokens - 1, n_embd)."""
    n, width = s.tower.embedding_length, positions(s.tower)
    ops = s.begin("distances", most)
    sinusoids = s.input("distances", width)
    weights = [s.w.matrix(f"a.blk.{i}.linear_pos.weight", n, width) for i in range(s.tower.block_count)]
    return [ops.project(f"relative.{i}", sinusoids, weight, None) for i, weight in enumerate(weights)]


@dataclass(frozen=True)
class ConformerBlock:
    """One block. `b`: the prefix of its tensors' names. `block`: the rows that see each other; 0: all do."""

    s: Stages
    norms: Norms
    b: str
    relative: Buffer
    near: Buffer  # taps of the rows that the convolution sees
    block: int = 0

    def run(self, x: Buffer, to: str) -> Buffer:
        """Append the block; x is changed, the result is in the buffer `to`."""
        self._feed_forward(x, "")
        self._attention(x)
        self._convolution(x)
        self._feed_forward(x, "_1")
        return self.norms.apply(self.b + "ln2", x, to)

    def _normed(self, name: str, x: Buffer) -> Buffer:
        return self.norms.apply(self.b + name, x, "normed", for_product=True)

    def _matrix(self, name: str, count: int, cols: int) -> tuple[Weight, Weight | None]:
        """A matrix and its bias."""
        return self.s.w.matrix(self.b + name + ".weight", count, cols), _bias(self.s, self.b + name, count)

    def _feed_forward(self, x: Buffer, suffix: str) -> None:
        """x += half of a feed-forward network."""
        n, ops = self.s.tower.embedding_length, self.s.ops
        width = self.s.w.rows(f"{self.b}ffn_up{suffix}.weight")
        weight, bias = self._matrix("ffn_up" + suffix, width, n)
        y = ops.activated(self._normed("ffn_norm" + suffix, x), Projection([weight], bias), "silu")
        ops.add_scaled(ops.project("out", y, *self._matrix("ffn_down" + suffix, n, width)), 0.5, x)

    def _attention(self, x: Buffer) -> None:
        s, tower, n = self.s, self.s.tower, self.s.tower.embedding_length
        y = qkv(s, self._normed("ln1", x), self.b)
        names = [f"{self.b}pos_bias_{name}" for name in "uv"]
        biases: Weight | Buffer = s.ops.constant(f"zeros.{2 * n}", [0.0] * (2 * n))
        if s.w.has_all(names):
            biases = s.w.vector(*((name, n) for name in names))
        heads = attention.HeadsOfBlocks(tower.head_count, tower.head_dim, tower.head_dim**-0.5, self.block)
        attended = attention.relative_to_all(s.ops, y, self.relative, biases, heads)
        s.ops.linear(attended, *self._matrix("attn_out", n, n), x)

    def _convolution(self, x: Buffer) -> None:
        """x += a gated convolution. Its batch norm is a factor and a shift."""
        s, ops, n = self.s, self.s.ops, self.s.tower.embedding_length
        both = ops.project("both", self._normed("norm_conv", x), *self._matrix("conv_pw1", 2 * n, n))
        gated = per_layer.gate(ops, per_layer.Gates(both, "sigmoid", first=n), both, 0, n)
        names = ["conv_dw.bias", "conv_norm.weight", "conv_norm.bias"]
        if s.tower.kind == "parakeet":
            names = ["conv_norm_mean", "conv_norm_var", *names[1:]]
        names = [self.b + name for name in names]
        if missing := [name for name in names[1:] if name not in s.w]:
            raise WispError(f"The projector lacks the tensor {missing[0]}.", "missing_tensor")
        terms, size = s.w.optional_vector(*((name, n) for name in names)), self.near.shape[1]
        convolved = rows.depthwise(ops, gated, s.w.matrix(self.b + "conv_dw.weight", n, size), n, self.near, terms)
        y = ops.activate(convolved, ops.rows("hidden", n, ops.input_dtype), n, "silu", gated=False)
        ops.linear(y, *self._matrix("conv_pw2", n, n), x)
