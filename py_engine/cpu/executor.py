"""Execute a plan's lists with numpy."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.cpu.kernels import KERNELS
from py_engine.plan.pages import STATE_WORDS, TABLES, block_tables
from py_engine.plan.plan import Op, Plan, Weight
from py_engine.plan.quants import row_bytes

DTYPES = {"f32": np.float32, "f16": np.float16, "u32": np.uint32}


class Cpu:
    """The memory of one plan, and the execution of its lists."""

    def __init__(self, plan: Plan, weights: dict[str, Array]) -> None:
        """`weights`: name -> float32 (rows, cols), as `dequantize` returns them."""
        self.plan = plan
        self.weights = weights
        self.buffers = {b.name: np.zeros(b.shape, DTYPES[b.dtype]) for b in plan.buffers.values()}
        for name, data in plan.constants.items():
            self.write(name, data)
        self.write_block_tables()

    @property
    def states(self) -> Array:
        """A State per token of a small batch, (tokens, STATE_WORDS)."""
        return self.buffers["state"][: TABLES // 4].reshape(-1, STATE_WORDS)

    def write_block_tables(self) -> None:
        """Give each sequence that the caches hold its own pages."""
        plan = self.plan
        self.write("state", block_tables(plan.page_groups, plan.n_ctx, plan.page, plan.sequences), TABLES)

    def write(self, name: str, data: bytes | memoryview, at: int = 0) -> None:
        """Write 32-bit words into a buffer at byte `at`."""
        words = np.frombuffer(data, np.uint32)
        self.buffers[name].reshape(-1).view(np.uint32)[at // 4 : at // 4 + len(words)] = words

    def reserve_sequences(self, sequences: int) -> None:
        """Grow the caches to hold that many sequences."""
        for b in self.plan.buffers.values():
            if b.pool == "kv":
                grown = np.zeros((sequences * b.shape[0], *b.shape[1:]), DTYPES[b.dtype])
                grown[: len(self.buffers[b.name])] = self.buffers[b.name]
                self.buffers[b.name] = grown
        self.plan.sequences = sequences
        self.write_block_tables()

    def copy_cache(self, source: int, to: int) -> None:
        """Copy a sequence's tokens and caches to another sequence."""
        self.buffers["tokens"][to] = self.buffers["tokens"][source]
        for b in self.plan.buffers.values():
            if b.pool == "kv":
                rows, cache = b.shape[0], self.buffers[b.name]
                cache[to * rows : (to + 1) * rows] = cache[source * rows : (source + 1) * rows]

    def feed(self, position: int, ids: list[int], lists: list[str], seq: int = 0) -> None:
        """Write tokens of a sequence at their positions and run lists on them."""
        self.buffers["tokens"][seq, position : position + len(ids)] = ids
        self.states[0] = position, len(ids), 0, seq
        for name in lists:
            self.run(name)

    def run(self, name: str) -> None:
        """Run a list of the plan on the batch that the state describes."""
        for op in self.plan.lists[name]:
            self.run_op(op)

    def run_op(self, op: Op) -> None:
        """Run one op."""
        bound = {
            k: self.weights[b.name] if isinstance(b, Weight) else self.buffers[b.name] for k, b in op.bindings.items()
        }
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            tables = self.buffers["state"][TABLES // 4 :]
            KERNELS[op.kernel](Call(op.params, op.consts, bound, self.states, tables, op.grid))


def dequantize(weight: Weight, raw: Array) -> Array:
    """Dequantize a weight's rows from the bytes of the GGUF file (uint8) to float32 (rows, cols)."""
    from gguf.quants import dequantize as gguf_dequantize

    table = gguf_dequantize(raw.reshape(weight.rows, row_bytes(weight.type, weight.cols)), weight.type)
    return np.ascontiguousarray(table, np.float32)
