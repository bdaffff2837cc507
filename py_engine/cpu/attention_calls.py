"""Rotation, caches and attention."""

from __future__ import annotations

from typing import Any

from py_engine.cpu.adapter_calls import low_rank
from py_engine.cpu.call_layouts import KV_KINDS, PARTS
from py_engine.cpu.calls import Calls, batch_fields, paging_fields, segment_fields, stride_of
from py_engine.plan.plan import Op


def rope(m: Calls, op: Op, x: int, stride: int) -> None:
    """Rotate stacked rows of queries, keys and values; store keys and values."""
    staged, kv = int(op.params["KV"] == "q8_0"), op.consts["kv_rows"]
    m.add(
        "rope", **batch_fields(m, op), **segment_fields(op), **paging_fields(op), staged=staged,
        halves=int(op.params["KV"] == "f16"), q_rows=op.consts["q_rows"], kv_rows=kv, head_dim=op.params["HEAD_DIM"],
        rope_dim=op.params["ROPE_DIM"], neox=op.params["NEOX"], turns=op.params.get("TURNS", 0),
        mrope=op.params.get("MROPE", 0), **_records(op),
        shifts=op.params.get("SHIFTS", 0), anchor=op.params.get("ANCHOR", 0), scale=op.consts["rope_scale"],
        freqs=m.address(op, "rope_freqs"), k=m.address(op, "k_cache") if kv else 0,
        v=m.address(op, "v_cache") if kv else 0, x=x, x_stride=stride, y=m.address(op, "y"),
        y_stride=op.consts["y_stride"], after=m.address(op, "norm") if op.params.get("AFTER") else 0,
        per_head=op.params.get("PER_HEAD", 0),
    )  # fmt: skip


def _records(op: Op, *, whole: bool = True) -> dict[str, Any]:
    """Where the records of a batch with media are, for ops that need them."""
    return {"records": op.params["RECORDS"] if op.params.get("MEDIA") and whole else 0}


def rope_append(m: Calls, op: Op) -> None:
    y, stride = m.address(op, "y"), int(op.consts["y_stride"])
    if op.params.get("LOW_RANK"):
        low_rank(m, op, y, stride, 0, int(op.consts["q_rows"] + 2 * op.consts["kv_rows"]))
    rope(m, op, y, stride)


def norm_rope_append(m: Calls, op: Op) -> None:
    m.add(
        "head_norm", state=m.address(op, "state"), q_rows=op.consts["q_rows"], kv_rows=op.consts["kv_rows"],
        head_dim=op.params["HEAD_DIM"], across_heads=op.params["ACROSS_HEADS"], per_head=op.params["PER_HEAD"],
        alone=op.params.get("ALONE", 0), mean=op.params["MEAN"], norm_values=op.params["NORM_VALUES"],
        eps=op.consts["eps"],
        norm=0 if op.params["AFTER"] else m.address(op, "norm"),
        bias=m.address(op, "bias") if op.params["BIAS"] else 0, x=m.address(op, "x"),
        x_stride=op.consts["x_stride"],
    )  # fmt: skip
    rope(m, op, m.address(op, "x"), int(op.consts["x_stride"]))


def _quantize(m: Calls, op: Op, cols: int) -> None:
    m.add(
        "kv_quantize", **batch_fields(m, op), **paging_fields(op), cols=cols, k_new=m.address(op, "k_new"),
        v_new=m.address(op, "v_new"), k=m.address(op, "k_cache"), v=m.address(op, "v_cache"),
    )  # fmt: skip


def kv_quantize(m: Calls, op: Op) -> None:
    _quantize(m, op, int(op.params["COLS"]))


def _group(op: Op) -> int:
    """Query heads of a key/value head."""
    return int(op.params["G"]) * int(op.params.get("SHARE", 1))


def latent_append(m: Calls, op: Op) -> None:
    m.add(
        "latent_append", **batch_fields(m, op), **segment_fields(op), **paging_fields(op),
        halves=int(op.params["KV"] == "f16"), heads=op.params["HEADS"], nope=op.params["NOPE"], rope=op.params["ROPE"],
        rank=op.params["RANK"], neox=op.params["NEOX"], eps=op.consts["eps"], scale=op.consts["rope_scale"],
        freqs=m.address(op, "rope_freqs"),
        norm=m.address(op, "norm"), q=m.address(op, "q"), q_stride=op.consts["q_stride"],
        kv=m.address(op, "kv") + int(op.consts["kv_first"]),
        kv_stride=op.consts["kv_stride"], k=m.address(op, "k_cache"), y=m.address(op, "y"),
        y_stride=op.consts["y_stride"],
    )  # fmt: skip


def scale_queries(m: Calls, op: Op) -> None:
    m.add(
        "scale_queries", **batch_fields(m, op), **segment_fields(op), cols=op.params["COLS"],
        scale=op.consts["scale"], length=op.consts["length"], first=op.consts["first"], y=m.address(op, "y"),
        y_stride=op.consts["stride"],
    )  # fmt: skip


def _window(op: Op) -> dict[str, Any]:
    """The fields that say how far a token sees."""
    return {"window": op.params["WINDOW"], "chunked": op.params.get("CHUNKED", 0)}


def _part(op: Op) -> dict[str, Any]:
    """The fields that say which part of a cache a small batch reads."""
    numbers = {name.lower(): op.params.get(name, 0) for name in ("SHIFTS", "ANCHOR", "FROM", "MUTUAL")}
    return {"part": PARTS[op.params.get("PART", 0)], **numbers}


def _biases(m: Calls, op: Op) -> dict[str, Any]:
    """The fields of T5's biases."""
    return {
        "relative": m.address(op, "relative"),
        "relative_type": {"f16": 1, "bf16": 2}.get(str(op.params.get("RELATIVE")), 0),
        "heads": op.consts["n_head_kv"] * _group(op),
        "buckets": m.address(op, "buckets"),
    }


def _mask(m: Calls, op: Op) -> dict[str, Any]:
    """The fields of a mask of positions."""
    return {"mask": m.address(op, "index_mask"), "mask_words": op.params.get("INDEXED", 0)}


def attention(m: Calls, op: Op) -> None:
    m.add(
        "attention", state=m.address(op, "state"), **segment_fields(op), **paging_fields(op),
        **_records(op, whole=bool(op.params["WHOLE_MEDIA"])), kind=KV_KINDS[str(op.params["KV"])],
        head_dim=op.params["HEAD_DIM"], group=_group(op),
        kv_heads=op.consts["n_head_kv"], **_window(op), size=m.memory.part,
        causal=op.params.get("CAUSAL", 1),
        soft_cap=op.params["SOFT_CAP"],
        scale=op.consts["scale"], sinks=m.address(op, "sinks"), slopes=m.address(op, "slopes"),
        **_biases(m, op), **_mask(m, op),
        q=m.address(op, "q"), q_stride=op.consts["q_stride"], k=m.address(op, "k_cache"), v=m.address(op, "v_cache"),
        y=m.address(op, "y"), y_stride=stride_of(op, "y"),
    )  # fmt: skip


def attention_decode(m: Calls, op: Op) -> None:
    if op.params["FRESH"] and not op.params["STATE_PER_TOKEN"]:  # the GPU leaves it to attention_combine
        _quantize(m, op, int(op.consts["n_head_kv"]) * int(op.params["HEAD_DIM"]))
    m.add(
        "attention_decode", **batch_fields(m, op), **paging_fields(op), kind=KV_KINDS[str(op.params["KV"])],
        head_dim=op.params["HEAD_DIM"], group=_group(op), kv_heads=op.consts["n_head_kv"],
        **_window(op), **_part(op), size=m.memory.part, split=op.params["SPLIT"], soft_cap=op.params["SOFT_CAP"],
        scale=op.consts["scale"], slopes=m.address(op, "slopes"), **_biases(m, op), **_mask(m, op),
        q=m.address(op, "q"),
        q_stride=op.consts["q_stride"], k=m.address(op, "k_cache"), v=m.address(op, "v_cache"),
        parts=m.address(op, "parts"),
    )  # fmt: skip


def attention_combine(m: Calls, op: Op) -> None:
    m.add(
        "attention_combine", **batch_fields(m, op), head_dim=op.params["HEAD_DIM"], heads=op.consts["n_head"],
        **_window(op), **_part(op), size=m.memory.part, split=op.params["SPLIT"], sinks=m.address(op, "sinks"),
        parts=m.address(op, "parts"), y=m.address(op, "y"), y_stride=op.consts["y_stride"],
    )  # fmt: skip


CALLS = (
    latent_append,
    rope_append,
    norm_rope_append,
    scale_queries,
    kv_quantize,
    attention,
    attention_decode,
    attention_combine,
)
