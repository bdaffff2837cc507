"""Encoders of sound: convolutions that halve the number of frames, then transformer blocks, then a projector.

A convolution is a matrix product. wgsl/unfold.wgsl writes its input as rows; the host does for the first one in two
dimensions.
Source: whisper-enc.cpp and qwen3a.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from collections.abc import Callable

from py_engine.errors import WispError
from py_engine.media.kinds import LFM2_SOUND, MAX_SECONDS, POOLED, RATE, WHISPER
from py_engine.models.projectors import conformer, dots3_sound, fastconformer, granite_speech, mimo_audio
from py_engine.models.projectors.block import Block, Norms
from py_engine.models.projectors.clipped import halves_swapped
from py_engine.models.projectors.convolutions import convolved, halved
from py_engine.models.projectors.heads import finish, hidden
from py_engine.models.projectors.stages import Stages
from py_engine.models.projectors.tower import Tower
from py_engine.plan import rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.op_list import pad
from py_engine.plan.ops import Projection
from py_engine.plan.plan import Buffer

WHISPER_FRAMES = 3000  # of every chunk of sound
HUNDREDS = 8  # qwen3a: hundreds of frames in a chunk, at most
FRAMES = 100  # of such a hundred; each is convolved on its own
ULTRAVOX_EPS = GEMMA_EPS = 1e-6


def most_rows(tower: Tower) -> int:
    """Rows of the first stage for the longest chunk."""
    if tower.kind == "qwen3a":
        return HUNDREDS * halved(FRAMES) * halved(tower.mels)
    if tower.kind == "gemma4ua":
        return -(-MAX_SECONDS[tower.kind] * RATE // tower.mels)
    if tower.kind == "gemma4a":
        return halved(conformer.FRAMES) * halved(tower.mels)
    if tower.kind == "mimo_audio":
        return mimo_audio.FRAMES
    if tower.kind == "dots3note_a":
        return dots3_sound.most_rows(tower)
    if tower.speech is not None:
        return granite_speech.most_rows(tower.speech)
    if tower.kernel:
        return fastconformer.most_frames(tower)
    return WHISPER_FRAMES


def build(s: Stages) -> EncoderPlan:
    """Append the encoder's stages."""
    if s.tower.kind not in BUILDERS:
        raise WispError(
            f"The projector type {s.tower.kind!r} is not supported yet. Supported: {', '.join(BUILDERS)}.",
            "unsupported_architecture",
        )
    return BUILDERS[s.tower.kind](s)


def _positions(s: Stages, x: Buffer) -> None:
    n = s.tower.embedding_length
    table = s.w.matrix("a.position_embd.weight", s.w.rows("a.position_embd.weight"), n)
    rows.gather(s.ops, table, n, s.taps("positions", 1), x, add=True)


def _blocks(s: Stages, norms: Norms, x: Buffer) -> None:
    """The blocks, in place; every row attends to all others."""
    rope, cache = s.no_rope(), s.cache()
    for i in range(s.tower.block_count):
        Block(s, norms, f"a.blk.{i}.", rope, cache, s.tower.head_dim**-0.5).add(x)


def _whisper(s: Stages) -> EncoderPlan:
    tower, n = s.tower, s.tower.embedding_length
    norms = Norms(s, rms=False, eps=tower.eps)
    s.begin("frames", s.most)
    frames = rows.unfold(s.ops, s.input("frames", tower.mels), tower.mels, s.taps("first", 3))
    x = convolved(s, frames, "a.conv1d.1", 3 * tower.mels)
    ops = s.begin("halves", halved(s.most))
    x = convolved(s, rows.unfold(ops, x, n, s.taps("second", 3)), "a.conv1d.2", 3 * n)
    _positions(s, x)
    _blocks(s, norms, x)
    if tower.kind in POOLED:
        ops = s.begin("pooled", ops.batch // 2)
        pooled = ops.rows("pooled", n)
        rows.gather(ops, x, n, s.taps("pool", 2), pooled)
        x = pooled
    x = _normed(s, norms, x)
    if tower.kind == "glma":
        x = norms.apply("mm.a.norm_pre", x, "read")
    return PROJECTORS[tower.kind](s, x)


def _normed(s: Stages, norms: Norms, x: Buffer) -> Buffer:
    """The norm after the blocks, if the file has it."""
    return norms.apply("a.post_ln", x, "encoded") if "a.post_ln.weight" in s.w else x


def _stacked(s: Stages, x: Buffer) -> tuple[Buffer, int]:
    """Begin the stage of tokens; join the frames of each. An incomplete last token is dropped."""
    n, count = s.tower.embedding_length, s.tower.stack
    ops = s.begin("tokens", s.ops.batch // count)
    return rows.merged(ops, x, n, count, None if pad(n) == n else s.taps("stack", count)), n * count


def _ultravox(s: Stages, x: Buffer) -> EncoderPlan:
    w = s.w
    y, cols = _stacked(s, x)
    norms = Norms(s, rms=True, eps=ULTRAVOX_EPS)
    y = norms.apply("mm.a.norm_pre", y, "stacked_norm", for_product=True, cols=cols)
    both = w.rows("mm.a.mlp.1.weight")
    stacked = s.ops.normed_stack("gate_up", y, Projection([halves_swapped(s, "mm.a.mlp.1.weight", both, cols)]))
    mid = s.ops.activate(stacked, s.ops.rows("mid", both // 2), both // 2, "silu", gated=True)  # f32, for the norm
    normed = norms.apply("mm.a.norm_mid", mid, "mid_norm", for_product=True, cols=both // 2)
    return finish(s, normed, "mm.a.mlp.2", both // 2)


def _qwen2a(s: Stages, x: Buffer) -> EncoderPlan:
    return finish(s, x, "mm.a.fc", s.tower.embedding_length)


def _voxtral(s: Stages, x: Buffer) -> EncoderPlan:
    y, cols = _stacked(s, x)
    y, width = hidden(s, y, "mm.a.mlp.1", cols, "gelu_erf")
    return finish(s, y, "mm.a.mlp.2", width)


def _meralion(s: Stages, x: Buffer) -> EncoderPlan:
    """A norm of all frames of a token, whose factors are those of one frame for each, as in llama.cpp; then layers."""
    w, one = s.w, s.tower.embedding_length
    y, cols = _stacked(s, x)
    ops, frames = s.ops, s.tower.stack
    factors, shifts = (w.vector(*[(f"mm.a.norm_pre.{part}", one)] * frames) for part in ("weight", "bias"))
    normed = ops.rows("stacked_norm", cols, ops.input_dtype)
    ops.layer_norm_into(normed, y, factors, shifts, s.tower.eps)
    mid, inner = (w.rows(f"mm.a.mlp.{i}.weight") for i in range(2))
    y = ops.project("mid", normed, w.matrix("mm.a.mlp.0.weight", mid, cols), w.vector(("mm.a.mlp.0.bias", mid)))
    y = ops.activate(y, ops.rows("mid_activated", mid, ops.input_dtype), mid, "silu", gated=False)
    names = ("mm.a.mlp.1", "mm.a.mlp.2")
    stack = w.stack([(name + ".weight", inner) for name in names], mid)
    bias = w.vector(*((name + ".bias", inner) for name in names))
    return finish(s, ops.gated(y, Projection(stack, bias), "silu"), "mm.a.mlp.3", inner)


def _musicflamingo(s: Stages, x: Buffer) -> EncoderPlan:
    s.begin("tokens", s.ops.batch)
    y, width = hidden(s, x, "mm.a.mlp.1", s.tower.embedding_length, "gelu_erf")
    return finish(s, y, "mm.a.mlp.2", width)


def _glma(s: Stages, x: Buffer) -> EncoderPlan:
    """GLM-ASR: rows of the file begin and end the tokens of every chunk."""
    found, names = _voxtral(s, x), ["v.boi", "v.eoi"]
    ops = s.begin("ended", s.ops.batch + len(names))
    y = ops.buffer(f"{s.tower.modality}.ended", (ops.batch, pad(found.width)))
    rows.gather(ops, s.plan.buffers[found.output], found.width, s.taps("order", 1), y)
    rows.gather(ops, s.w.table(names, found.width), found.width, s.taps("ends", 1), y, add=True)
    return s.finish(y, found.width)


def _qwen3a(s: Stages) -> EncoderPlan:
    tower, w, n = s.tower, s.w, s.tower.embedding_length
    channels = w.rows("a.conv2d.1.weight")
    s.begin("first", s.most)
    x = convolved(s, s.input("frames", 9), "a.conv2d.1", 9)
    time, bins = halved(FRAMES), halved(tower.mels)
    for name, kernel in (("second", "a.conv2d.2"), ("third", "a.conv2d.3")):
        time, bins = halved(time), halved(bins)
        ops = s.begin(name, HUNDREDS * time * bins)
        x = convolved(s, rows.unfold(ops, x, channels, s.taps(name, 9)), kernel, 9 * channels)
    ops = s.begin("tokens", HUNDREDS * time)
    joined = rows.unfold(ops, x, channels, s.taps("bins", bins))
    x = ops.project("x", joined, w.matrix("a.conv_out.weight", n, channels * bins), None)
    _positions(s, x)
    norms = Norms(s, rms=False, eps=tower.eps)
    _blocks(s, norms, x)
    y, width = hidden(s, _normed(s, norms, x), "mm.a.mlp.1", n, "gelu_erf")
    return finish(s, y, "mm.a.mlp.2", width)


def _gemma4ua(s: Stages) -> EncoderPlan:
    """Gemma 4 12B: samples of the sound, normalised and projected."""
    ops, cols = s.begin("tokens", s.most), s.tower.mels
    return finish(s, rows.plain_rms_norm(ops, s.input("frames", cols), cols, GEMMA_EPS), "mm.a.input_projection", cols)


BUILDERS: dict[str, Callable[[Stages], EncoderPlan]] = {
    "dots3note_a": dots3_sound.build,
    "gemma4a": conformer.build,
    "gemma4ua": _gemma4ua,
    "granite_speech": granite_speech.build,
    **dict.fromkeys((*LFM2_SOUND, "parakeet"), fastconformer.build),
    "mimo_audio": mimo_audio.build,
    "qwen3a": _qwen3a,
    **dict.fromkeys(WHISPER, _whisper),
}
PROJECTORS: dict[str, Callable[[Stages, Buffer], EncoderPlan]] = {
    "glma": _glma,
    "meralion": _meralion,
    "musicflamingo": _musicflamingo,
    "qwen2a": _qwen2a,
    "ultravox": _ultravox,
    "voxtral": _voxtral,
}
