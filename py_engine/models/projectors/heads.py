"""The ends of encoders of pictures: from encoded patches to the tokens' embeddings. Each returns the finished plan."""

from __future__ import annotations

from collections.abc import Callable

from py_engine.media.kinds import LFM2
from py_engine.models.projectors import mobile, squares
from py_engine.models.projectors.block import Norms
from py_engine.models.projectors.stages import Stages
from py_engine.plan import products, rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.op_list import pad
from py_engine.plan.ops import AttentionOptions, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.products import Product

EPS = 1e-5  # of the norms that have an eps of their own
YOUTU_EPS = 1e-6  # of the norm of Youtu-VL's patches
DOTS_EPS = 1e-6  # of the norm of dots.ocr's patches
QUERY_HEAD = 128  # width of a head of MiniCPM-V's queries
MAX_SIDE = 1024  # patches along a side of a picture of MiniCPM-V


def merge(s: Stages, x: Buffer, cols: int = 0) -> Buffer:
    """Begin the stage of tokens; join the patches of each: (n, merge^2 * cols). `cols`: if not the encoder's."""
    count = s.tower.merge**2
    cols = cols or s.tower.embedding_length
    ops = s.begin("tokens", s.most // count)
    if count == 1 and "v.class_embd" not in s.w:
        return x
    scattered = "v.class_embd" in s.w or pad(cols) != cols
    return rows.merged(ops, x, cols, count, s.taps("merge", count) if scattered else None)


def output(s: Stages, width: int) -> Buffer:
    """The buffer of the results."""
    return s.ops.buffer(f"{s.tower.modality}.output", (s.ops.batch, pad(width)))


def finish(s: Stages, x: Buffer, name: str, cols: int, *, bias: bool = True) -> EncoderPlan:
    """The last matrix, from x to the results."""
    w = s.w
    width = w.rows(name + ".weight")
    y = output(s, width)
    added = w.optional_vector((name + ".bias", width)) if bias else None
    products.append(s.ops, Product(x, w.matrix(name + ".weight", width, cols), y, added))
    return s.finish(y, width)


def hidden(
    s: Stages, x: Buffer, name: str, cols: int, activation: str = "gelu", *, bias: bool = True
) -> tuple[Buffer, int]:
    """A layer with an activation, and its width."""
    w = s.w
    width = w.rows(name + ".weight")
    added = w.optional_vector((name + ".bias", width)) if bias else None
    return s.ops.activated(x, Projection([w.matrix(name + ".weight", width, cols)], added), activation), width


def _layer_norm(s: Stages, x: Buffer, name: str, cols: int, eps: float) -> Buffer:
    return Norms(s, rms=False, eps=eps).apply(name, x, "merged_norm", for_product=True, cols=cols)


def _idefics3(s: Stages, x: Buffer) -> EncoderPlan:
    return finish(s, merge(s, x), "mm.model.fc", s.tower.merge**2 * s.tower.embedding_length)


def _pooled(s: Stages, x: Buffer) -> Buffer:
    """Begin the stage of tokens; average the patches of each: (n, n_embd)."""
    count, n = s.tower.merge**2, s.tower.embedding_length
    ops = s.begin("tokens", s.most // count)
    y = ops.rows("pooled", n)
    rows.gather(ops, x, n, s.taps("pool", count), y)
    return y


def _gemma3(s: Stages, x: Buffer) -> EncoderPlan:
    """The last matrix is stored transposed."""
    w, n = s.w, s.tower.embedding_length
    norm = Norms(s, rms=True, eps=s.tower.eps)
    y = norm.apply("mm.soft_emb_norm", _pooled(s, x), "pooled_norm")
    width = w.cols("mm.input_projection.weight")
    out = output(s, width)
    rows.project_transposed(s.ops, y, w.matrix("mm.input_projection.weight", n, width), out)
    return s.finish(out, width)


def _gemma4v(s: Stages, x: Buffer) -> EncoderPlan:
    w, n = s.w, s.tower.embedding_length
    y = _pooled(s, x)
    if "v.std_scale" in w and "v.std_bias" in w:
        rows.shift_scale(s.ops, y, w.vector(("v.std_scale", n)), w.vector(("v.std_bias", n)))
    normed = rows.plain_rms_norm(s.ops, y, n, s.tower.eps)
    return finish(s, normed, "mm.input_projection", n)


def _gemma4uv(s: Stages, x: Buffer) -> EncoderPlan:
    n = s.tower.embedding_length
    normed = rows.plain_rms_norm(s.begin("tokens", s.most), x, n, s.tower.eps)
    return finish(s, normed, "mm.input_projection", n)


def _mlp(s: Stages, x: Buffer) -> EncoderPlan:
    cols = s.tower.features_width
    y, width = hidden(s, merge(s, x, cols), "mm.0", cols)
    return finish(s, y, "mm.2", width)


def _llava(s: Stages, x: Buffer) -> EncoderPlan:
    """LLaVA's two layers; of Yi-VL, each with a norm, which llama.cpp calls mlp_norm."""
    if "mm.3.weight" not in s.w:
        return _mlp(s, x)
    w, norms, width = s.w, Norms(s, rms=False, eps=s.tower.eps), s.w.rows("mm.0.weight")
    cols = s.tower.features_width
    x = merge(s, x, cols)
    ops, first = s.ops, w.matrix("mm.0.weight", width, cols)
    y = ops.project("first", x, first, w.vector(("mm.0.bias", width)))
    y = norms.apply("mm.1", y, "first_norm", cols=width)
    y = ops.activate(y, ops.rows("first_activated", width, ops.input_dtype), width, "gelu", gated=False)
    found = finish(s, y, "mm.3", width)
    result = ops.buffer(f"{s.tower.modality}.normed_output", (ops.batch, pad(found.width)))
    norm, bias = (w.vector((f"mm.4.{part}", found.width)) for part in ("weight", "bias"))
    ops.layer_norm_into(result, s.plan.buffers[found.output], norm, bias, s.tower.eps)
    return s.finish(result, found.width)


def _janus_pro(s: Stages, x: Buffer) -> EncoderPlan:
    y, width = hidden(s, merge(s, x), "mm.0", s.tower.embedding_length, s.tower.activation)
    return finish(s, y, "mm.1", width)


def _qwen(s: Stages, x: Buffer) -> EncoderPlan:
    cols = s.tower.merge**2 * s.tower.embedding_length
    y, width = hidden(s, merge(s, x), "mm.0", cols)
    if s.tower.deepstack:
        return DeepStack(s).finish(y, width)
    return ordered(s, finish(s, y, "mm.2", width))


def ordered(s: Stages, found: EncoderPlan) -> EncoderPlan:
    """The results in the order of the picture, if windows have another."""
    if not s.tower.window:
        return found
    y = s.ops.buffer(f"{s.tower.modality}.ordered", (s.ops.batch, pad(found.width)))
    rows.gather(s.ops, s.plan.buffers[found.output], found.width, s.taps("order", 1), y)
    return s.finish(y, found.width)


def _youtuvl(s: Stages, x: Buffer) -> EncoderPlan:
    y = Norms(s, rms=True, eps=YOUTU_EPS).apply("mm.input_norm", x, "merger_norm")
    y, width = hidden(s, merge(s, y), "mm.0", s.tower.merge**2 * s.tower.embedding_length)
    return ordered(s, finish(s, y, "mm.2", width))


class DeepStack:
    """Slices of the results from the outputs of some blocks, after the main one."""

    def __init__(self, s: Stages) -> None:
        self.s = s
        self.names = ["mm.2", *(f"v.deepstack.{i}.fc2" for i in s.tower.deepstack)]
        self.slice = s.w.rows("mm.2.weight")
        self.width = self.slice * len(self.names)
        self.cols = s.tower.merge**2 * s.tower.embedding_length

    def add(self, x: Buffer, block: int) -> None:
        """Append a stage that computes the slice of a block's output x."""
        s, name = self.s, f"v.deepstack.{block}"
        normed = _layer_norm(s, merge(s, x), name + ".norm", self.cols, s.tower.eps)
        y, width = hidden(s, normed, name + ".fc1", self.cols)
        self._project(y, name + ".fc2", width)

    def finish(self, x: Buffer, cols: int) -> EncoderPlan:
        """The main slice."""
        return self.s.finish(self._project(x, "mm.2", cols), self.width)

    def _project(self, x: Buffer, name: str, cols: int) -> Buffer:
        w, y = self.s.w, output(self.s, self.width)
        bias = w.optional_vector(*((other + ".bias", self.slice) for other in self.names))
        at = self.names.index(name) * self.slice
        products.append(self.s.ops, Product(x, w.matrix(name + ".weight", self.slice, cols), y, bias, row0=at))
        return y


def _internvl(s: Stages, x: Buffer) -> EncoderPlan:
    cols = s.tower.merge**2 * s.tower.embedding_length
    y, width = hidden(s, _layer_norm(s, merge(s, x), "mm.model.mlp.0", cols, EPS), "mm.model.mlp.1", cols)
    return finish(s, y, "mm.model.mlp.3", width)


def _lfm2(s: Stages, x: Buffer) -> EncoderPlan:
    cols = s.tower.merge**2 * s.tower.embedding_length
    y = merge(s, x)
    if "mm.input_norm.weight" in s.w:
        y = _layer_norm(s, y, "mm.input_norm", cols, EPS)
    y, width = hidden(s, y, "mm.1", cols, "gelu" if s.tower.kind == "lfm2" else "gelu_erf")
    return finish(s, y, "mm.2", width)


def _pixtral(s: Stages, x: Buffer) -> EncoderPlan:
    """With or without a merger of patches; [IMG_BREAK] is an embedding after each row of tokens but the last."""
    w, n, count = s.w, s.tower.embedding_length, s.tower.merge**2
    if "mm.patch_merger.weight" in w:
        y = Norms(s, rms=True, eps=s.tower.eps).apply("mm.input_norm", x, "merger_norm")
        ops = s.begin("tokens", s.most // count)
        y = rows.unfold(ops, y, n, s.taps("merge", count))
        x = ops.project("merger", y, w.matrix("mm.patch_merger.weight", n, count * n), None)
    else:
        s.begin("tokens", s.most)
    y, width = hidden(s, x, "mm.1", n)
    found = finish(s, y, "mm.2", width)
    if "v.token_embd.img_break" not in w:
        return found
    s.begin("lines", s.tower.layout.most_in_lines(s.ops.batch))
    y = s.ops.buffer(f"{s.tower.modality}.with_breaks", (s.ops.batch, pad(found.width)))
    rows.gather(s.ops, s.plan.buffers[found.output], found.width, s.taps("order", 1), y)
    break_token = w.vector(("v.token_embd.img_break", found.width))
    rows.gather(s.ops, break_token, found.width, s.taps("breaks", 1), y, add=True)
    return s.finish(y, found.width)


def _resampler(s: Stages, x: Buffer) -> EncoderPlan:
    """MiniCPM-V: learned queries attend to the patches of their picture, whose keys have sinusoids of their place."""
    w, n, eps = s.w, s.tower.embedding_length, s.tower.eps
    norms, ops = Norms(s, rms=False, eps=eps), s.ops
    width = w.rows("resampler.kv.weight")
    heads = width // QUERY_HEAD, width // QUERY_HEAD, QUERY_HEAD
    y = ops.project("kv", x, w.matrix("resampler.kv.weight", width, n), None)
    values = norms.apply("resampler.ln_kv", y, "values", for_product=True, cols=width)
    keys = norms.apply("resampler.ln_kv", y, "keys", cols=width)
    places, table = s.taps("places", 2), s.input("sinusoids", width // 2, MAX_SIDE)
    for axis in range(2):  # columns, then rows of the picture
        rows.gather(ops, table, width // 2, rows.OneTap(places, axis), keys, add=True)
    both = ops.rows("keys_values", 2 * width)
    bias = w.vector(*((f"resampler.attn.{name}.bias", width) for name in "kv"))
    for i, (name, source) in enumerate((("k", keys), ("v", values))):
        weight = w.matrix(f"resampler.attn.{name}.weight", width, width)
        products.append(ops, Product(source, weight, both, bias, row0=i * width))
    cache = s.cache(width)
    ops.split_qkv(both, cache, (0, *heads[1:]), s.no_rope(), None, eps)
    ops = s.begin("tokens", s.most // 4)
    queries = ops.rows("queries", width)
    rows.gather(ops, w.matrix("resampler.query", s.tower.queries, width), width, s.taps("queries", 1), queries)
    normed = norms.apply("resampler.ln_q", queries, "queries_norm", for_product=True, cols=width)
    q = ops.project("q", normed, *_weight_and_bias(s, "resampler.attn.q", width))
    first = len(ops.ops)
    attended = ops.attention(q, cache, heads, AttentionOptions(QUERY_HEAD**-0.5, causal=False))
    s.segments(first, "windows")
    y = ops.project("attended", attended, *_weight_and_bias(s, "resampler.attn.out", width))
    normed = norms.apply("resampler.ln_post", y, "attended_norm", for_product=True, cols=width)
    return finish(s, normed, "resampler.proj", width)


def _weight_and_bias(s: Stages, name: str, size: int) -> tuple[Weight, Weight]:
    return s.w.matrix(name + ".weight", size, size), s.w.vector((name + ".bias", size))


def normed_patches(s: Stages, x: Buffer, eps: float, first: str, last: str, activation: str) -> EncoderPlan:
    """Layer norm of each patch, then two layers of tokens."""
    y = Norms(s, rms=False, eps=eps).apply("mm.input_norm", x, "merger_norm")
    y, width = hidden(s, merge(s, y), first, s.tower.merge**2 * s.tower.embedding_length, activation)
    return finish(s, y, last, width)


def _paddleocr(s: Stages, x: Buffer) -> EncoderPlan:
    return normed_patches(s, x, EPS, "mm.1", "mm.2", s.tower.activation)


def _kimivl(s: Stages, x: Buffer) -> EncoderPlan:
    return normed_patches(s, x, EPS, "mm.1", "mm.2", "gelu")


def _dots_ocr(s: Stages, x: Buffer) -> EncoderPlan:
    y = Norms(s, rms=True, eps=s.tower.eps).apply("mm.post_norm", x, "encoded")
    return normed_patches(s, y, DOTS_EPS, "mm.0", "mm.2", "gelu_erf")


def _glm4v(s: Stages, x: Buffer) -> EncoderPlan:
    """A convolution joins the patches of a token; then a layer with a norm, and a gated network."""
    w, n, count = s.w, s.tower.embedding_length, s.tower.merge**2
    width = w.rows("mm.patch_merger.weight")
    ops = s.begin("tokens", s.most // count)
    y = rows.unfold(ops, x, n, s.taps("merge", count))
    bias = w.optional_vector(("mm.patch_merger.bias", width))
    y = ops.project("merger", y, w.matrix("mm.patch_merger.weight", width, count * n), bias)
    y = ops.project("fc", y, w.matrix("mm.model.fc.weight", width, width), None)
    normed = Norms(s, rms=False, eps=EPS).apply("mm.post_norm", y, "fc_norm", cols=width)
    y = ops.activate(normed, ops.rows("fc_activated", width, ops.input_dtype), width, "gelu_erf", gated=False)
    inner = w.rows("mm.up.weight")
    names = ("mm.gate", "mm.up")
    stack = w.stack([(name + ".weight", inner) for name in names], width)
    bias = w.optional_vector(*((name + ".bias", inner) for name in names))
    return finish(s, ops.gated(y, Projection(stack, bias), s.tower.activation), "mm.down", inner)


def _adapter(s: Stages, x: Buffer) -> EncoderPlan:
    """GLM-Edge: a convolution joins a token's patches; a gated network; rows of the file begin and end all."""
    w, n, count = s.w, s.tower.embedding_length, s.tower.merge**2
    width, b = w.rows("adapter.conv.weight"), "adapter.linear."
    ops = s.begin("tokens", s.most // count)
    y = rows.unfold(ops, x, n, s.taps("merge", count))
    y = ops.project(
        "conv", y, w.matrix("adapter.conv.weight", width, count * n), w.vector(("adapter.conv.bias", width))
    )
    y = ops.project("linear", y, w.matrix(b + "linear.weight", width, width), None)
    normed = Norms(s, rms=False, eps=s.tower.eps).apply(b + "norm1", y, "linear_norm", cols=width)
    y = ops.activate(normed, ops.rows("linear_activated", width, ops.input_dtype), width, "gelu", gated=False)
    inner = w.rows(b + "gate.weight")
    stack = w.stack([(b + name + ".weight", inner) for name in ("gate", "dense_h_to_4h")], width)
    found = finish(s, ops.gated(y, Projection(stack), "silu"), b + "dense_4h_to_h", inner)
    return between(s, found, ["adapter.boi", "adapter.eoi"])


def between(s: Stages, found: EncoderPlan, names: list[str]) -> EncoderPlan:
    """The results with two rows of the file, one before and one after those of each picture."""
    ops = s.begin("ended", s.tower.layout.most(s.ops.batch))
    y = s.ops.buffer(f"{s.tower.modality}.with_ends", (ops.batch, pad(found.width)))
    rows.gather(ops, s.plan.buffers[found.output], found.width, s.taps("between", 1), y)
    rows.gather(ops, s.w.table(names, found.width), found.width, s.taps("ends", 1), y, add=True)
    return s.finish(y, found.width)


def _minicpmv4_6(s: Stages, x: Buffer) -> EncoderPlan:
    cols = squares.ROWS * s.tower.embedding_length
    normed = _layer_norm(s, squares.joined(s, "tokens", x), "mm.input_norm", cols, s.tower.eps)
    y, width = hidden(s, normed, "mm.up", cols, "gelu_erf")
    return finish(s, y, "mm.down", width)


def _hunyuanvl(s: Stages, x: Buffer) -> EncoderPlan:
    """HunyuanOCR: a convolution joins a token's patches; rows of the file end each line, and begin and end all."""
    w, n, count = s.w, s.tower.embedding_length, s.tower.merge**2
    norms, most = Norms(s, rms=True, eps=s.tower.eps), s.most // count
    y = norms.apply("mm.pre_norm", x, "merger_norm")
    s.begin("tokens", most)
    y, width = hidden(s, rows.unfold(s.ops, y, n, s.taps("merge", count)), "mm.0", count * n)
    cols = w.rows("mm.2.weight")
    y = s.ops.project("mixed", y, w.matrix("mm.2.weight", cols, width), w.optional_vector(("mm.2.bias", cols)))
    ops = s.begin("lines", s.tower.layout.most_in_lines(most))
    lines = ops.rows("lines", cols)
    rows.gather(ops, y, cols, s.taps("order", 1), lines)
    rows.gather(ops, w.vector(("v.image_newline", cols)), cols, s.taps("breaks", 1), lines, add=True)
    found = finish(s, lines, "mm.model.fc", cols)
    ops = s.begin("ended", s.tower.layout.most(most))
    y = ops.rows("ended", found.width)
    rows.gather(ops, s.plan.buffers[found.output], found.width, s.taps("between", 1), y)
    ends = w.table(["mm.image_begin", "mm.image_end"], found.width)
    rows.gather(ops, ends, found.width, s.taps("ends", 1), y, add=True)
    out = s.ops.buffer(f"{s.tower.modality}.normed_output", (ops.batch, pad(found.width)))
    rows.norm_into(ops, y, rows.RowNorm(w.vector(("mm.post_norm.weight", found.width)), found.width, s.tower.eps), out)
    return s.finish(out, found.width)


HEADS: dict[str, Callable[[Stages, Buffer], EncoderPlan]] = {
    "idefics3": _idefics3,
    "gemma3": _gemma3,
    "gemma4v": _gemma4v,
    "gemma4uv": _gemma4uv,
    "adapter": _adapter,
    "youtuvl": _youtuvl,
    "mlp": _llava,
    "internvl": _internvl,
    "ldp": mobile.build,
    "ldpv2": mobile.build_second,
    **dict.fromkeys(LFM2, _lfm2),
    "lightonocr": _pixtral,
    "pixtral": _pixtral,
    "resampler": _resampler,
    "glm4v": _glm4v,
    "glm5v": _glm4v,
    "paddleocr": _paddleocr,
    **dict.fromkeys(("dots_ocr", "dots3note_v"), _dots_ocr),
    "kimivl": _kimivl,
    "janus_pro": _janus_pro,
    "phi4": _mlp,
    "minicpmv4_6": _minicpmv4_6,
    "hunyuanvl": _hunyuanvl,
    "qwen2vl_merger": _qwen,
    "qwen2.5vl_merger": _qwen,
    "exaone4_5": _qwen,
    "qwen3vl_merger": _qwen,
}
