"""MiMo-V2.5's encoders of sound: the first one's rows become codes; the second reads groups of these codes' embeddings.

The first is Whisper's with rotations, whose rows see earlier ones only. A row's codes come from residual vector
quantization: the nearest row of the first codebook, then that of the second one nearest to the difference, and so on.
Source: mimo-audio.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.media.kinds import MAX_SECONDS
from py_engine.models.projectors.block import Block, Norms
from py_engine.models.projectors.convolutions import convolved, halved
from py_engine.models.projectors.heads import finish, hidden
from py_engine.models.projectors.stages import Stages
from py_engine.plan import rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.op_list import pad
from py_engine.plan.plan import Buffer
from py_engine.plan.rows import Parts, copy_columns

SKIPPED = 2  # the block with a skip connection to the last one's output. llama.cpp takes it before the block's network
BLOCKS_PER_SUBMIT = 4
FRAMES = 100 * MAX_SECONDS["mimo_audio"] + 1  # of the longest clip


def build(s: Stages) -> EncoderPlan:
    """Append the encoders' stages."""
    tower, n = s.tower, s.tower.embedding_length
    if n % 32 or tower.block_count <= SKIPPED:
        raise WispError("This kind of projector is not supported yet.", "unsupported_architecture")
    s.begin("frames", s.most)
    frames = rows.unfold(s.ops, s.input("frames", tower.mels), tower.mels, s.taps("first", 3))
    x = convolved(s, frames, "a.conv1d.1", 3 * tower.mels)
    most = halved(s.most)
    ops = s.begin("halves", most)
    x = convolved(s, rows.unfold(ops, x, n, s.taps("second", 3)), "a.conv1d.2", 3 * n)
    norms = Norms(s, rms=False, eps=tower.eps)
    _encode(s, norms, x, most)
    x = norms.apply("a.post_ln", x, "encoded")
    ops = s.begin("pairs", most // 2)
    y = convolved(s, rows.unfold(ops, x, n, s.taps("pairs", 2)), "a.downsample.conv", 2 * n)
    codes = _coded(s, norms.apply("a.downsample.norm", y, "residual"))
    tokens = -(-(most // 2) // tower.stack)
    x = _read_groups(s, codes, tokens * tower.stack)
    ops = s.begin("tokens", tokens)
    joined = rows.merged(ops, x, n, tower.stack, None if pad(n) == n else s.taps("joined", tower.stack))
    y, width = hidden(s, joined, "mm.a.mlp.1", n * tower.stack, "gelu_erf", bias=False)
    return finish(s, y, "mm.a.mlp.2", width, bias=False)


def _encode(s: Stages, norms: Norms, x: Buffer, most: int) -> None:
    """x = the output of the first encoder's blocks for x + the skip connection."""
    assert s.tower.coded is not None
    rope, cache, n = s.rope(), s.cache(), s.tower.embedding_length
    skipped = s.ops.rows("skipped", n)
    for i, reach in enumerate(s.tower.coded.reaches):
        if i and i % BLOCKS_PER_SUBMIT == 0:
            s.begin("halves", most)
        first, block = len(s.ops.ops), Block(s, norms, f"a.blk.{i}.", rope, cache, s.tower.head_dim**-0.5)
        block.attend(x)
        if i == SKIPPED:
            copy_columns(s.ops, Parts(x, 0, 0), Parts(skipped, 0, 0), n)
        block.feed_forward(x)
        s.segments(first, "pictures" if reach < 0 else "windows")
    s.ops.add_scaled(skipped, 1.0, x)


def _coded(s: Stages, residual: Buffer) -> Buffer:
    """The sum of the embeddings of each row's codes."""
    coded, w, ops, n = s.tower.coded, s.w, s.ops, s.tower.embedding_length
    assert coded is not None
    count = len(coded.codes)
    most, vocab = (_codes(s, name, count, max(coded.codes)) for name in ("a.rvq.codebook", "mm.a.code_embd"))
    taps = ops.buffer("audio.codes", (ops.batch, count, 2), "u32")
    for i, book in enumerate(w.slices("a.rvq.codebook.weight", count, most, n)):
        rows.nearest_code(ops, residual, book, rows.OneTap(taps, i), coded.codes[i], i * vocab)
    y = ops.rows("embedded", n)
    rows.gather(ops, w.flattened("mm.a.code_embd.weight", count, vocab, n), n, taps, y)
    return y


def _codes(s: Stages, name: str, count: int, least: int) -> int:
    """Rows of each of a tensor's `count` codebooks: the largest one's codes, or more; smaller ones are padded."""
    info = s.w.header.tensors.get(name + ".weight")
    if info is None:
        raise WispError(f"The projector lacks the tensor {name}.weight.", "missing_tensor")
    if len(info.shape) != 3 - (count == 1) or info.shape[1] < least:
        raise WispError(f"The projector's tensor {name}.weight has the shape {info.shape}.", "bad_tensor_shape")
    return info.shape[1]


def _read_groups(s: Stages, codes: Buffer, most: int) -> Buffer:
    """The second encoder, whose rows see their own group only. Zeros fill the last group."""
    tower, n = s.tower, s.tower.embedding_length
    assert tower.coded is not None
    ops = s.begin("padded", most)
    x = ops.rows("x", n)
    rows.gather(ops, codes, n, s.taps("padded", 1), x)
    norms, rope, cache = (
        Norms(s, rms=True, eps=tower.eps),
        s.rope_of("group_turns"),
        s.cache(tower.widths[1]),
    )
    for i in range(tower.coded.n_layer):
        if i and i % BLOCKS_PER_SUBMIT == 0:
            s.begin("padded", most)
        first, b = len(s.ops.ops), f"mm.a.local_blk.{i}."
        Block(s, norms, b, rope, cache, tower.head_dim**-0.5, other_activation="silu").add(x)
        s.segments(first, "quarters")
    return norms.apply("mm.a.local_norm", x, "read")
