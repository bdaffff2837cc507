"""The plan with numpy: the executor where there is no WebGPU, and the oracle of the kernel tests.

Each function below is a kernel of wgsl/ by name. It gets a `Call`: the op's params and consts, `n` and `pos` of the
batch, and its buffers as numpy arrays that it writes in place. Weights are float32 (rows, cols).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from py_engine.cache import GROUP
from py_engine.cpu_sampling import logprobs, sample, sample_best, sample_shape
from py_engine.plan import Op, Plan, Weight
from py_engine.quants import row_bytes

Array = Any  # numpy.ndarray of float32 or uint32
NUMPY = {"f32": np.float32, "f16": np.float16, "u32": np.uint32}


@dataclass
class Call:
    """One op on one batch."""

    params: dict[str, Any]
    consts: dict[str, Any]
    buffers: dict[str, Array]
    state: Array
    grid: tuple[Any, Any, Any]

    def __getitem__(self, name: str) -> Array:
        return self.buffers[name]

    @property
    def pos(self) -> int:
        return int(self.state[0])

    @property
    def n(self) -> int:
        return int(self.state[1])


def embed(c: Call) -> None:
    kind = c.params["ROW"]
    at = c["tokens"][c.pos : c.pos + c.n].astype(np.int64) if kind == "token" else np.arange(c.pos, c.pos + c.n)
    rows = (at if kind != "first" else at * 0) - c.consts["row0"]
    here = (rows >= 0) & (rows < c.consts["rows"])
    x, cols = c["x"][: c.n], c.params["COLS"]
    w = c["w"][rows[here]] * np.float32(c.consts["scale"])
    x[here, :cols] = w if kind == "token" else x[here, :cols] + w


def normed(x: Array, norm: Array, eps: float) -> Array:
    """RMS norm of rows."""
    scale = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True, dtype=np.float32) + np.float32(eps))
    return x * scale.astype(np.float32) * norm


def norm(c: Call) -> None:
    cols, each = c.params["COLS"], c.grid[1]
    x, y = c["x"][: c.n, : cols * each], c["y"][: c.n, : cols * each]
    if each > 1:
        x, y = x.reshape(c.n, each, cols), y.reshape(c.n, each, cols)
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


def capped(x: Array, cap: float) -> Array:
    return np.float32(cap) * np.tanh(x / np.float32(cap)) if cap else x


def soft_cap(c: Call) -> None:
    y = c["y"][: c.n] if c["y"].ndim > 1 else c["y"]
    y[:] = capped(y * np.float32(c.consts["scale"]), c.params["CAP"])


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    """In its tanh form."""
    return np.float32(0.5) * x * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * x * (1 + np.float32(0.044715) * x * x)))


def gated(act: str, gate: Array, up: Array) -> Array:
    """The product of a gate, activated, and its up."""
    if act == "swiglu_oai":
        g = np.minimum(gate, np.float32(7))
        return g / (1 + np.exp(np.float32(-1.702) * g)) * (np.clip(up, -7, 7) + 1)
    return ACTIVATIONS[act](gate) * up


def relu2(x: Array) -> Array:
    """The square of what is positive (So et al. 2021)."""
    return np.square(np.maximum(x, np.float32(0)))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"silu": silu, "gelu": gelu, "tanh": np.tanh, "relu2": relu2}


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


def in_bytes(x: Array) -> Array:
    """x (cols,) as quantize_x.wgsl rounds it: 255 steps for each group of 32."""
    groups = x.reshape(-1, 32)
    most = np.abs(groups).max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(most > 0, np.round(groups * (np.float32(127) / most)), 0)
    return (steps * (most / np.float32(127))).reshape(-1)


def matvec(c: Call) -> None:
    x = c["x"][c.n - 1, : c.params["COLS"]]
    scale = np.float32(1)
    if c.params["NORM"]:
        scale = 1 / np.sqrt((x * x).mean(dtype=np.float32) + np.float32(c.consts["eps"]))
        x = x * c["norm"][0]
    if c.params["DOT8"]:
        x = in_bytes(x)
    y = _biased(c, c["w"] @ x * scale)
    out, row0, rows = c["y"].reshape(-1), c.consts["row0"], c.consts["rows"]
    match c.params["EPILOGUE"]:
        case "store":
            out[row0 : row0 + rows] = y
        case "add":
            out[row0 : row0 + rows] += y
        case "gated":
            out[row0 : row0 + rows // 2] = gated(c.params["ACTIVATION"], y[: rows // 2], y[rows // 2 :])
        case "qkv":
            out[: c.consts["q_rows"]] = rope_store(c, y[None])[0]


def rotate(c: Call, x: Array, pos: Array) -> Array:
    """RoPE of (n, heads * head_dim) at positions (n,)."""
    dim, head = c.params["ROPE_DIM"], c.params["HEAD_DIM"]
    # 32-bit wrap-around, as on the GPU
    turns = (pos.astype(np.uint32)[:, None] * c["rope_freqs"][: dim // 2]).astype(np.uint32).view(np.int32)
    angle = turns.astype(np.float32) * np.float32(2 * np.pi / 2**32)
    cos, sin = ((f(angle) * np.float32(c.consts["rope_scale"]))[:, None, :] for f in (np.cos, np.sin))
    heads = x.reshape(len(x), -1, head)
    out = heads.copy()
    first, second = (
        (slice(0, dim // 2), slice(dim // 2, dim)) if c.params["NEOX"] else (slice(0, dim, 2), slice(1, dim, 2))
    )
    out[..., first] = heads[..., first] * cos - heads[..., second] * sin
    out[..., second] = heads[..., first] * sin + heads[..., second] * cos
    return out.reshape(x.shape)


def rope_store(c: Call, rows: Array) -> Array:
    """Queries of the stacked rows (n, q + 2 kv), rotated; keys (rotated) and values go to the cache."""
    q, kv = c.consts["q_rows"], c.consts["kv_rows"]
    pos = np.arange(c.pos, c.pos + len(rows))
    if not kv:
        return rotate(c, rows[:, :q], pos)
    to = pos - c.pos if c.params["KV"] == "q8_0" else pos % c.params["RING"] if c.params["RING"] else pos
    c["k_cache"][to] = rotate(c, rows[:, q : q + kv], pos)
    c["v_cache"][to] = rows[:, q + kv : q + 2 * kv]
    return rotate(c, rows[:, :q], pos)


def rope_append(c: Call) -> None:
    y = c["y"][: c.n]
    y[:, : c.consts["q_rows"]] = rope_store(c, y)


def norm_rope_append(c: Call) -> None:
    q, kv, dim = c.consts["q_rows"], c.consts["kv_rows"], c.params["HEAD_DIM"]
    x = c["x"][: c.n, : q + 2 * kv].copy()
    for first, rows in ((0, q), (q, kv)):
        width = rows if c.params["WIDE"] else dim
        part = x[:, first : first + rows].reshape(c.n, -1, width)
        if c.params["MEAN"]:
            part = part - part.mean(axis=-1, keepdims=True, dtype=np.float32)
        at = slice(first, first + rows) if c.params["OWN"] else slice(dim * (first > 0), dim * (1 + (first > 0)))
        out = normed(part, c["norm"][0, at].reshape(-1, width), c.consts["eps"])
        if c.params["BIAS"]:
            out = out + c["bias"][0, at].reshape(-1, width)
        x[:, first : first + rows] = out.reshape(c.n, rows)
    if c.params["VALUES"]:
        values = x[:, q + kv :].reshape(c.n, -1, dim)
        x[:, q + kv :] = normed(values, np.float32(1), c.consts["eps"]).reshape(c.n, kv)
    c["y"][: c.n, :q] = rope_store(c, x)


def attention(c: Call) -> None:
    group, kv_heads, head_dim = c.params["G"], c.consts["n_head_kv"], c.params["HEAD_DIM"]
    y = c["y"][: c.n, : kv_heads * group * head_dim].reshape(c.n, kv_heads, group, head_dim)
    for head, scores, v in _scores(c):
        top, more = scores.max(axis=-1, keepdims=True), np.float32(0)
        if c.params["SINKS"]:
            sinks = c["sinks"][0, head * group : (head + 1) * group, None, None]
            top = np.maximum(top, sinks)
            more = np.exp(sinks - top)
        e = np.exp(scores - top)
        y[:, head] = (e @ v / (e.sum(axis=-1, keepdims=True) + more)).transpose(1, 0, 2)


def attention_decode(c: Call) -> None:
    group, head_dim, share = c.params["G"], c.params["HEAD_DIM"], attention_share(c)
    for head, scores, v in _scores(c):
        for part, first in enumerate(range(c.pos + 1 - attention_seen(c), c.pos + 1, share)):
            s = scores[:, 0, first : first + share]
            top = s.max(axis=-1, keepdims=True)
            e = np.exp(s - top)
            to = c["parts"][head * group : (head + 1) * group, part]
            to[:, :head_dim] = e @ v[first : first + share]
            to[:, head_dim], to[:, head_dim + 1] = top[:, 0], e.sum(axis=-1)


def _scores(c: Call) -> Iterator[tuple[int, Array, Array]]:
    """(kv head, scaled and masked scores (group, n, positions), values (positions, head_dim)) for each kv head."""
    head_dim, group, kv_heads = c.params["HEAD_DIM"], c.params["G"], c.consts["n_head_kv"]
    pos, n = c.pos, c.n
    q = c["q"][:n, : kv_heads * group * head_dim].reshape(n, kv_heads, group, head_dim) * np.float32(c.consts["scale"])
    k, v = (_cached(c, name, pos + n).reshape(-1, kv_heads, head_dim) for name in ("k_cache", "v_cache"))
    distance = np.arange(pos, pos + n)[:, None] - np.arange(pos + n)[None, :]
    window = c.params["WINDOW"] or 2 * (pos + n)
    if c.params.get("CAUSAL", 1):
        hidden = (distance < 0) | (distance >= window)
    else:
        hidden = abs(distance) > window // 2
    for head in range(kv_heads):
        scores = np.einsum("ngd,sd->gns", q[:, head], k[:, head])
        scores = capped(scores, c.params["SOFT_CAP"])
        if c.params.get("ALIBI"):
            slopes = c["slopes"].view(np.float32)[head * group : (head + 1) * group]
            scores -= slopes[:, None, None] * abs(distance).astype(np.float32)
        scores[:, hidden] = -np.inf
        yield head, scores, v[:, head]


def _cached(c: Call, name: str, positions: int) -> Array:
    """Rows of the positions up to `positions` in float32; those that a ring has lost are some other's."""
    cache, ring = c[name], c.params["RING"]
    rows = np.arange(positions) % ring if ring else np.arange(positions)
    if c.params["KV"] != "q8_0":
        return cache[rows].astype(np.float32)
    cols = c.consts["n_head_kv"] * c.params["HEAD_DIM"]
    values, steps = _q8_0(cache, c.params["KV_ROWS"], cols)
    return (values[rows].reshape(positions, -1, GROUP) * (steps[rows] / np.float32(127))[..., None]).reshape(
        positions, -1
    )


def _q8_0(cache: Array, rows: int, cols: int) -> tuple[Array, Array]:
    """Views of a q8_0 cache: bytes (rows, cols), steps (rows, groups)."""
    flat = cache.reshape(-1)
    values, steps = flat[: rows * cols // 4], flat[rows * cols // 4 : rows * (cols // 4 + cols // GROUP)]
    return values.view(np.int8).reshape(rows, cols), steps.view(np.float32).reshape(rows, cols // GROUP)


def kv_quantize(c: Call) -> None:
    cols, ring = c.params["COLS"], c.params["RING"]
    at = np.arange(c.pos, c.pos + c.n)
    rows = at % ring if ring else at
    for name in ("k", "v"):
        groups = c[name][: c.n].reshape(c.n, -1, GROUP)
        most = np.abs(groups).max(axis=-1)
        values, steps = _q8_0(c[f"{name}_cache"], c.params["KV_ROWS"], cols)
        grow = np.where(most > 0, 1 / most, 0).astype(np.float32)
        values[rows] = np.floor(np.float32(0.5) + 127 * (groups * grow[..., None])).reshape(c.n, cols)
        steps[rows] = most


def attention_seen(c: Call) -> int:
    """Positions that the token sees: the last ones."""
    return min(c.pos + 1, c.params["WINDOW"] or c.pos + 1)


def attention_share(c: Call) -> int:
    """Positions that each of the SPLIT parts takes: whole tiles of TS."""
    tiles = -(-attention_seen(c) // c.params["TS"])
    return -(-tiles // c.params["SPLIT"]) * c.params["TS"]


def attention_combine(c: Call) -> None:
    head_dim, share = c.params["HEAD_DIM"], attention_share(c)
    parts = c["parts"][: c.consts["n_head"], : -(-attention_seen(c) // share)]
    top, more = parts[..., head_dim].max(axis=1, keepdims=True), np.float32(0)
    if c.params["SINKS"]:
        sinks = c["sinks"][0, : c.consts["n_head"], None]
        top = np.maximum(top, sinks)
        more = np.exp(sinks - top)
    weight = np.exp(parts[..., head_dim] - top)
    total = (weight * parts[..., head_dim + 1]).sum(axis=1, keepdims=True) + more
    y = (weight[..., None] * parts[..., :head_dim]).sum(axis=1) / total
    c["y"].reshape(-1)[: y.size] = y.reshape(-1)


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


def shortconv(c: Call) -> None:
    cols, taps, cache = c.params["COLS"], c.params["TAPS"], c["conv_cache"]
    x, weight = c["x"][: c.n], c["taps"].reshape(cols, taps)
    own = x[:, :cols] * x[:, 2 * cols : 3 * cols]
    before = min(c.pos, taps - 1)
    pos = np.arange(c.pos - before, c.pos + c.n) % (c.params["RING"] or len(cache))
    seen = np.concatenate([np.zeros((taps - 1 - before, cols)), cache[pos[:before]], own], dtype=np.float32)
    cache[pos[before:]] = own
    total = sum(seen[j : j + c.n] * weight[:, j] for j in range(taps))
    c["y"][: c.n, :cols] = x[:, cols : 2 * cols] * total


def route(c: Call) -> None:
    used = c.params["USED"]
    logits = c["logits"][: c.n, : c.params["EXPERTS"]]
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    all_shares = 1 / (1 + np.exp(-logits)) if c.params["GATING"] == "sigmoid" else e / e.sum(axis=1, keepdims=True)
    order = all_shares + c["bias"][0] if c.params["BIASED"] else logits
    chosen = np.argsort(-order, axis=1, kind="stable")[:, :used]
    shares = np.take_along_axis(all_shares, chosen, 1)
    if c.params["NORMALISED"]:
        shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), np.float32(6.1035e-5))
    c["chosen"][: c.n], c["shares"][: c.n] = chosen, shares * np.float32(c.consts["scale"])


def experts(c: Call) -> None:
    cols, rows, used, row0 = c.params["COLS"], c.params["ROWS"], c.params["USED"], c.consts["row0"]
    x, y, first, count = c["x"], c["y"], c.consts["first"], c.consts["count"]
    for m in range(c.n):
        for k in range(used):
            at = int(c["chosen"][m, k]) * rows - first  # of the expert's first row in this part
            lo, hi = max(0, -at), min(rows, count - at)
            if lo >= hi:
                continue
            w, slot, expert = c["w"][at + lo : at + hi], m * used + k, int(c["chosen"][m, k])
            bias = c["bias"][expert, lo:hi] if c.params["BIAS"] else np.float32(0)
            if c.params["COMBINE"]:
                y[m, row0 + lo : row0 + hi] += c["shares"][m, k] * (w @ x[slot, :cols] + bias)
            else:
                y[slot, row0 + lo : row0 + hi] = w @ x[m, :cols] + bias


KERNELS: dict[str, Callable[[Call], None]] = {
    f.__name__: f
    for f in (
        embed, norm, add_scaled, soft_cap, activate, matmul, matvec, rope_append, norm_rope_append, kv_quantize,
        attention, attention_decode, attention_combine, pool, shortconv, gate, scale_by, route, experts,
        sample_best, sample_shape, sample, logprobs,
    )
}  # fmt: skip


KERNELS |= {"matmul_matrix": matmul, "attention_matrix": attention}


class Cpu:
    """Memory of one plan, and the run of its lists."""

    def __init__(self, plan: Plan, weights: dict[str, Array]) -> None:
        """`weights`: name -> float32 (rows, cols), as `dequantize` gives them."""
        self.plan = plan
        self.weights = weights
        self.buffers = {b.name: np.zeros(b.shape, NUMPY[b.dtype]) for b in plan.buffers.values()}
        for name, data in plan.constants.items():
            self.write(name, data)

    def write(self, name: str, data: bytes | memoryview, at: int = 0) -> None:
        """Put words into a buffer from its byte `at` on."""
        words = np.frombuffer(data, np.uint32)
        self.buffers[name].reshape(-1).view(np.uint32)[at // 4 : at // 4 + len(words)] = words

    def feed(self, position: int, ids: list[int], lists: list[str]) -> None:
        """Put tokens at their positions and run lists over them."""
        self.buffers["tokens"][position : position + len(ids)] = ids
        self.buffers["state"][:2] = position, len(ids)
        for name in lists:
            self.run(name)

    def run(self, name: str) -> None:
        """One list of the plan on the batch that the state describes."""
        for op in self.plan.lists[name]:
            self.run_op(op)

    def run_op(self, op: Op) -> None:
        """One dispatch."""
        bound = {
            k: self.weights[b.name] if isinstance(b, Weight) else self.buffers[b.name] for k, b in op.bindings.items()
        }
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            KERNELS[op.kernel](Call(op.params, op.consts, bound, self.buffers["state"], op.grid))


def dequantize(weight: Weight, raw: Array) -> Array:
    """The bytes of a weight's rows (uint8), as GGUF has them, as float32 (rows, cols)."""
    from gguf.quants import dequantize as gguf_dequantize

    table = gguf_dequantize(raw.reshape(weight.rows, row_bytes(weight.type, weight.cols)), weight.type)
    return np.ascontiguousarray(table, np.float32)
