"""Ops that work row by row."""

from __future__ import annotations

from typing import Any

from py_engine.cpu.call_layouts import ACTIVATIONS, EMBED_ROWS, HIDDEN_STATES, MEDIA_ROWS, POOLINGS, RESIDUALS
from py_engine.cpu.calls import (
    Calls,
    Rows,
    batch_fields,
    limits_of,
    matrix_of,
    paging_fields,
    product,
    segment_fields,
    state_of,
    stride_of,
)
from py_engine.plan.op_list import pad
from py_engine.plan.plan import Op, PerToken
from py_engine.plan.quants import GROUP


def embed(m: Calls, op: Op) -> None:
    w, token = matrix_of(op), op.params["ROW"] == "token"
    media = str(op.params["MEDIA_ROW"]) if token and op.params.get("MEDIA") else "none"
    m.add(
        "embed", **batch_fields(m, op), **segment_fields(op), kind=EMBED_ROWS[str(op.params["ROW"])],
        tokens=m.address(op, "tokens") if token else 0, tokens_stride=stride_of(op, "tokens"), w=m.memory.of(w),
        type=w.type, row0=op.consts["row0"], rows=w.rows, cols=w.cols, scale=op.consts["scale"],
        media_row=MEDIA_ROWS[media], media=m.address(op, "media"), media_stride=op.params.get("MEDIA_WIDTH", 0),
        x=m.address(op, "x"), x_stride=stride_of(op, "x"),
    )  # fmt: skip


def switch_adapters(m: Calls, op: Op) -> None:
    m.add(
        "switch_adapters", **batch_fields(m, op), **segment_fields(op), adapters=op.params["ADAPTERS"],
        tokens=m.address(op, "tokens"), tokens_stride=stride_of(op, "tokens"), control=m.address(op, "control"),
        others=op.consts["others"], embedded=m.address(op, "embedded"), chosen=m.address(op, "chosen"),
        weights=m.address(op, "weights"),
    )  # fmt: skip


def add_media(m: Calls, op: Op) -> None:
    m.add(
        "add_media", **batch_fields(m, op), tokens=m.address(op, "tokens"), tokens_stride=stride_of(op, "tokens"),
        first=op.consts["first"], cols=4 * int(op.params["VECS"]), media=m.address(op, "media"),
        media_stride=op.params["MEDIA_WIDTH"], x=m.address(op, "x"), x_stride=op.consts["stride"],
    )  # fmt: skip


def norm(m: Calls, op: Op) -> None:
    groups, width = op.grid[1], pad(int(op.params["COLS"]))  # groups are beside each other, each padded
    assert isinstance(groups, int)
    x_stride, y_stride = (stride_of(op, name) if groups == 1 else groups * width for name in ("x", "y"))
    m.add(
        "norm", state=state_of(m, op), cols=op.params["COLS"], groups=groups, width=width, mean=op.params["MEAN"],
        add=op.params["ADD"], eps=op.consts["eps"], x=m.address(op, "x"), x_stride=x_stride,
        norm=m.address(op, "norm"), bias=m.address(op, "bias"), y=m.address(op, "y"), y_stride=y_stride,
    )  # fmt: skip


def normalize(m: Calls, op: Op) -> None:
    m.add("normalize", state=state_of(m, op), cols=op.params["COLS"], y=m.address(op, "y"), y_stride=stride_of(op, "y"))


def activate(m: Calls, op: Op) -> None:
    if op.params["ACTIVATION"] == "xielu":
        m.add(
            "xielu", state=state_of(m, op), cols=op.params["COLS"], x=m.address(op, "x"), y=m.address(op, "y"),
            **{name: op.consts[name] for name in ("alpha_n", "alpha_p", "beta", "eps", "x_stride", "y_stride")},
        )  # fmt: skip
        return
    repeat = op.grid[2]
    assert isinstance(repeat, int)
    m.add(
        "activate", state=state_of(m, op), repeat=repeat, activation=ACTIVATIONS[str(op.params["ACTIVATION"])],
        **limits_of(op), gated=op.params["GATED"], cols=op.params["COLS"],
        factors=m.address(op, "factors"), x=m.address(op, "x"), x_stride=op.consts["x_stride"],
        y=m.address(op, "y"), y_stride=op.consts["y_stride"],
    )  # fmt: skip


def clamp(m: Calls, op: Op) -> None:
    y, stride = m.address(op, "y") + int(op.consts["first"]), stride_of(op, "y")
    x, x_stride = (y, stride) if op.params["IN_PLACE"] else (m.address(op, "x"), stride_of(op, "x"))
    rows = isinstance(op.grid[1], PerToken)
    m.add(
        "clamp", state=state_of(m, op) if rows else 0, cols=op.params["COLS"], limits=m.address(op, "limits"), x=x,
        x_stride=x_stride, y=y, y_stride=stride,
    )  # fmt: skip


def gate(m: Calls, op: Op) -> None:
    m.add(
        "gate", state=state_of(m, op), activation=ACTIVATIONS[str(op.params["ACTIVATION"])], cols=op.params["COLS"],
        span=op.params.get("SPAN", 1), x=m.address(op, "x"), x_stride=op.consts["x_stride"],
        x_first=op.consts["x_first"], up=m.address(op, "up"), up_stride=op.consts["up_stride"],
        first=op.consts["first"], y=m.address(op, "y"), y_stride=op.consts["y_stride"],
    )  # fmt: skip


def add_scaled(m: Calls, op: Op) -> None:
    m.add(
        "add_scaled", state=state_of(m, op), scale=op.consts["scale"], stride=stride_of(op, "x"), x=m.address(op, "x"),
        gate=m.address(op, "gate"), gate_stride=stride_of(op, "gate") if "gate" in op.bindings else 0,
        y=m.address(op, "y"),
    )  # fmt: skip


def scale_by(m: Calls, op: Op) -> None:
    m.add(
        "scale_by",
        state=state_of(m, op),
        stride=stride_of(op, "x"),
        x=m.address(op, "x"),
        factor=m.address(op, "factor"),
    )


def soft_cap(m: Calls, op: Op) -> None:
    rows = isinstance(op.grid[1], PerToken)
    m.add(
        "soft_cap", state=state_of(m, op) if rows else 0, stride=stride_of(op, "y"), y=m.address(op, "y"),
        scale=op.consts["scale"], cap=op.params["CAP"],
    )  # fmt: skip


def altup_predict(m: Calls, op: Op) -> None:
    cols, width, first = int(op.params["COLS"]), stride_of(op, "x"), int(op.params["ROUTED"])
    if op.params["ADD"]:
        for stream in range(1, int(op.params["STREAMS"])):
            at = m.address(op, "y") + stream * width
            _add_norm(m, op, first * cols, at, stride_of(op, "y"))
    m.add("altup_predict", **_altup_fields(m, op, "y", 0))


def altup_correct(m: Calls, op: Op) -> None:
    if op.params["ROUTED"]:
        _add_norm(m, op, 2 * int(op.params["COLS"]), m.address(op, "x"), stride_of(op, "x"))
    fields = _altup_fields(m, op, "x", int(op.params["COLS"]))
    m.add("altup_correct", **fields, weights=m.address(op, "norms"), scaled=m.address(op, "scaled"))


def _add_norm(m: Calls, op: Op, first: int, y: int, y_stride: int) -> None:
    """y += the norm of `out`, whose weights begin at the index `first` of `norms`."""
    m.add(
        "norm", state=state_of(m, op), cols=op.params["COLS"], groups=1, width=stride_of(op, "out"), mean=0, add=1,
        eps=op.consts["eps"], x=m.address(op, "out"), x_stride=stride_of(op, "out"),
        norm=m.address(op, "norms") + first, bias=0, y=y, y_stride=y_stride,
    )  # fmt: skip


def _altup_fields(m: Calls, op: Op, x: str, norm: int) -> dict[str, Any]:
    """What both ops of several streams have. `x`: what the router reads; `norm`: where in `norms` its norm begins."""
    if op.params["ROUTED"]:
        at, router, stride = m.address(op, "norms") + norm, m.memory.rows, GROUP
        product(m, op, Rows(m.address(op, x), stride_of(op, x), at, op.consts["eps"]), router, stride)
    else:
        router, stride = m.address(op, "router"), stride_of(op, "router")
    sizes = {"count": op.params["STREAMS"], "router_stride": stride, "cols": stride_of(op, "x")}
    places = {name: m.address(op, name) for name in ("factors", "x", "y")}
    return {"state": state_of(m, op), "scale": op.consts["scale"], "router": router, **sizes, **places}


def laurel(m: Calls, op: Op) -> None:
    places = {name: m.address(op, name) for name in ("norms", "attended", "low", "x")}
    fields = {"cols": op.params["COLS"], "eps": op.consts["eps"], "stride": stride_of(op, "x")}
    m.add("laurel", state=state_of(m, op), **fields, **places)


def copy_columns(m: Calls, op: Op) -> None:
    m.add(
        "copy_columns", state=state_of(m, op), cols=op.params["COLS"], parts=op.grid[1], add=op.params["ADD"],
        **{name: m.address(op, name) for name in ("x", "like", "y")},
        like_stride=stride_of(op, "like") if op.params["LIKE"] else 0, **op.consts,
    )  # fmt: skip


def merge_streams(m: Calls, op: Op) -> None:
    _add_streams(m, op, "y")


def spread_streams(m: Calls, op: Op) -> None:
    _add_streams(m, op, "x")


def _add_streams(m: Calls, op: Op, other: str) -> None:
    addresses = {name: m.address(op, name) for name in ("products", "terms", "streams", other)}
    m.add(
        op.kernel, state=state_of(m, op), count=op.params["STREAMS"], cols=op.params["COLS"], **addresses, **op.consts
    )


def attend_streams(m: Calls, op: Op) -> None:
    addresses = {name: m.address(op, name) for name in ("scores", "stored", "x", "y")}
    m.add(
        "attend_streams", state=state_of(m, op), count=op.params["COUNT"], cols=op.params["COLS"], **addresses,
        **op.consts,
    )  # fmt: skip


def remix_streams(m: Calls, op: Op) -> None:
    addresses = {name: m.address(op, name) for name in ("products", "terms", "streams", "x")}
    m.add(
        "remix_streams", state=state_of(m, op), count=op.params["STREAMS"], cols=op.params["COLS"],
        rounds=op.params["ROUNDS"], **addresses, **op.consts,
    )  # fmt: skip


def norm_streams(m: Calls, op: Op) -> None:
    addresses = {name: m.address(op, name) for name in ("norm", "x", "y")}
    m.add(
        "norm_streams", state=state_of(m, op), count=op.grid[1], cols=op.params["COLS"], **addresses, **op.consts
    )  # fmt: skip


def mix_streams(m: Calls, op: Op) -> None:
    addresses = {name: m.address(op, name) for name in ("x", "gates", "y")}
    m.add(
        "mix_streams", state=state_of(m, op), count=op.params["STREAMS"], cols=op.params["COLS"], **addresses,
        **op.consts,
    )  # fmt: skip


def embed_ngrams(m: Calls, op: Op) -> None:
    w, names = matrix_of(op), ("heads", "per_length", "longest", "end", "picture")
    m.add(
        "embed_ngrams", **batch_fields(m, op), **segment_fields(op),
        **{name: op.params[name.upper()] for name in names}, tokens=m.address(op, "tokens"),
        tokens_stride=stride_of(op, "tokens"), hashes=m.address(op, "hashes"), w=m.memory.of(w), type=w.type,
        row0=op.consts["row0"], rows=w.rows, cols=w.cols, x=m.address(op, "x"), x_stride=op.consts["x_stride"],
    )  # fmt: skip


def gate_ngrams(m: Calls, op: Op) -> None:
    addresses = {name: m.address(op, name) for name in ("norms", "key", "value", "streams", "y")}
    m.add(
        "gate_ngrams", state=state_of(m, op), count=op.grid[1], cols=op.params["COLS"], **addresses, **op.consts
    )  # fmt: skip


def sparse_gate(m: Calls, op: Op) -> None:
    m.add(
        "sparse_gate", state=state_of(m, op), activation=ACTIVATIONS[str(op.params["ACTIVATION"])],
        cols=op.params["COLS"], x=m.address(op, "x"), y=m.address(op, "y"), **op.consts,
    )  # fmt: skip


def pool(m: Calls, op: Op) -> None:
    m.add(
        "pool", state=state_of(m, op), **segment_fields(op), kind=POOLINGS[str(op.params["KIND"])],
        stride=stride_of(op, "x"), x=m.address(op, "x"), y=m.address(op, "y"),
    )  # fmt: skip


def pick_rows(m: Calls, op: Op) -> None:
    m.add(
        "pick_rows", state=state_of(m, op), per_token=op.params["STATE_PER_TOKEN"], rows=op.consts["rows"],
        stride=stride_of(op, "x"), x=m.address(op, "x"), y=m.address(op, "y"),
    )  # fmt: skip


def shortconv(m: Calls, op: Op) -> None:
    m.add(
        "shortconv", **batch_fields(m, op), **segment_fields(op), **paging_fields(op), cols=op.params["COLS"],
        size=op.params["KERNEL_SIZE"], halves=int(op.params["KV"] == "f16"), cache=m.address(op, "conv_cache"),
        weights=m.address(op, "weights"), x=m.address(op, "x"), x_stride=op.consts["x_stride"], y=m.address(op, "y"),
        y_stride=op.consts["y_stride"],
    )  # fmt: skip


def shortconv_all(m: Calls, op: Op) -> None:
    m.add(
        "shortconv_all", state=state_of(m, op), **segment_fields(op), cols=op.params["COLS"],
        size=op.params["KERNEL_SIZE"], weights=m.address(op, "weights"), x=m.address(op, "x"),
        x_stride=op.consts["x_stride"], y=m.address(op, "y"), y_stride=op.consts["y_stride"],
    )  # fmt: skip


def mtp_input(m: Calls, op: Op) -> None:
    m.add(
        "mtp_input", **batch_fields(m, op), **segment_fields(op), source=HIDDEN_STATES[str(op.params["HIDDEN"])],
        cols=op.params["COLS"], ring_rows=op.params["RING"], eps=op.consts.get("eps", 0.0),
        residual=RESIDUALS[str(op.params.get("RESIDUAL") or "none")],
        hidden=m.address(op, "hidden") or m.address(op, "x"),
        **{name: m.address(op, name) for name in ("e", "x", "norm", "ring", "y")},
        x_stride=op.consts["x_stride"], y_stride=op.consts["y_stride"],
    )  # fmt: skip


def store_hidden(m: Calls, op: Op) -> None:
    m.add(
        "store_hidden", **batch_fields(m, op), cols=op.params["COLS"], ring_rows=op.params["RING"],
        eps=op.consts["eps"], x_stride=op.consts["x_stride"],
        **{name: m.address(op, name) for name in ("x", "norm", "ring")},
    )  # fmt: skip


def map_logits(m: Calls, op: Op) -> None:
    m.add(
        "map_logits", state=state_of(m, op), cols=op.params["COLS"], rows=op.params["ROWS"],
        token_rows=m.address(op, "rows"), **{name: m.address(op, name) for name in ("x", "y")}, **op.consts,
    )  # fmt: skip


CALLS = (
    embed, add_media, norm, normalize, activate, clamp, gate, add_scaled, scale_by, soft_cap, altup_predict,
    altup_correct, laurel, copy_columns, merge_streams, spread_streams, attend_streams, remix_streams, norm_streams,
    mix_streams, embed_ngrams, gate_ngrams, sparse_gate, pool, pick_rows,
    shortconv, shortconv_all, mtp_input, store_hidden, map_logits, switch_adapters,
)  # fmt: skip
