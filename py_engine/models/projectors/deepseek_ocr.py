"""DeepSeek-OCR 2: Segment Anything's encoder, then a language model's layers, in which learned queries read its result.

The rows of the second encoder are the first one's, which see each other, then as many queries, each of which sees those
and the queries before it. The queries' results are the tokens; a row of the file follows those of an overview.
Source: deepseekocr2.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.media.encoders import Sam
from py_engine.media.kinds import SAM_MERGE, SAM_PATCH, SAM_SIDE, SAM_TILES
from py_engine.models.projectors import sam
from py_engine.models.projectors.block import Norms
from py_engine.models.projectors.heads import finish
from py_engine.models.projectors.stages import Stages
from py_engine.plan import products, rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.op_list import pad
from py_engine.plan.ops import AttentionOptions, Projection
from py_engine.plan.plan import Buffer
from py_engine.plan.products import Product
from py_engine.plan.rope import Rope

SIDES = (SAM_TILES["deepseekocr2"], SAM_SIDE)  # pixels of a picture's side
ROPE_BASE = 1e6
BLOCKS_PER_SUBMIT = 4


def tokens(side: int) -> int:
    """Tokens of a picture of so many pixels a side, and as many queries."""
    return (side // (SAM_PATCH * SAM_MERGE)) ** 2


def build(s: Stages) -> EncoderPlan:
    """Append the encoder's stages."""
    tower, w, n = s.tower, s.w, s.tower.embedding_length
    assert tower.sam is not None
    read = sam.Encoder(s, tower.sam).build()
    if w.rows("v.sam.net_3.weight") != n:
        raise WispError("The projector's two encoders differ in width.", "bad_tensor_shape")
    most = tokens(SAM_SIDE)
    ops = s.begin("sequence", 2 * most)
    x = ops.rows("x", n)
    rows.gather(ops, read, n, s.taps("read", 1), x)
    for side in SIDES:
        queries = w.matrix(f"v.resample_query_{side}.weight", tokens(side), n)
        rows.gather(ops, queries, n, s.taps(f"queries_{side}", 1), x, add=True)
    norms, rope = Norms(s, rms=True, eps=tower.eps), s.rope()
    for i in range(tower.block_count):
        if i and i % BLOCKS_PER_SUBMIT == 0:
            s.begin("sequence", 2 * most)
        _add_block(s, norms, f"v.blk.{i}.", x, rope, tower.sam)
    x = norms.apply("v.post_ln", x, "encoded")
    ops = s.begin("tokens", most)
    found = ops.rows("found", n)
    rows.gather(ops, x, n, s.taps("found", 1), found)
    plan = finish(s, found, "mm.model.fc", n)
    ops = s.begin("ended", most + 1)
    y = ops.buffer("image.with_end", (ops.batch, pad(plan.width)))
    rows.gather(ops, s.plan.buffers[plan.output], plan.width, s.taps("between", 1), y)
    end = w.matrix("v.view_seperator", 1, plan.width)  # converted files have it as a matrix
    rows.gather(ops, end, plan.width, s.taps("ends", 1), y, add=True)
    return s.finish(y, plan.width)


def _add_block(s: Stages, norms: Norms, b: str, x: Buffer, rope: Rope, about: Sam) -> None:
    """x += attention; x += a gated network."""
    w, ops, tower = s.w, s.ops, s.tower
    n, kv = tower.embedding_length, about.n_head_kv * tower.head_dim
    normed = norms.apply(b + "ln1", x, "normed", for_product=True)
    y, at = ops.rows("qkv", n + 2 * kv), 0
    sizes = {"attn_q": n, "attn_k": kv, "attn_v": kv}
    bias = w.vector(*((f"{b}{name}.bias", size) for name, size in sizes.items()))
    for name, size in sizes.items():
        products.append(ops, Product(normed, w.matrix(f"{b}{name}.weight", size, n), y, bias, row0=at))
        at += size
    cache, heads = s.cache(kv), (tower.head_count, about.n_head_kv, tower.head_dim)
    q, first = ops.split_qkv(y, cache, heads, rope, None, tower.eps), len(ops.ops)
    attended = ops.attention(q, cache, heads, AttentionOptions(tower.head_dim**-0.5, causal=False))
    s.segments(first, "quarters")
    ops.linear(attended, w.matrix(b + "attn_out.weight", n, n), w.optional_vector((b + "attn_out.bias", n)), x)
    normed, width = norms.apply(b + "ln2", x, "normed", for_product=True), w.rows(b + "ffn_up.weight")
    stack = w.stack([(f"{b}ffn_{name}.weight", width) for name in ("gate", "up")], n)
    ops.linear(ops.gated(normed, Projection(stack), "silu"), w.matrix(b + "ffn_down.weight", n, width), None, x)
