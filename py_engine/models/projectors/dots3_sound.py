"""dots3-note's encoder of sound: three convolutions, blocks that rotate half of each head, and two layers.

The convolutions have hundreds of channels: their results for a minute would take half a gigabyte. So they are computed
part by part, in the same buffers. A part also computes the rows before it that its first token needs.
Source: dots3note.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.models.projectors.block import Block, Norms
from py_engine.models.projectors.convolutions import convolved, halved
from py_engine.models.projectors.heads import EPS, finish, hidden
from py_engine.models.projectors.stages import Stages
from py_engine.models.projectors.tower import Tower
from py_engine.plan import products, rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.op_list import pad
from py_engine.plan.plan import Buffer
from py_engine.plan.products import Product

TOKENS = 750  # of a minute of sound
PART = 96  # tokens whose convolutions are computed at once
PLACES = 9  # of a convolution's kernel
BLOCKS_PER_SUBMIT = 4
ROWS = (4 * PART + 3, 2 * PART + 1, PART)  # of a part after each convolution, for all of a frame's bins
PARTS = -(-TOKENS // PART)


def bins(tower: Tower) -> tuple[int, int, int]:
    """Bins after each convolution."""
    first = halved(tower.mels)
    return first, halved(first), halved(halved(first))


def rotated(tower: Tower) -> int:
    """Values of a head that rotate."""
    return tower.head_dim // 2


def most_rows(tower: Tower) -> int:
    """Rows of the first convolution of a part."""
    return ROWS[0] * bins(tower)[0]


def build(s: Stages) -> EncoderPlan:
    """Append the encoder's stages."""
    tower, n = s.tower, s.tower.embedding_length
    if tower.head_dim % 8:  # rope.wgsl rotates four values at once
        raise WispError(
            f"Wisp cannot rotate halves of heads that are {tower.head_dim} wide.", "unsupported_architecture"
        )
    parts = [_part(s, k) for k in range(PARTS)]
    ops = s.begin("tokens", TOKENS)
    x = ops.rows("x", n)
    for k, part in enumerate(parts):
        rows.gather(ops, part, n, s.taps(f"of.{k}", 1), x, add=k > 0)
    norms, cache = Norms(s, rms=True, eps=tower.eps), s.cache()
    rope = s.rope_of("turns", dim=rotated(tower))
    for i in range(tower.block_count):
        if i and i % BLOCKS_PER_SUBMIT == 0:
            s.begin("tokens", TOKENS)
        Block(s, norms, f"a.blk.{i}.", rope, cache, tower.head_dim**-0.5).add(x)
    if "a.post_ln.weight" in s.w:
        x = norms.apply("a.post_ln", x, "encoded")
    normed = Norms(s, rms=False, eps=EPS).apply("mm.a.norm_pre", x, "tokens_norm", for_product=True)
    y, width = hidden(s, normed, "mm.a.mlp.1", n, "gelu_erf")
    return finish(s, y, "mm.a.mlp.3", width)


def _part(s: Stages, k: int) -> Buffer:
    """The tokens of a part: (PART, n_embd)."""
    w, n, channels, places = s.w, s.tower.embedding_length, 0, bins(s.tower)
    for i, name in enumerate(("first", "second", "third")):
        ops = s.begin(f"{name}.{k}", ROWS[i] * places[i])
        ops.name = f"audio.{name}"  # parts share their buffers
        if i == 0:
            x = s.input(f"frames.{k}", PLACES)
        else:
            x = rows.unfold(ops, x, channels, s.taps(f"{name}.{k}", PLACES))
        x = convolved(s, x, f"a.conv2d.{i + 1}", PLACES * (channels or 1))
        channels = w.rows(f"a.conv2d.{i + 1}.weight")
    ops = s.begin(f"joined.{k}", PART)
    ops.name = "audio.joined"
    joined = rows.unfold(ops, x, channels, s.taps("bins", places[-1]))
    y = ops.buffer(f"audio.part.{k}", (PART, pad(n)))
    products.append(ops, Product(joined, w.matrix("a.conv_out.weight", n, channels * places[-1]), y))
    return y
