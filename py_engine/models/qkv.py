"""The tensors of queries, keys and values: three matrices, or one with the rows of all, and their biases."""

from __future__ import annotations

from py_engine.models.config import Config
from py_engine.plan.plan import Weight
from py_engine.plan.weights import Weights


def projected_rows(cfg: Config, w: Weights, b: str) -> tuple[list[tuple[str, int]], bool]:
    """(tensor, rows) of each matrix, and whether each head's gates follow its queries. `b`: the layer's prefix."""
    rows = _separate_rows(cfg, w, b)
    if b + "attn_qkv.weight" in w:
        rows = [(b + "attn_qkv", sum(count for _, count in rows))]
    elif cfg.shares_kv:
        rows = rows[:1]
    name, first = rows[0]
    q_rows = cfg.head_count * (cfg.key_dim or cfg.head_dim)
    if gated := w.rows(name + ".weight") == first + q_rows:
        rows[0] = name, first + q_rows
    return rows, gated


def key_value_rows(cfg: Config, w: Weights, b: str) -> list[tuple[str, int]]:
    """(tensor, rows) of the two matrices of keys and values. `b`: the layer's prefix."""
    return _separate_rows(cfg, w, b)[1:]


def _separate_rows(cfg: Config, w: Weights, b: str) -> list[tuple[str, int]]:
    """(tensor, rows) of queries, keys and values as three matrices."""
    size = cfg.key_dim or cfg.head_dim
    value_rows = cfg.head_count_kv * (cfg.value_dim or cfg.head_dim)
    values = "attn_k" if cfg.value_norm and b + "attn_v.weight" not in w else "attn_v"  # keys serve as values
    return [(b + "attn_q", cfg.head_count * size), (b + "attn_k", cfg.head_count_kv * size), (b + values, value_rows)]


def projected_bias(cfg: Config, w: Weights, b: str, parts: list[tuple[str, int]]) -> Weight | None:
    """The bias of `parts`. A joined matrix may have three separate biases instead of its own."""
    if cfg.shares_kv:  # llama.cpp does not read the biases of layers that share a cache
        return None
    if len(parts) == 1 and parts[0][0] + ".bias" not in w:
        separate = [(tensor + ".bias", rows) for tensor, rows in _separate_rows(cfg, w, b)]
        return w.vector(*separate) if all(tensor in w for tensor, _ in separate) else None
    return w.optional_vector(*((tensor + ".bias", rows) for tensor, rows in parts))
