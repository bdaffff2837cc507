"""Ops of the index of sparse attention (DSA, DeepSeek-AI 2025), which chooses the positions that a token attends to.

An index has a few heads of queries, and a key for each position in a cache of its own. A position's score is the sum
over the heads of a weight, which the token decides, times the product of query and key where that is above zero. The
`top_k` highest scores become a mask with a bit for each position of the context, which attention reads.

Qwen 4's index differs ("raw"): its queries have an RMS norm, keys are joined by their mean, then normalised and rotated
to the first one's position, and heads have no weights.

An index may join the keys of `pool` positions, and choose as many positions at once. The newest ones of a token, whose
keys are not joined yet, are always chosen. The row of the cache of the last position also has the joined key.

Keys are stored as f32 whatever the other caches have: a rounding that chooses another position changes far more than
one that changes a value. Among equal scores, which are common (all products below zero), llama.cpp's choice is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan.cache import Cache, PageGroup, make_row_cache
from py_engine.plan.latent_attention import Columns
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, Contexts, PerToken, Plan, Weight
from py_engine.plan.rope import Rope

APPENDING_THREADS = 64  # of a workgroup of index_append.wgsl
SCORING_THREADS = 64  # of index_scores.wgsl
CHOOSING_THREADS = 256  # of index_choose.wgsl
TOKENS = 4  # of a prompt that share keys in workgroup memory
KEY_VECTORS = 512  # of keys that a workgroup holds, at most: 8 KiB
SCORE_BYTES = 64 << 20  # of the scores that are computed before they are read; a batch's are in parts, if need be
BITS = 32  # positions in a word of the mask


@dataclass(frozen=True)
class IndexShape:
    """Dimensions of an index. Queries and keys are rotated in `rope` dimensions from `first` on."""

    heads: int
    size: int  # of a query head and a key
    top_k: int
    rope: int
    neox: bool  # dimension i is rotated with i + rope / 2; else with its neighbour
    first: int = 0
    eps: float = 1e-6  # of the layer norm of keys
    pool: int = 1  # positions whose keys are joined
    raw: bool = False  # keys are joined before their norm
    own: bool = True  # the layer has the index; else it uses what the last one before has chosen

    @property
    def row(self) -> int:
        """Columns of a row of the cache: a key; if keys are joined, also its gates and the joined key."""
        return self.size if self.pool == 1 else (2 if self.raw else 3) * self.size

    def chooses(self, plan: Plan) -> bool:
        """Whether a context may have positions that are not chosen."""
        return plan.n_ctx > self.top_k


@dataclass(frozen=True)
class Indexed:
    """What an index is computed from: rows of the batch."""

    q: Buffer  # (n, heads * size), rotated in place
    rows: Buffer  # (n, size + heads): the key, its gates if keys are joined, and the heads' weights; raw: the key alone
    norm: Weight  # of the key: factors, then biases; raw: the factors of a query head, then of a joined key
    rope: Rope
    gate_bias: Weight | None = None  # (pool, size) if keys have gates: added to those of each


def make_index_cache(plan: Plan, layer: int, shape: IndexShape, group: PageGroup) -> Buffer:
    """Create the keys of a layer's index."""
    return make_row_cache(plan, f"index.{layer}", shape.row, "f32", group).k


def mask(ops: OpList) -> Buffer:
    """The mask of the list's last index: (n, words)."""
    return ops.shaped("index_mask", (ops.batch, -(-ops.plan.n_ctx // BITS)), "u32")


def choose(ops: OpList, given: Indexed, cache: Cache, shape: IndexShape) -> Buffer:
    """Append the batch's keys to the index; return the mask of the positions that each token attends to."""
    assert cache.index
    _append(ops, given, cache, cache.index, shape)
    if shape.pool > 1:
        _join(ops, given, cache, cache.index, shape)
    weights = None if shape.raw else Columns(given.rows, shape.size if shape.pool == 1 else 2 * shape.size)
    return choose_scored(ops, Scored(given.q, weights, cache.index, cache.paging), shape)


@dataclass(frozen=True)
class Scored:
    """What scores are computed from."""

    q: Buffer  # (n, heads * size), rotated
    weights: Columns | None  # (n, heads); None: all are 1
    keys: Buffer
    paging: dict[str, int]  # the #params that say where keys are


def choose_scored(ops: OpList, given: Scored, shape: IndexShape) -> Buffer:
    """The mask (n, words) of the positions that each token attends to: those whose keys have the highest scores."""
    chosen = mask(ops)
    width = BITS * chosen.shape[1]
    tokens = max(1, min(ops.batch, SCORE_BYTES // (4 * width)))
    scores = ops.shaped("index_scores", (tokens, width))
    for first in range(0, ops.batch, tokens):
        _add_scores(ops, given, shape, scores, first)
        choose_highest(ops, scores, shape, first)
    return chosen


def choose_highest(ops: OpList, scores: Buffer, shape: IndexShape, first: int) -> None:
    """Set the mask of the tokens from `first` on, as many as `scores` (tokens, keys) has rows."""
    tokens, width = scores.shape
    top_k = max(1, shape.top_k // shape.pool)
    ops.add(
        "index_choose",
        {"TOP_K": top_k, "WIDTH": width, "POOL": shape.pool, "WG": CHOOSING_THREADS} | ops.state_params,
        {"first": first, "tokens": tokens},
        {"state": ops.state, "scores": scores, "heap": ops.shaped("index_heap", (tokens, top_k), "u32")}
        | {"index_mask": mask(ops)},
        PerToken(),
    )


def _append(ops: OpList, given: Indexed, cache: Cache, keys: Buffer, shape: IndexShape) -> None:
    """Rotate the queries in place; append the rotated key of each token, after a layer norm, to the index."""
    ops.add(
        "index_append",
        {"HEADS": shape.heads, "SIZE": shape.size, "ROPE": shape.rope, "NEOX": int(shape.neox)}
        | {"FIRST": shape.first, "ROW": shape.row, "RAW": int(shape.raw), "WG": APPENDING_THREADS}
        | cache.paging
        | ops.state_params,
        {"x_stride": given.rows.shape[1], "y_stride": given.q.shape[1], "rope_scale": given.rope.scale}
        | {"eps": shape.eps},
        {"state": ops.state, "x": given.rows, "norm": given.norm, "rope_freqs": given.rope.freqs}
        | {"y": given.q, "k_cache": keys},
        shape.heads + 1,
        PerToken(),
    )


def _join(ops: OpList, given: Indexed, cache: Cache, keys: Buffer, shape: IndexShape) -> None:
    """Join the keys whose last one is the batch's."""
    params = {"SIZE": shape.size, "POOL": shape.pool, "ROW": shape.row, "WG": APPENDING_THREADS} | cache.paging
    params |= ops.state_params
    if shape.raw:
        ops.add(
            "index_join_raw",
            params | {"ROPE": shape.rope, "FIRST": shape.first, "NEOX": int(shape.neox)},
            {"rope_scale": given.rope.scale, "eps": shape.eps},
            {"state": ops.state, "norm": given.norm, "rope_freqs": given.rope.freqs, "k_cache": keys},
            PerToken(),
        )
        return
    assert given.gate_bias
    ops.add("index_join", params, {}, {"state": ops.state, "gate_bias": given.gate_bias, "k_cache": keys}, PerToken())


def _add_scores(ops: OpList, given: Scored, shape: IndexShape, scores: Buffer, first: int) -> None:
    positions = SCORING_THREADS
    while positions > 1 and positions * shape.size // 4 > KEY_VECTORS:
        positions //= 2
    weights = given.weights
    scale = (shape.size * (shape.heads if weights else 1)) ** -0.5
    tokens = 1 if ops.small_batch or shape.pool > 1 else TOKENS
    ops.add(
        "index_scores",
        {"HEADS": shape.heads, "SIZE": shape.size, "TS": positions, "TM": tokens, "WG": SCORING_THREADS}
        | {"WIDTH": scores.shape[1], "POOL": shape.pool, "ROW": shape.row, "WEIGHTED": int(weights is not None)}
        | given.paging
        | ops.state_params,
        {"first": first, "tokens": scores.shape[0], "q_stride": given.q.shape[1], "scale": scale}
        | {"x_stride": weights.buffer.shape[1] if weights else 0, "x_first": weights.first if weights else 0},
        {"state": ops.state, "q": given.q, "k_cache": given.keys, "scores": scores}
        | ({"x": weights.buffer} if weights else {}),
        PerToken(tokens),
        -(-scores.shape[1] // (positions * shape.pool)),
        contexts=Contexts(positions * shape.pool),
    )
