"""The kernels with numpy: the fallback without WebGPU, and the oracle of the kernel tests.

Each function is the twin of the kernel of the same name in wgsl/. Weights are float32 (rows, cols).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from py_engine.cpu.attention import (
    attention,
    attention_combine,
    attention_decode,
    kv_quantize,
    norm_rope_append,
    rope_append,
    rope_store,
)
from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import ACTIVATIONS, capped, gated, normed
from py_engine.cpu.sampling import advance, logprobs, nothing, sample, sample_best, sample_draw, sample_shape


def embed(c: Call) -> None:
    kind = c.params["ROW"]
    at = c["tokens"][c.sequences, c.positions].astype(np.int64) if kind == "token" else c.positions
    rows = (at if kind != "first" else at * 0) - c.consts["row0"]
    present = (rows >= 0) & (rows < c.consts["rows"])
    x, cols = c["x"][: c.n], c.params["COLS"]
    w = c["w"][rows[present]] * np.float32(c.consts["scale"])
    x[present, :cols] = w if kind == "token" else x[present, :cols] + w


def norm(c: Call) -> None:
    cols, groups = c.params["COLS"], c.grid[1]
    x, y = c["x"][: c.n, : cols * groups], c["y"][: c.n, : cols * groups]
    if groups > 1:
        x, y = x.reshape(c.n, groups, cols), y.reshape(c.n, groups, cols)
    if c.params["MEAN"]:
        x = x - x.mean(axis=-1, keepdims=True, dtype=np.float32)
    out = normed(x, c["norm"][0], c.consts["eps"])
    if c.params["BIAS"]:
        out = out + c["bias"][0]
    y[:] = y + out if c.params["ADD"] else out


def add_scaled(c: Call) -> None:
    x = c["x"][: c.n]
    if c.params["GATED"]:
        x = x / (1 + np.exp(-c["gate"][: c.n, :1]))
    c["y"][: c.n] += np.float32(c.consts["scale"]) * x


def soft_cap(c: Call) -> None:
    y = c["y"][: c.n] if c["y"].ndim > 1 else c["y"]
    y[:] = capped(y * np.float32(c.consts["scale"]), c.params["CAP"])


def activate(c: Call) -> None:
    cols, act = c.params["COLS"], c.params["ACTIVATION"]
    rows = c.n * c.grid[2]
    x = c["x"][:rows]
    y, up = x[:, :cols], x[:, cols : 2 * cols]
    c["y"][:rows, :cols] = gated(act, y, up) if c.params["GATED"] else ACTIVATIONS[act](y)


def _biased(c: Call, y: Array) -> Array:
    if c.params["BIAS"]:
        y = y + c["bias"][0, c.consts["row0"] : c.consts["row0"] + c.consts["rows"]]
    return y


def matmul(c: Call) -> None:
    y = _biased(c, c["x"][: c.n, : c.params["COLS"]] @ c["w"].T)
    to = c["y"][: c.n, c.consts["row0"] : c.consts["row0"] + c.consts["rows"]]
    to[:] = to + y if c.params["EPILOGUE"] == "add" else y


def round_to_bytes(x: Array) -> Array:
    """Round x (n, cols) as quantize_x.wgsl: a scale per group of 32, 255 levels."""
    groups = x.reshape(-1, 32)
    largest = np.abs(groups).max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = np.where(largest > 0, np.round(groups * (np.float32(127) / largest)), 0)
    return (levels * (largest / np.float32(127))).reshape(x.shape)


def matvec(c: Call) -> None:
    x = c["x"][c.n - 1 : c.n, : c.params["COLS"]]
    _products(c, x, c["y"].reshape(1, -1), round_to_bytes if c.params["DOT8"] else None)


def matvec_small_batch(c: Call) -> None:
    if c.params["DOT8"]:
        scale = c["xq_scale"][: c.n, :, :1]
        x = (c["xq"][: c.n].view(np.int8).reshape(c.n, -1, 32) * scale).reshape(c.n, -1)
    else:
        x = c["x"][: c.n, : c.params["COLS"]]
    _products(c, x, c["y"][: c.n])


def quantize_rows(c: Call) -> None:
    x = c["x"][: c.n, : c.params["COLS"]]
    groups = (normed(x, c["norm"][0], c.consts["eps"]) if c.params["NORM"] else x).reshape(c.n, -1, 32)
    largest = np.abs(groups).max(axis=2, keepdims=True)
    scale = largest / np.float32(127)
    levels = np.where(largest > 0, np.round(groups * (np.float32(127) / largest)), 0)
    c["xq"][: c.n] = levels.astype(np.int8).view(np.uint32).reshape(c.n, -1, 8)
    c["xq_scale"][: c.n] = np.concatenate([scale, scale * levels.sum(axis=2, keepdims=True)], axis=2)


def _products(c: Call, x: Array, out: Array, rounding: Callable[[Array], Array] | None = None) -> None:
    """Multiply rows of x (n, cols), normalised and rounded, with the matrix; write the epilogue's result to `out`."""
    scale = np.float32(1)
    if c.params["NORM"]:
        scale = 1 / np.sqrt((x * x).mean(axis=1, keepdims=True, dtype=np.float32) + np.float32(c.consts["eps"]))
        x = x * c["norm"][0]
    if rounding is not None:
        x = rounding(x)
    y = _biased(c, (x @ c["w"].T) * scale)
    row0, rows = c.consts["row0"], c.consts["rows"]
    match c.params["EPILOGUE"]:
        case "store":
            out[:, row0 : row0 + rows] = y
        case "add":
            out[:, row0 : row0 + rows] += y
        case "gated":
            out[:, row0 : row0 + rows // 2] = gated(c.params["ACTIVATION"], y[:, : rows // 2], y[:, rows // 2 :])
        case "qkv":
            out[:, : c.consts["q_rows"]] = rope_store(c, y)


def gate(c: Call) -> None:
    cols, first = c.params["COLS"], c.consts["first"]
    up = c["up"][: c.n, first : first + cols]
    c["y"][: c.n, :cols] = gated(c.params["ACTIVATION"], c["x"][: c.n, :cols], up)


def scale_by(c: Call) -> None:
    c["x"][: c.n] *= c["factor"][0, 0]


def pool(c: Call) -> None:
    x, y = c["x"][: c.n], c["y"].reshape(-1)
    match c.params["KIND"]:
        case "mean":
            before = y * np.float32(c.pos) if c.pos else np.float32(0)
            y[:] = (before + x.sum(axis=0, dtype=np.float32)) / np.float32(c.pos + c.n)
        case "cls":
            y[:] = y if c.pos else x[0]
        case "last":
            y[:] = x[-1]


def normalize(c: Call) -> None:
    y = c["y"].reshape(-1)[: c.params["COLS"]]
    length = np.sqrt(np.sum(y * y, dtype=np.float32))
    y *= np.float32(1) / length if length else np.float32(0)


def shortconv(c: Call) -> None:
    cols, size, cache = c.params["COLS"], c.params["KERNEL_SIZE"], c["conv_cache"]
    x, weight = c["x"][: c.n], c["weights"].reshape(cols, size)
    bz = x[:, :cols] * x[:, 2 * cols : 3 * cols]
    total = bz * weight[:, -1]
    pos, seq = c.positions, c.sequences
    in_batch = {(int(s), int(p)): m for m, (s, p) in enumerate(zip(seq, pos, strict=True))}
    for back in range(1, size):
        earlier = cache[c.rows_of(np.maximum(pos - back, 0), seq)].astype(np.float32)
        for m in range(c.n):
            if (other := in_batch.get((int(seq[m]), int(pos[m]) - back))) is not None:
                earlier[m] = bz[other]
        total += np.where((pos >= back)[:, None], earlier * weight[:, size - 1 - back], np.float32(0))
    cache[c.rows_of(pos, seq)] = bz
    c["y"][: c.n, :cols] = x[:, cols : 2 * cols] * total


def route(c: Call) -> None:
    used = c.params["USED"]
    logits = c["logits"][: c.n, : c.params["EXPERTS"]]
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    all_weights = 1 / (1 + np.exp(-logits)) if c.params["GATING"] == "sigmoid" else e / e.sum(axis=1, keepdims=True)
    order = all_weights + c["bias"][0] if c.params["BIASED"] else logits
    chosen = np.argsort(-order, axis=1, kind="stable")[:, :used]
    weights = np.take_along_axis(all_weights, chosen, 1)
    if c.params["NORMALISED"]:
        weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), np.float32(6.1035e-5))
    c["chosen"][: c.n], c["weights"][: c.n] = chosen, weights * np.float32(c.consts["scale"])


def experts(c: Call) -> None:
    cols, rows, used, row0 = c.params["COLS"], c.params["ROWS"], c.params["USED"], c.consts["row0"]
    x, y, first, count = c["x"], c["y"], c.consts["first"], c.consts["count"]
    for m in range(c.n):
        for k in range(used):
            expert = int(c["chosen"][m, k])
            begin = expert * rows - first  # the expert's first row in this part
            lo, hi = max(0, -begin), min(rows, count - begin)
            if lo >= hi:
                continue
            w, slot = c["w"][begin + lo : begin + hi], m * used + k
            bias = c["bias"][expert, lo:hi] if c.params["BIAS"] else np.float32(0)
            if c.params["COMBINE"]:
                y[m, row0 + lo : row0 + hi] += c["weights"][m, k] * (w @ x[slot, :cols] + bias)
            else:
                y[slot, row0 + lo : row0 + hi] = w @ x[m, :cols] + bias


def read(c: Call) -> None:
    threads, loads = c.params["WG"], c.params["LOADS"]
    y = c["y"]
    words = np.zeros((len(y) // threads, loads, threads, 4), np.uint32)
    words.reshape(-1)[: c["x"].size] = c["x"].reshape(-1)
    y[:] = words.sum(axis=(1, 3), dtype=np.uint32).reshape(-1)


KERNELS: dict[str, Callable[[Call], None]] = {
    f.__name__: f
    for f in (
        embed, norm, add_scaled, soft_cap, activate, matmul, matvec, matvec_small_batch, quantize_rows, rope_append,
        norm_rope_append, kv_quantize, attention, attention_decode, attention_combine, pool, normalize, shortconv,
        gate, scale_by, route, experts, sample_best, sample_shape, sample_draw, sample, advance, logprobs, read,
    )
}  # fmt: skip
KERNELS |= {"matmul_matrix": matmul, "attention_matrix": attention}
KERNELS |= dict.fromkeys(("sample_histogram", "sample_sort", "sample_bounds", "logprobs_partitions"), nothing)
