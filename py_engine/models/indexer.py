"""The index of sparse attention of one layer: its metadata, its projections, and what it chooses (plan/indexer.py)."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models.common import count, dimension
from py_engine.models.config import Config
from py_engine.plan import indexer
from py_engine.plan.cache import Cache
from py_engine.plan.indexer import Indexed, IndexShape
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights

TYPES = "attention.indexer.types"  # of every layer, 1: it has an index of its own


def index_shape(header: Header, rope: int, *, neox: bool) -> IndexShape:
    """Read and check the metadata. `rope`, `neox`: of the rotation, in the first dimensions."""
    heads = dimension(header, "attention.indexer.head_count")
    size = dimension(header, "attention.indexer.key_length", times=heads)
    if size % 4 or size < rope:
        raise WispError(f"Wisp cannot run an index with keys of {size} dimensions.", "unsupported_architecture")
    return IndexShape(heads, size, count(header, "attention.indexer.top_k"), rope, neox)


def own_indices(header: Header, blocks: int, first: int = 0) -> tuple[bool, ...]:
    """Whether each layer has an index of its own, by the metadata; else it uses that of the last one before.

    `first`: the first layer of those that attend.
    """
    types = header.arch(TYPES, None)
    given = types if isinstance(types, list) else [types] * blocks
    if len(given) < blocks or not given[first]:
        raise WispError(
            f"{header.architecture}.{TYPES} is {types!r:.100}: the first layer must have an index.", "corrupt_header"
        )
    return tuple(bool(kind) for kind in given[:blocks])


@dataclass(frozen=True)
class Reading:
    """What an index reads of a batch."""

    h: Buffer  # the layer's input
    norm: Weight | None  # that h is yet to be normalised with
    rope: Rope
    low: Buffer | None = None  # the latent of the queries, not normalised, in the first columns


def chosen_positions(cfg: Config, w: Weights, ops: Ops, b: str, given: Reading, cache: Cache) -> Buffer | None:
    """The mask of the positions that each token of the batch attends to; None: of all. `b`: the tensors' prefix."""
    shape = cfg.index
    if shape is None or not shape.chooses(ops.plan):
        return None
    if not shape.own:
        return indexer.mask(ops)
    assert given.low
    n, rank = cfg.embedding_length, w.rows(b + "attn_q_a.weight")
    low_norm = w.vector((b + "attn_q_a_norm.weight", rank))
    matrix = w.matrix(b + "indexer.attn_q_b.weight", shape.heads * shape.size, rank)
    q = ops.normed_stack("index_q", given.low, Projection([matrix], None, low_norm, cfg.eps))
    gates = [(b + "indexer_compressor_gate.weight", shape.size)] if shape.pool > 1 else []
    key, weights = (b + "indexer.attn_k.weight", shape.size), (b + "indexer.proj.weight", shape.heads)
    stack = w.stack([key, *gates, weights], n)
    rows = ops.normed_stack("index_rows", given.h, Projection(stack, None, given.norm, cfg.eps))
    norm = w.vector(*((f"{b}indexer.k_norm.{part}", shape.size) for part in ("weight", "bias")))
    gate_bias = w.vector((b + "indexer_compressor_ape.weight", shape.pool * shape.size)) if gates else None
    return indexer.choose(ops, Indexed(q, rows, norm, given.rope, gate_bias), cache, shape)


def raw_positions(cfg: Config, w: Weights, ops: Ops, b: str, given: Reading, cache: Cache) -> Buffer | None:
    """As chosen_positions(), by an index that reads the layer's input alone, and joins keys before their norm."""
    shape = cfg.index
    if shape is None or not shape.chooses(ops.plan):
        return None
    n, rows = cfg.embedding_length, shape.heads * shape.size
    q, key = (
        ops.normed_stack(
            name, given.h, Projection([w.matrix(f"{b}indexer.{tensor}.weight", count, n)], None, given.norm, cfg.eps)
        )
        for name, tensor, count in (("index_q", "q_proj", rows), ("index_rows", "k_proj", shape.size))
    )
    norms = w.vector(*((f"{b}indexer.{part}_norm.weight", shape.size) for part in ("q", "k")))
    return indexer.choose(ops, Indexed(q, key, norms, given.rope), cache, shape)
