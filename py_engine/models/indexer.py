"""The index of sparse attention of one layer: its projections, and what it chooses (plan/index.py)."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.models.config import Config
from py_engine.plan import index
from py_engine.plan.cache import Cache
from py_engine.plan.index import Indexed
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights

EPSILON = 1e-6  # of the layer norm of keys


@dataclass(frozen=True)
class Reading:
    """What an index reads of a batch."""

    h: Buffer  # the layer's input
    norm: Weight | None  # that h is yet to be normalised with
    low: Buffer  # the latent of the queries, not normalised, in the first columns
    rope: Rope


def chosen_positions(cfg: Config, w: Weights, ops: Ops, b: str, given: Reading, cache: Cache) -> Buffer | None:
    """The mask of the positions that each token of the batch attends to; None: of all. `b`: the tensors' prefix."""
    shape = cfg.index
    if shape is None or not shape.chooses(ops.plan):
        return None
    if not shape.own:
        return index.mask(ops)
    n, rank = cfg.embedding_length, w.rows(b + "attn_q_a.weight")
    low_norm = w.vector((b + "attn_q_a_norm.weight", rank))
    matrix = w.matrix(b + "indexer.attn_q_b.weight", shape.heads * shape.size, rank)
    q = ops.normed_stack("index_q", given.low, Projection([matrix], None, low_norm, cfg.eps))
    stack = w.stack([(b + "indexer.attn_k.weight", shape.size), (b + "indexer.proj.weight", shape.heads)], n)
    rows = ops.normed_stack("index_rows", given.h, Projection(stack, None, given.norm, cfg.eps))
    norm = w.vector(*((f"{b}indexer.k_norm.{part}", shape.size) for part in ("weight", "bias")))
    return index.choose(ops, Indexed(q, rows, norm, given.rope), cache, shape, EPSILON)
