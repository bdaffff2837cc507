"""Heads of lengths that kernels cannot read, stored with zeros in between and at the end.

Kernels read four dimensions of a head at once, which are two rotated pairs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from py_engine.errors import WispError
from py_engine.models.config import Config
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rows import Parts, RowNorm
from py_engine.plan.value_padding import Lengths, normalize_heads, padded
from py_engine.plan.weights import Weights

C = TypeVar("C", bound=Config)
QUAD = 4  # dimensions that kernels read at once
# decoder.Layer does not make all of their queries, keys and values
OWN_ATTENTION = {"cogvlm", "graniteswitch", "minimax-01", "t5"}


def stored(cfg: C, architecture: str, *, neox: bool) -> C:
    """The hyperparameters with the lengths that heads are stored with. WispError if they cannot be stored.

    `neox`: the pairs are half of the rotated dimensions apart. Then zeros follow each half of an odd length.
    """
    rotated = {rope.dim for rope in cfg.ropes} - {0}
    odd = neox and any(dim % QUAD and dim > 2 for dim in rotated)
    if not odd and cfg.head_dim % QUAD == 0:
        return cfg
    plain = not (cfg.latent or cfg.value_dim or cfg.shares_kv or architecture in OWN_ATTENTION)
    unfit = any(dim % QUAD for dim in rotated) and (len(rotated) > 1 or any(rope.sections for rope in cfg.ropes))
    if not plain or unfit or cfg.head_dim % 2:
        raise refusal(cfg)
    half = max(rotated) // 2 if odd else 0
    length = cfg.head_dim + (2 if odd else 0)
    return replace(cfg, head_dim=length + -length % QUAD, key_dim=cfg.head_dim, value_dim=cfg.head_dim, key_half=half)


def is_stored(cfg: Config) -> bool:
    """Whether zeros fill heads of keys and values of the same length."""
    return cfg.key_dim == cfg.value_dim > 0


def check_stored(cfg: Config, w: Weights, b: str, *, gated: bool) -> None:
    """Refuse a layer with gates among its queries, or with other norms than of each head. `b`: the layer's prefix."""
    names = [b + f"attn_{part}_norm" for part in "qk"]
    given = [name for name in names if name + ".weight" in w]
    others = cfg.unit_qk_norm or cfg.single_query_norm or (given and (cfg.layer_norm or cfg.head_layer_norm_eps > 0))
    others = others or (given and (cfg.norm_after_rope or cfg.value_norm or cfg.head_norms or given != names))
    whole = any(w.size(name + ".weight") != cfg.key_dim or name + ".bias" in w for name in given)
    if is_stored(cfg) and (gated or others or whole):
        raise refusal(cfg)


def stored_rows(cfg: Config, w: Weights, ops: Ops, b: str, rows: Buffer) -> Buffer:
    """Stacked queries, keys and values with zeros in their heads; first, these are normalised if they are to be."""
    lengths, (n_head, n_head_kv, _) = Lengths(cfg.key_dim or cfg.head_dim, cfg.value_dim, cfg.key_half), cfg.heads
    if is_stored(cfg) and b + "attn_q_norm.weight" in w:
        for part, first, count in (("q", 0, n_head), ("k", n_head * lengths.key, n_head_kv)):
            norm = RowNorm(w.vector((b + f"attn_{part}_norm.weight", lengths.key)), lengths.key, cfg.eps)
            normalize_heads(ops, norm, Parts(rows, first, lengths.key, count))
    return padded(ops, rows, cfg.heads, lengths)


def refusal(cfg: Config) -> WispError:
    """The error for heads that cannot be stored."""
    rotated = max(rope.dim for rope in cfg.ropes)
    return WispError(
        f"Wisp cannot run attention with {cfg.key_dim or cfg.head_dim} dimensions per head, {rotated} of them rotated, "
        f"in {cfg.block_count} layers of this kind.",
        "unsupported_architecture",
    )
