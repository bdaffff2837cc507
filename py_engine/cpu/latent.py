"""Latent attention with numpy: twins of latent_append.wgsl and head_products*.wgsl."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.attention import merged, pairs, rotate
from py_engine.cpu.call import Call
from py_engine.cpu.numerics import normed


def latent_append(c: Call) -> None:
    heads, nope, rope, rank = (c.params[name] for name in ("HEADS", "NOPE", "ROPE", "RANK"))
    rotation = Call({"ROPE_DIM": rope, "HEAD_DIM": rope, "NEOX": 0}, c.consts, c.buffers, c.states, c.tables, c.grid)
    places = c.rotary_positions
    first, second = pairs(c.params["NEOX"], rope)
    order = np.stack([first, second], axis=1).reshape(-1)  # pairs become neighbours
    q = c["q"][: c.n, : heads * (nope + rope)].reshape(c.n, heads, nope + rope)[:, :, nope + order]
    rotated = q
    if rope:
        rotated = rotate(rotation, np.ascontiguousarray(q).reshape(c.n, heads * rope), places).reshape(q.shape)
    if c.params["WHOLE"]:
        y = c["y"][: c.n, : heads * (nope + rope)].reshape(c.n, heads, -1)
        y[:, :, :nope] = c["q"][: c.n, : heads * (nope + rope)].reshape(c.n, heads, -1)[:, :, :nope]
        y[:, :, nope:] = rotated
    else:
        c["y"][: c.n, : heads * (rope + rank)].reshape(c.n, heads, rope + rank)[:, :, :rope] = rotated
    rows, kv = c.rows_of(c.positions, c.sequences), c["kv"][: c.n, c.consts["kv_first"] :]
    if rope:
        c["k_cache"][rows, :rope] = rotate(rotation, np.ascontiguousarray(kv[:, rank + order]), places)
    c["k_cache"][rows, rope:] = normed(kv[:, :rank], c["norm"][0, :rank], c.consts["eps"])


def latent_expansion(c: Call) -> None:
    nope, value, rank, k = c.params["NOPE"], c.params["VALUE"], c.params["RANK"], c.consts
    pitch = -(-rank // 32) * 32
    y = c["y"].reshape(-1)[: k["heads"] * (nope + value) * pitch].reshape(k["heads"], nope + value, pitch)
    part = y[:, nope:] if c.params["VALUES"] else y[:, :nope]
    rows = rank if c.params["TRANSPOSED"] else part.shape[1]
    for head in range(k["heads"]):
        w = c["w"][k["w_first"] + head * k["w_head"] :][:rows]
        part[head, :, :rank] = w.T[:nope] if c.params["TRANSPOSED"] else w
        part[head, :, rank:] = 0


def head_products(c: Call) -> None:
    _head_products(c, transposed=False)


def head_products_transposed(c: Call) -> None:
    _head_products(c, transposed=True)


def _head_products(c: Call, *, transposed: bool) -> None:
    rows, cols, k = c.params["ROWS"], c.params["COLS"], c.consts
    inputs, outputs = (rows, cols) if transposed else (cols, rows)
    whole = merged(c) if c.params.get("MERGED") else c["x"]
    for head in range(c.params["HEADS"]):
        first = k["w_first"] + head * k["w_head"]
        w = c["w"][first : first + rows]
        at, to = k["x_first"] + head * k["x_head"], k["y_first"] + head * k["y_head"]
        x = whole[: c.n, at : at + inputs].astype(np.float32)
        c["y"][: c.n, to : to + outputs] = x @ (w if transposed else w.T)
