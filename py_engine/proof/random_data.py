"""Random contents of a case's buffers and matrices, made fast: numpy takes long inside WebAssembly.

A matrix repeats DISTINCT_ROWS rows, and a batch repeats DISTINCT_TOKENS rows of x, each time with another power of two
as factor. So numpy multiplies only the distinct ones. Both periods are prime: an index that is wrong by a multiple of
a tile's side still meets another row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any, TypeAlias

import numpy as np

from py_engine.cpu.call import Array
from py_engine.cpu.executor import DTYPES, dequantize
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import quants
from py_engine.plan.plan import Plan, Weight
from py_engine.proof.batches import Batch
from py_engine.proof.numbers import Numbers

DISTINCT_ROWS, DISTINCT_TOKENS = 13, 5
POOL = 16381  # random numbers that all buffers are filled from; prime, so that rows do not repeat
BLOCKS = 127  # random blocks that all matrices of a type are filled from; prime, too
FACTORS = 0.5, 1.0, 2.0  # of the distinct rows of x

# Byte offsets of the f16 scales in a raw block. Their exponent is set, so that no block outweighs the others.
SCALES: dict[Q, tuple[int, ...]] = {
    Q.Q8_0: (0,), Q.Q4_0: (0,), Q.Q4_1: (0, 2), Q.Q5_0: (0,), Q.Q5_1: (0, 2), Q.Q2_K: (80, 82), Q.Q3_K: (108,),
    Q.Q4_K: (0, 2), Q.Q5_K: (0, 2), Q.Q6_K: (208,), Q.IQ4_NL: (0,), Q.IQ4_XS: (0,), Q.TQ1_0: (52,), Q.TQ2_0: (64,),
    Q.IQ3_S: (0,), Q.IQ3_XXS: (0,), Q.IQ2_XXS: (0,), Q.IQ2_XS: (0,), Q.IQ2_S: (0,), Q.IQ1_S: (0,), Q.Q1_0: (0,),
    Q.Q2_0: (0,),
}  # fmt: skip
PLAIN = (Q.F32, Q.F16, Q.BF16)


@dataclass(frozen=True)
class SparseBytes:
    """A plane with only some `parts` filled: (first byte, bytes). No kernel reads the others."""

    nbytes: int
    parts: tuple[tuple[int, Array], ...]

    def whole(self) -> Array:
        """All bytes: for small planes only."""
        found = np.zeros(self.nbytes, np.uint8)
        for at, part in self.parts:
            found[at : at + len(part)] = part
        return found


class RepeatedRows:
    """A matrix that repeats a few rows, with what the CPU's kernels use of an array: `x @ w.T` and `w[rows]`."""

    __array_ufunc__ = None  # numpy leaves the product to __rmatmul__

    def __init__(self, distinct: Array, rows: int) -> None:
        self.distinct, self.rows = distinct, rows

    @property
    def T(self) -> RepeatedRows:
        """What x is multiplied with."""
        return self

    def __rmatmul__(self, x: Array) -> Array:
        first = x[:DISTINCT_TOKENS]
        at = np.arange(len(x)) % DISTINCT_TOKENS
        product = first @ self.distinct.T
        if len(x) > DISTINCT_TOKENS:
            largest = np.abs(first).argmax(axis=1)[at]  # the others may be rounded to zero
            product = product[at] * (x[np.arange(len(x)), largest] / first[at, largest])[:, None]
        found: Array = product[:, np.arange(self.rows) % len(self.distinct)]
        return found

    def __getitem__(self, rows: Array | slice) -> Array:
        found: Array = self.distinct[np.arange(self.rows)[rows] % len(self.distinct)]
        return found


class RepeatedExperts:
    """The matrices of a mixture that repeat a few rows: `w[first:end].T`, and `w.reshape(...)[:, expert] @ x`."""

    __array_ufunc__ = None

    def __init__(self, distinct: Array, at: Array) -> None:
        self.distinct, self._at = distinct, at  # the row of `distinct` of each row

    @property
    def T(self) -> RepeatedExperts:
        """What x is multiplied with."""
        return self

    def reshape(self, stack: int, experts: int, rows: int, cols: int) -> RepeatedExperts:
        """Rows by (matrix, expert, row)."""
        return RepeatedExperts(self.distinct, self._at.reshape(stack, experts, rows))

    def __getitem__(self, index: Any) -> RepeatedExperts:
        return RepeatedExperts(self.distinct, self._at[index])

    def __rmatmul__(self, x: Array) -> Array:
        found: Array = (x @ self.distinct.T)[:, self._at]
        return found

    def __matmul__(self, x: Array) -> Array:
        found: Array = (self.distinct @ x)[self._at]
        return found


@cache
def pool_of(seed: int) -> Array:
    """Normally distributed numbers, which are made when the modules are imported."""
    return Numbers(seed).standard_normal(POOL)


Values: TypeAlias = Array | RepeatedRows | RepeatedExperts  # of a matrix, for numpy


class RandomData:
    """Random arrays of one plan and seed. Equal requests for matrices, rows of x and states share their memory."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan, self.numbers = plan, Numbers(seed)
        self._states: dict[Batch, tuple[Array, int]] = {}
        self._pools = {"f32": pool_of(seed)}
        self._shared: dict[tuple[str, tuple[int, ...], str, float], Array] = {}
        self._tokens: dict[tuple[int, int, str, float], Array] = {}
        self.repetitive: dict[tuple[int, int], Array] = {}  # histories of samplers
        self._matrices: dict[tuple[Any, ...], dict[str, Array]] = {}
        self._distinct: dict[tuple[Q, int], tuple[Array, Array]] = {}
        self._of_type: dict[Q, tuple[Array, Array]] = {}

    def shared(self, name: str, shape: tuple[int, ...], dtype: str, factor: float = 1.0) -> Array:
        """Normally distributed numbers for a binding, times a factor. They are not to be changed: cases share them."""
        key = name, shape, dtype, factor
        if key not in self._shared:
            values = self.normal(shape, dtype)
            self._shared[key] = values if factor == 1 else values * values.dtype.type(factor)
        return self._shared[key]

    def normal(self, shape: tuple[int, ...], dtype: str = "f32") -> Array:
        """Normally distributed numbers."""
        if dtype not in self._pools:
            self._pools[dtype] = self._pools["f32"].astype(DTYPES[dtype])
        pool, count = self._pools[dtype], prod(shape)
        at, found = int(self.numbers.integers(POOL)), np.empty(count, DTYPES[dtype])
        done = 0
        while done < count:
            part = pool[at : at + count - done]
            found[done : done + len(part)] = part
            at, done = 0, done + len(part)
        return found.reshape(shape)

    def tokens(self, n: int, cols: int, dtype: str = "f32", factor: float = 1.0) -> Array:
        """Rows of x, not to be changed: DISTINCT_TOKENS random ones, repeated with other FACTORS."""
        key = n, cols, dtype, factor
        if key not in self._tokens:
            values = self.normal((min(n, DISTINCT_TOKENS), cols))
            rows = np.concatenate([values * np.float32(f * factor) for f in FACTORS]).astype(DTYPES[dtype])
            self._tokens[key] = rows[np.arange(n) % len(rows)]
        return self._tokens[key]

    def state(self, batch: Batch) -> tuple[Array, int]:
        """As Batch.state()."""
        if batch not in self._states:
            self._states[batch] = batch.state(self.plan, self.numbers)
        return self._states[batch]

    def histories(self, shape: tuple[int, ...], end: int, used: int) -> Array:
        """Tokens below `end` of sequences (sequences, positions). Positions from `used` on are not to be read."""
        found = poison(shape, "u32")
        found[:, :used] = self.numbers.integers(0, end, found[:, :used].shape)
        return found

    def words(self, shape: tuple[int, ...]) -> Array:
        """Random u32."""
        return self.numbers.integers(0, 1 << 32, shape, dtype=np.uint32)

    def levels(self, shape: tuple[int, ...]) -> Array:
        """Random u32 of four int8 each, as a q8_0 cache has them: none is -128.

        Rounding never yields -128, and unpack4x8snorm would read it as -127.
        """
        words = self.words(shape)
        signed = words.view(np.int8)
        signed[signed == -128] = 127
        return words

    def matrix(self, weight: Weight) -> tuple[dict[str, Array], RepeatedRows]:
        """The planes of a random matrix as repack.wgsl writes them, and its values."""
        raw, values = self._rows(weight)
        key = weight.type, weight.rows, weight.cols
        if key not in self._matrices:
            distinct = planes(replace(weight, rows=len(values)), raw.reshape(-1))
            self._matrices[key] = {name: _repeated(weight, name, plane) for name, plane in distinct.items()}
        return self._matrices[key], RepeatedRows(values, weight.rows)

    def negative(self, weight: Weight) -> tuple[dict[str, Array], Array]:
        """As matrix(), of an F32 weight whose values are all below zero."""
        return self._of_sign(weight, -1)

    def positive(self, weight: Weight) -> tuple[dict[str, Array], Array]:
        """As matrix(), of an F32 weight whose values are all well above zero."""
        return self._of_sign(weight, 1, 0.5)

    def _of_sign(self, weight: Weight, sign: int, least: float = 0.0) -> tuple[dict[str, Array], Array]:
        _, values = self.matrix(weight)
        found = (sign * (np.abs(values[:]) + least)).astype(np.float32)
        return planes(weight, found.view(np.uint8).reshape(-1)), found

    def experts(
        self, weight: Weight, blocks: Sequence[tuple[int, int]]
    ) -> tuple[dict[str, SparseBytes], RepeatedExperts]:
        """The planes and values of a mixture's matrices. Only `blocks` of rows are filled: (first row, rows)."""
        raw, values = self._rows(weight)
        at = np.arange(weight.rows) % len(raw)
        found = {}
        made = [(first, planes(replace(weight, rows=n), raw[at[first : first + n]].reshape(-1))) for first, n in blocks]
        for name, plane in weight.layout.planes.items():
            row = weight.plane_row_bytes(name)
            parts = [(0, made[0][1][name][: plane.table])] if plane.table else []
            for (first, n), (_, part) in zip(blocks, made, strict=True):
                parts.append((plane.table + first * row, part[name][plane.table : plane.table + n * row]))
            found[name] = SparseBytes(weight.plane_bytes(name), tuple(parts))
            if any(at % 4 or len(part) % 4 for at, part in parts):  # WebGPU copies whole words
                found[name] = SparseBytes(found[name].nbytes, ((0, found[name].whole()),))
        return found, RepeatedExperts(values, at)

    def _rows(self, weight: Weight) -> tuple[Array, Array]:
        """The distinct rows of a matrix: their bytes in a GGUF file, and their values."""
        key = weight.type, weight.cols
        if key not in self._distinct:
            if weight.type in PLAIN:
                raw = self._raw(replace(weight, rows=DISTINCT_ROWS))
                self._distinct[key] = raw, dequantize(replace(weight, rows=DISTINCT_ROWS), raw)
            else:
                raw, values = self._blocks(weight)
                at = np.arange(DISTINCT_ROWS * weight.cols // values.shape[1]) % BLOCKS
                self._distinct[key] = tuple(parts[at].reshape(DISTINCT_ROWS, -1) for parts in (raw, values))
        return self._distinct[key]

    def _blocks(self, weight: Weight) -> tuple[Array, Array]:
        """Random blocks of a tensor type: their bytes, and their values. It takes long to compute these."""
        if weight.type not in self._of_type:
            some = replace(weight, rows=BLOCKS, cols=weight.layout.block)
            raw = self._raw(some)
            self._of_type[weight.type] = raw, dequantize(some, raw)
        return self._of_type[weight.type]

    def _raw(self, weight: Weight) -> Array:
        if weight.type in PLAIN:
            values = self.normal((weight.rows, weight.cols))
            if weight.type == Q.BF16:
                return np.ascontiguousarray(values.view(np.uint16)[:, 1::2]).view(np.uint8)
            return values.astype(DTYPES[weight.type.name.lower()]).view(np.uint8)
        size = quants.row_bytes(weight.type, weight.cols)
        raw = self.numbers.integers(0, 256, (weight.rows, size), dtype=np.uint8)
        blocks = raw.reshape(-1, weight.layout.block_bytes)
        for at in SCALES.get(weight.type, ()):
            blocks[:, at + 1] = 0x24 | blocks[:, at + 1] & 3
        if weight.type == Q.MXFP4:
            blocks[:, 0] = 124 + blocks[:, 0] % 4
        if weight.type == Q.NVFP4:  # the scales' four bits of exponent
            blocks[:, :4] = 40 + blocks[:, :4] % 32
        if weight.type == Q.IQ1_M:  # the last upper nibble has the scale's sign and most of its exponent
            blocks[:, 55] = 0x20 | blocks[:, 55] & 15
        return raw


def poison(shape: tuple[int, ...], dtype: str) -> Array:
    """NaNs, or the largest u32: what must be overwritten, or must stay."""
    kind = DTYPES[dtype]
    return np.full(shape, 0xFFFFFFFF if kind is np.uint32 else np.nan, kind)


def _repeated(weight: Weight, name: str, distinct: Array) -> Array:
    """The plane of a matrix that repeats the first DISTINCT_ROWS rows."""
    table, row = weight.layout.planes[name].table, weight.plane_row_bytes(name)
    found = np.zeros(weight.plane_bytes(name), np.uint8)
    found[:table] = distinct[:table]
    rows = distinct[table : table + DISTINCT_ROWS * row]
    found[table : table + weight.rows * row] = np.resize(rows, weight.rows * row)
    return found


def planes(weight: Weight, raw: Array) -> dict[str, Array]:
    """The planes that repack writes for a matrix's raw bytes: name -> uint8, padded to the plane's size."""
    layout = weight.layout
    out = {}
    for name, plane in layout.planes.items():
        found = np.zeros(weight.plane_bytes(name), np.uint8)
        if plane.table:
            found[: plane.table] = np.frombuffer(quants.grid(weight.type), np.uint8)
        rows = raw.reshape(weight.rows, -1) if layout.plain else raw.reshape(-1, layout.block_bytes)
        ranges = ((0, rows.shape[1]),) if layout.plain else plane.ranges
        width = weight.plane_row_bytes(name) if layout.plain else plane.stride
        records = found[plane.table : plane.table + len(rows) * width].reshape(len(rows), width)
        column = 0
        for at, size in ranges:
            records[:, column : column + size] = rows[:, at : at + size]
            column += size
        out[name] = found
    return out
