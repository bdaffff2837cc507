"""The plan with numpy: the executor where there is no WebGPU, and the oracle of the kernel tests.

Each function below is a kernel of wgsl/ by name. It gets a `Call`: the op's params and consts, where the batch's tokens
are, and its buffers as numpy arrays that it writes in place. Weights are float32 (rows, cols).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from py_engine.cpu.attention import (
    attention,
    attention_combine,
    attention_decode,
    kv_quantize,
    norm_rope_append,
    rope_append,
    rope_store,
    rows_of,
)  # fmt: skip
from py_engine.cpu.numerics import ACTIVATIONS, capped, gated, normed
from py_engine.cpu.sampling import advance, logprobs, sample, sample_best, sample_shape
from py_engine.plan.plan import Buffer, Op, Plan, Weight
from py_engine.plan.quants import row_bytes

Array = Any  # numpy.ndarray of float32 or uint32
NUMPY = {"f32": np.float32, "f16": np.float16, "u32": np.uint32}


@dataclass
class Call:
    """One op on one batch."""

    params: dict[str, Any]
    consts: dict[str, Any]
    buffers: dict[str, Array]
    states: Array  # (1, 4), or a State of each token: pos, n, resampled, seq
    grid: tuple[Any, Any, Any]

    def __getitem__(self, name: str) -> Array:
        return self.buffers[name]

    @property
    def pos(self) -> int:
        return int(self.states[0, 0])

    @property
    def n(self) -> int:
        return int(self.states[0, 1])

    @property
    def seq(self) -> int:
        return int(self.states[0, 3])

    @property
    def positions(self) -> Array:
        """Of each token, int64 (n,)."""
        if self.params.get("STATE_PER_TOKEN"):
            return self.states[: self.n, 0].astype(np.int64)
        return np.arange(self.pos, self.pos + self.n)

    @property
    def sequences(self) -> Array:
        """Of each token, int64 (n,)."""
        if self.params.get("STATE_PER_TOKEN"):
            return self.states[: self.n, 3].astype(np.int64)
        return np.full(self.n, self.seq)


def embed(c: Call) -> None:
    kind = c.params["ROW"]
    at = c["tokens"][c.sequences, c.positions].astype(np.int64) if kind == "token" else c.positions
    rows = (at if kind != "first" else at * 0) - c.consts["row0"]
    here = (rows >= 0) & (rows < c.consts["rows"])
    x, cols = c["x"][: c.n], c.params["COLS"]
    w = c["w"][rows[here]] * np.float32(c.consts["scale"])
    x[here, :cols] = w if kind == "token" else x[here, :cols] + w


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


def in_bytes(x: Array) -> Array:
    """x (n, cols) as quantize_x.wgsl rounds it: 255 steps for each group of 32."""
    groups = x.reshape(-1, 32)
    most = np.abs(groups).max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(most > 0, np.round(groups * (np.float32(127) / most)), 0)
    return (steps * (most / np.float32(127))).reshape(x.shape)


def matvec(c: Call) -> None:
    x = c["x"][c.n - 1 : c.n, : c.params["COLS"]]
    _products(c, x, c["y"].reshape(1, -1), in_bytes if c.params["DOT8"] else None)


def matvec_small_batch(c: Call) -> None:
    if c.params["DOT8"]:
        steps = c["xq_scale"][: c.n, :, :1]
        x = (c["xq"][: c.n].view(np.int8).reshape(c.n, -1, 32) * steps).reshape(c.n, -1)
    else:
        x = c["x"][: c.n, : c.params["COLS"]]
    _products(c, x, c["y"][: c.n])


def quantize_rows(c: Call) -> None:
    x = c["x"][: c.n, : c.params["COLS"]]
    groups = (normed(x, c["norm"][0], c.consts["eps"]) if c.params["NORM"] else x).reshape(c.n, -1, 32)
    most = np.abs(groups).max(axis=2, keepdims=True)
    steps = most / np.float32(127)
    numbers = np.where(most > 0, np.round(groups * (np.float32(127) / most)), 0)
    c["xq"][: c.n] = numbers.astype(np.int8).view(np.uint32).reshape(c.n, -1, 8)
    c["xq_scale"][: c.n] = np.concatenate([steps, steps * numbers.sum(axis=2, keepdims=True)], axis=2)


def _products(c: Call, x: Array, out: Array, rounded: Callable[[Array], Array] | None = None) -> None:
    """Rows of x (n, cols), normalised and `rounded`, through the matrix, and what else matvec.wgsl does, to rows of
    `out`.
    """
    scale = np.float32(1)
    if c.params["NORM"]:
        scale = 1 / np.sqrt((x * x).mean(axis=1, keepdims=True, dtype=np.float32) + np.float32(c.consts["eps"]))
        x = x * c["norm"][0]
    if rounded is not None:
        x = rounded(x)
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


def shortconv(c: Call) -> None:
    cols, size, cache = c.params["COLS"], c.params["KERNEL_SIZE"], c["conv_cache"]
    x, weight = c["x"][: c.n], c["weights"].reshape(cols, size)
    own = x[:, :cols] * x[:, 2 * cols : 3 * cols]
    total = own * weight[:, -1]
    at, seq = c.positions, c.sequences
    here = {(int(s), int(p)): m for m, (s, p) in enumerate(zip(seq, at, strict=True))}  # those of the batch
    for back in range(1, size):
        before = cache[rows_of(c, np.maximum(at - back, 0), seq)].astype(np.float32)
        for m in range(c.n):
            if (other := here.get((int(seq[m]), int(at[m]) - back))) is not None:
                before[m] = own[other]
        total += np.where((at >= back)[:, None], before * weight[:, size - 1 - back], np.float32(0))
    cache[rows_of(c, at, seq)] = own
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
            at = int(c["chosen"][m, k]) * rows - first  # of the expert's first row in this part
            lo, hi = max(0, -at), min(rows, count - at)
            if lo >= hi:
                continue
            w, slot, expert = c["w"][at + lo : at + hi], m * used + k, int(c["chosen"][m, k])
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
        norm_rope_append, kv_quantize,
        attention, attention_decode, attention_combine, pool, shortconv, gate, scale_by, route, experts,
        sample_best, sample_shape, sample, advance, logprobs, read,
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

    def reserve_sequences(self, sequences: int) -> None:
        """Let the caches hold that many sequences."""
        for b in self.plan.buffers.values():
            if b.pool == "kv":
                more = np.zeros((sequences * b.shape[0], *b.shape[1:]), NUMPY[b.dtype])
                more[: len(self.buffers[b.name])] = self.buffers[b.name]
                self.buffers[b.name] = more
        self.plan.sequences = sequences

    def copy_cache(self, source: int, to: int) -> None:
        """A sequence's tokens, and what the caches hold of them, for another one."""
        self.buffers["tokens"][to] = self.buffers["tokens"][source]
        for b in self.plan.buffers.values():
            if b.pool == "kv":
                rows, held = b.shape[0], self.buffers[b.name]
                held[to * rows : (to + 1) * rows] = held[source * rows : (source + 1) * rows]

    def feed(self, position: int, ids: list[int], lists: list[str], seq: int = 0) -> None:
        """Put tokens of a sequence at their positions and run lists over them."""
        self.buffers["tokens"][seq, position : position + len(ids)] = ids
        self.buffers["state"][:] = position, len(ids), self.buffers["state"][2], seq
        for name in lists:
            self.run(name)

    def run(self, name: str) -> None:
        """One list of the plan on the batch that the state describes."""
        ops = self.plan.lists[name]
        states = next((b.name for op in ops if isinstance(b := op.bindings.get("state"), Buffer)), "state")
        for op in ops:
            self.run_op(op, states)

    def run_op(self, op: Op, states: str = "state") -> None:
        """One dispatch; `states`: the buffer that says where the batch's tokens are."""
        bound = {
            k: self.weights[b.name] if isinstance(b, Weight) else self.buffers[b.name] for k, b in op.bindings.items()
        }
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            KERNELS[op.kernel](Call(op.params, op.consts, bound, self.buffers[states].reshape(-1, 4), op.grid))


def dequantize(weight: Weight, raw: Array) -> Array:
    """The bytes of a weight's rows (uint8), as GGUF has them, as float32 (rows, cols)."""
    from gguf.quants import dequantize as gguf_dequantize

    table = gguf_dequantize(raw.reshape(weight.rows, row_bytes(weight.type, weight.cols)), weight.type)
    return np.ascontiguousarray(table, np.float32)
