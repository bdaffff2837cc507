"""Gemma 3n's encoder of pictures (MobileNetV5): convolutions over fewer and fewer places, attention, and an adapter.

Each of its four stages has half of the side of the one before. The last two stages' results are joined, averaged to
16 x 16 places, and projected. A row is a place, a column a channel; the host writes the taps of all convolutions.
Source: mobilenetv5.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from math import isqrt

from py_engine.errors import WispError
from py_engine.media.kinds import MOBILE_SIDE
from py_engine.models.projectors.colours import byte_values
from py_engine.models.projectors.heads import output
from py_engine.models.projectors.stages import SEGMENT_TABLES, Stages
from py_engine.models.projectors.tower import Tower
from py_engine.plan import products, rows
from py_engine.plan.cache import UNPAGED, Cache
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.op_list import pad
from py_engine.plan.ops import AttentionOptions, TokenRows
from py_engine.plan.plan import Buffer
from py_engine.plan.products import Product

EPS = 1e-6  # of all norms, whatever the metadata says
STAGES = 4
KERNELS = (3, 5)  # sides
STEM = 3  # side of the first kernel, in pixels
PHASES = 4  # places of the first convolution that a row has: a dispatch has up to 65,535 rows
MAX_BLOCKS = 128  # of a stage
ATTENDED = 2  # the first stage whose places are attended to


def sides(tower: Tower) -> list[int]:
    """Places along a side of each stage."""
    return [tower.patch * MOBILE_SIDE >> 2 + i for i in range(STAGES)]


def rows_of(stage: int) -> str:
    """The name of a stage's rows."""
    return f"stage_{stage}" if stage else "patches"


def build(s: Stages) -> EncoderPlan:
    """Append the encoder's stages."""
    if any(s.tower.mean):  # places outside of the picture are 0, which the host writes as a byte
        raise WispError("Pictures of this type of projector cannot have a mean.", "unsupported_architecture")
    net = MobileNet(s)
    x, cols = net.stem()
    found = []
    for stage in range(STAGES):
        x, cols = net.stage(stage, x, cols)
        found.append((x, cols))
    return net.finish(*found[-2:])


class MobileNet:
    """Appends the parts of the encoder. `x`: their input, (places of a stage, `cols` channels)."""

    def __init__(self, s: Stages) -> None:
        self.s, self.w, self.sides = s, s.w, sides(s.tower)
        self.gammas = self._gammas()

    def begin(self, stage: int) -> None:
        """Begin a list over the places of a stage."""
        self.s.begin(rows_of(stage), self.sides[stage] ** 2)

    def _gammas(self) -> dict[str, Buffer]:
        """The scales of the blocks' channels in f32; files have them in f16, too."""
        found = dict[str, Buffer]()
        names = [name for name in self.w.header.tensors if name.endswith(".layer_scale.gamma")]
        ops, chosen = self.s.begin("once", 1), self.s.taps("once", 1)
        for name in names:
            cols = self.w.size(name)
            found[name] = ops.buffer(f"image.{name}", (1, pad(cols)))
            rows.gather(ops, self.w.matrix(name, 1, cols), cols, chosen, found[name])
        return found

    def stem(self) -> tuple[Buffer, int]:
        """A convolution of pixels with stride 2: (4 * n, channels). The places of a square follow each other."""
        s, w, name = self.s, self.w, "v.conv_stem.conv"
        self.begin(0)
        cols = w.rows(name + ".weight")
        kernel, bias = w.matrix(name + ".weight", cols, 3 * STEM**2), w.optional_vector((name + ".bias", cols))
        pixels = s.words("pixels", -(-3 * (4 * self.sides[0] + 1) ** 2 // 4))
        y = s.ops.buffer("image.stem", (s.ops.batch, PHASES * pad(cols)))
        for phase in range(PHASES):
            patches = rows.patches(s.ops, pixels, s.taps(f"stem_{phase}", 1), byte_values(s), STEM)
            convolved = s.ops.project("convolved", patches, kernel, bias)
            rows.copy_columns(s.ops, rows.Parts(convolved), rows.Parts(y, phase * pad(cols)), cols)
        shape = PHASES * s.ops.batch, pad(cols)
        normed, x = (s.ops.buffer(f"image.stem_{step}", shape) for step in ("norm", "activated"))
        norm = rows.RowNorm(w.vector(("v.conv_stem.bn.weight", cols)), cols, EPS)
        rows.norm_into(s.ops, y, norm, normed, PHASES)
        return s.ops.activate(normed, x, cols, "gelu", gated=False, rows=TokenRows(PHASES)), cols

    def stage(self, stage: int, x: Buffer, cols: int) -> tuple[Buffer, int]:
        """The blocks of a stage, the first of which halves the side. Returns the result and its channels."""
        for i in range(MAX_BLOCKS):
            b = f"v.blk.{stage}.{i}."
            if b + "conv_exp.weight" in self.w:
                x, cols = self.edge(b, stage, x, cols, halve=i == 0)
            elif b + "pw_exp.conv.weight" in self.w:
                x, cols = self.inverted(b, stage, x, cols, halve=i == 0)
            elif b + "attn.query.proj.weight" in self.w and i:
                self.attend(b, stage, x, cols)
            elif i:
                return x, cols
            else:
                break
        raise WispError(
            f"Stage {stage} of the encoder begins with no convolution, or has too many blocks.",
            "unsupported_architecture",
        )

    def edge(self, b: str, stage: int, x: Buffer, cols: int, *, halve: bool) -> tuple[Buffer, int]:
        """A convolution to more channels, then a product."""
        w, wide, out = self.w, self.w.rows(b + "conv_exp.weight"), self.w.rows(b + "conv_pwl.weight")
        self.begin(stage)
        ops = self.s.ops
        unfolded = rows.unfold(ops, x, cols, self._taps(3, rows_of(stage), halve=halve))
        y = ops.project("expanded", unfolded, w.matrix(b + "conv_exp.weight", wide, 9 * cols), None)
        hidden = self._activated(y, b + "bn1", wide)
        y = ops.project("projected", hidden, w.matrix(b + "conv_pwl.weight", out, wide), None)
        return self._added(y, b + "bn2", x if out == cols and not halve else None, out), out

    def inverted(self, b: str, stage: int, x: Buffer, cols: int, *, halve: bool) -> tuple[Buffer, int]:
        """A product to more channels between convolutions of each channel, which are optional; then a product."""
        w, wide, out = self.w, self.w.rows(b + "pw_exp.conv.weight"), self.w.rows(b + "pw_proj.conv.weight")
        middle = b + "dw_mid.conv.weight" in w
        if halve and (not middle or not stage):
            raise WispError(f"Stage {stage} of the encoder has no stride.", "unsupported_architecture")
        self.begin(stage - halve)
        y = x
        if b + "dw_start.conv.weight" in w:
            y = self._depthwise(b + "dw_start.conv", rows_of(stage - halve), x, cols)
            y = self._normed(y, b + "dw_start.bn", cols, for_product=True)
        y = self.s.ops.project("expanded", y, w.matrix(b + "pw_exp.conv.weight", wide, cols), None)
        y = self._activated(y, b + "pw_exp.bn", wide, for_product=not middle)
        if middle:
            if halve:
                self.begin(stage)
            y = self._depthwise(b + "dw_mid.conv", rows_of(stage), y, wide, halve=halve)
            y = self._activated(y, b + "dw_mid.bn", wide)
        y = self.s.ops.project("projected", y, w.matrix(b + "pw_proj.conv.weight", out, wide), None)
        return self._added(y, b + "pw_proj.bn", x if out == cols and not halve else None, out, self._gamma(b, out)), out

    def attend(self, b: str, stage: int, x: Buffer, cols: int) -> None:
        """x += attention; its heads share keys and values, which are of every other place where the file says so."""
        s, w = self.s, self.w
        head = w.rows(b + "attn.key.proj.weight")
        wide = w.rows(b + "attn.query.proj.weight")
        if not head or head % 4 or wide % head:
            raise WispError(f"Heads of {head} of {wide} channels are not supported.", "unsupported_architecture")
        heads, halved = (wide // head, 1, head), b + "attn.key.down_conv.weight" in w
        table = stage + halved - ATTENDED
        if table not in range(len(SEGMENT_TABLES)):
            raise WispError(f"Attention in stage {stage} is not supported.", "unsupported_architecture")
        self.begin(stage)
        normed = self._normed(x, b + "norm", cols)
        q = s.ops.project("q", normed, w.matrix(b + "attn.query.proj.weight", wide, cols), None)
        if halved:
            s.begin(f"keys_{stage}", (self.sides[stage] // 2) ** 2)
        ops = s.ops
        both = ops.rows("keys_values", 2 * head)
        for i, name in enumerate((b + "attn.key", b + "attn.value")):
            y = normed
            if halved:
                y = self._depthwise(name + ".down_conv", f"keys_{stage}", normed, cols, halve=True)
                y = self._normed(y, name + ".norm", cols, for_product=True)
            weight = w.matrix(name + ".proj.weight", head, cols)
            products.append(ops, Product(y, weight, both, None, row0=i * head))
        names = (f"image.{name}.{stage}.{ops.batch}.{head}" for name in "kv")
        k, v = (ops.buffer(name, (ops.batch, head), ops.input_dtype) for name in names)
        cache = Cache(k, v, ops.input_dtype, UNPAGED)
        ops.split_qkv(both, cache, (0, 1, head), s.no_rope(), None, EPS)
        if halved:
            self.begin(stage)
        first = len(s.ops.ops)
        attended = s.ops.attention(q, cache, heads, AttentionOptions(head**-0.5, causal=False))
        s.segments(first, SEGMENT_TABLES[table])
        y = s.ops.project("projected", attended, w.matrix(b + "attn.output.proj.weight", cols, wide), None)
        if gamma := self._gamma(b, cols):
            rows.shift_scale(s.ops, y, gamma)
        s.ops.add_scaled(y, 1.0, x)

    def finish(self, fine: tuple[Buffer, int], coarse: tuple[Buffer, int]) -> EncoderPlan:
        """Join two stages' results, the coarse one's places repeated; then a network, averages, and the projection."""
        s, w, (x, cols), (y, more) = self.s, self.w, fine, coarse
        self.begin(STAGES - 2)
        ops = s.ops
        raised, joined = ops.rows("raised", more), ops.rows("joined", cols + more)
        rows.gather(ops, y, more, s.taps("raised", 1), raised)
        for part, first, size in ((x, 0, cols), (raised, cols, more)):
            rows.copy_columns(ops, rows.Parts(part), rows.Parts(joined, first), size)
        names = ("v.msfa.ffn.pw_exp", "v.msfa.ffn.pw_proj")
        wide, n = (w.rows(name + ".conv.weight") for name in names)
        y = ops.project("expanded", joined, w.matrix(names[0] + ".conv.weight", wide, cols + more), None)
        y = self._activated(y, names[0] + ".bn", wide)
        y = ops.project("projected", y, w.matrix(names[1] + ".conv.weight", n, wide), None)
        y = self._normed(y, names[1] + ".bn", n)
        ops = s.begin("tokens", MOBILE_SIDE**2)
        pooled = ops.rows("pooled", n)
        rows.gather(ops, y, n, s.taps("pool", (self.sides[STAGES - 2] // MOBILE_SIDE) ** 2), pooled)
        y = self._normed(pooled, "v.msfa.norm", n)
        # llama.cpp multiplies y by sqrt(n) before this norm, which matters to the eps only
        norm = w.vector(("mm.soft_emb_norm.weight", n))
        y = ops.rms_norm("embedding_norm", y, norm, EPS / n, ops.input_dtype)
        width = w.rows("mm.input_projection.weight")
        y = ops.project("embedding", y, w.matrix("mm.input_projection.weight", width, n), None)
        result = output(s, width)
        rows.norm_into(ops, y, rows.RowNorm(ops.constant(f"ones.{width}", [1.0] * width), width, EPS), result)
        return s.finish(result, width)

    def _taps(self, side: int, name: str, *, halve: bool) -> Buffer:
        """Taps of a kernel of side x side places, for rows of a name."""
        if side not in KERNELS:
            raise WispError(f"Kernels of {side} x {side} places are not supported.", "unsupported_architecture")
        return self.s.taps(f"{name}_{'half' if halve else 'near'}_{side}", side**2)

    def _depthwise(self, name: str, to: str, x: Buffer, cols: int, *, halve: bool = False) -> Buffer:
        """A convolution of each channel. `to`: the name of the result's rows."""
        side = isqrt(self.w.cols(name + ".weight"))
        kernel = self.w.matrix(name + ".weight", cols, side**2)
        return rows.depthwise(self.s.ops, x, kernel, cols, self._taps(side, to, halve=halve))

    def _normed(self, x: Buffer, name: str, cols: int, *, for_product: bool = False, to: str = "normed") -> Buffer:
        ops, norm = self.s.ops, self.w.vector((name + ".weight", cols))
        if for_product:
            return ops.rms_norm(to + "_input", x, norm, EPS, ops.input_dtype)
        return ops.rms_norm(to, x, norm, EPS)

    def _activated(self, x: Buffer, name: str, cols: int, *, for_product: bool = True) -> Buffer:
        """gelu(the norm of x)."""
        ops = self.s.ops
        y = ops.rows("hidden", cols, ops.input_dtype) if for_product else ops.rows("activated", cols)
        return ops.activate(self._normed(x, name, cols), y, cols, "gelu", gated=False)

    def _added(self, y: Buffer, name: str, x: Buffer | None, cols: int, gamma: Buffer | None = None) -> Buffer:
        """The norm of y, times a scale for each channel, added to x if there is one."""
        ops = self.s.ops
        if cols % 4:
            raise WispError(f"Wisp cannot run this type of encoder with {cols} channels.", "unsupported_architecture")
        normed = self._normed(y, name, cols, to="x" if x is None else "normed")
        if gamma:
            rows.shift_scale(ops, normed, gamma)
        if x is None:
            return normed
        ops.add_scaled(normed, 1.0, x)
        return x

    def _gamma(self, b: str, cols: int) -> Buffer | None:
        """The scales of a block's channels, if it has them."""
        gamma = self.gammas.get(b + "layer_scale.gamma")
        if gamma and gamma.shape[1] != pad(cols):
            raise WispError(f"The tensor {b}layer_scale.gamma has not {cols} values.", "bad_tensor_shape")
        return gamma
