"""Ops on whole rows, as encoders of images and sound need them. Shapes as in ops.py.

Taps are pairs of u32, (n, taps, 2): a row's index, and the bits of its f32 weight. The host writes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.plan import quants
from py_engine.plan.cache import Cache
from py_engine.plan.kernels import Device
from py_engine.plan.op_list import OpList, pad
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.shared_constants import THREADS

ROW_THREADS = 512  # of a workgroup that has a whole row, at most
COLUMNS = 64  # of a workgroup of column_norms.wgsl
LEAST_MEAN = 1e-6  # of the lengths of response_norm.wgsl
CODE_THREADS = 128  # of a workgroup of nearest_code.wgsl
GATHER_THREADS = 32  # threads of a workgroup of gather.wgsl and matmul_transposed.wgsl


def taps(ops: OpList, name: str, count: int) -> Buffer:
    """The buffer of `count` taps for each row of a list."""
    return ops.buffer(name, (ops.batch, count, 2), "u32", "state")


def patches(ops: OpList, pixels: Buffer, places: Buffer, values: Buffer, side: int, dtype: str = "") -> Buffer:
    """The pixels of each patch, (n, 3 * side^2), for products unless a `dtype` is given.

    wgsl/patches.wgsl describes the buffers.
    """
    y = ops.rows("patches", 3 * side * side, dtype or ops.input_dtype)
    ops.add(
        "patches",
        {"PATCH": side, "Y16": int(y.dtype == "f16")},
        {"y_stride": y.shape[1]},
        {"state": ops.state, "pixels": pixels, "places": places, "values": values, "y": y},
        -(-3 * side * side // THREADS),
        PerToken(),
    )
    return y


@dataclass(frozen=True)
class OneTap:
    """One of the taps (n, taps, 2) of each row."""

    taps: Buffer
    number: int


def gather(
    ops: OpList, table: Weight | Buffer, cols: int, chosen: Buffer | OneTap, y: Buffer, *, add: bool = False
) -> None:
    """y = the sum of the chosen rows of a table, each with its weight. `add`: y += ...

    `chosen`: taps; of one tap, the row goes into the columns of y from number * cols on.
    """
    found = chosen.taps if isinstance(chosen, OneTap) else chosen
    part, count = (chosen.number, 1) if isinstance(chosen, OneTap) else (0, found.shape[1])
    params = {"COLS": cols, "TAPS": count, "WG": GATHER_THREADS}
    consts = {"tap0": part, "taps_stride": found.shape[1], "first": part * cols}
    consts["y_stride"] = y.shape[1]
    bindings = {"state": ops.state, "taps": found, "y": y}
    parts = table.split(ops.device.max_binding) if isinstance(table, Weight) else [(0, table)]
    for row0, rows in parts:
        bound: Weight | Buffer = rows
        fragment = bound.layout.fragment if isinstance(bound, Weight) else bound.dtype
        ops.add(
            "gather",
            params | {"QUANT": fragment, "ADD": int(add or row0 > 0)},
            consts | {"row0": row0, "rows": bound.rows if isinstance(bound, Weight) else bound.shape[0]},
            bindings | ({"w": bound} if isinstance(bound, Weight) else {"w_qs": bound}),
            -(-quants.groups(cols) // GATHER_THREADS),
            PerToken(),
        )


def merged(ops: OpList, x: Buffer, cols: int, count: int, chosen: Buffer | None) -> Buffer:
    """Join `count` rows of x into one: (n, count * cols).

    Without `chosen` taps, the rows follow each other. That is the same memory if rows have no padding.
    """
    if chosen is None:
        assert pad(cols) == cols
        return replace(x, shape=(x.shape[0] // count, count * cols))
    y = ops.rows("merged", count * cols)
    for part in range(count):
        gather(ops, x, cols, OneTap(chosen, part), y)
    return y


def unfold(ops: OpList, x: Buffer, cols: int, chosen: Buffer, dtype: str = "") -> Buffer:
    """The input of a convolution as rows of a matrix: (n, cols * taps), a column's taps beside each other.

    `dtype`: if not that of what only products read.
    """
    count = chosen.shape[1]
    y = ops.rows("unfolded", cols * count, dtype or ops.input_dtype)
    ops.add(
        "unfold",
        {"COLS": cols, "TAPS": count, "Y16": int(y.dtype == "f16")},
        {"x_stride": x.shape[1], "y_stride": y.shape[1]},
        {"state": ops.state, "taps": chosen, "x": x, "y": y},
        -(-cols * count // THREADS),
        PerToken(),
    )
    return y


def nearest_code(ops: OpList, x: Buffer, book: Weight, tap: OneTap, codes: int, row0: int) -> None:
    """Set a tap of each row of x to `row0` + the nearest of a codebook's first `codes` rows; subtract that row.

    x (n, book.cols).
    """
    ops.add(
        "nearest_code",
        {"QUANT": book.layout.fragment, "COLS": book.cols, "WG": CODE_THREADS},
        {"codes": codes, "row0": row0, "tap": tap.number, "taps_stride": tap.taps.shape[1], "x_stride": x.shape[1]},
        {"w": book, "x": x, "taps": tap.taps},
        PerToken(),
    )


def clamp(ops: OpList, x: Buffer, limits: Weight | Buffer, y: Buffer, cols: int, first: int = 0) -> None:
    """y[:, first : first + cols] = x within limits (largest, smallest). In place, x is y."""
    ops.add(
        "clamp",
        {"COLS": cols, "IN_PLACE": int(x is y), "X16": int(x.dtype == "f16"), "Y16": int(y.dtype == "f16")},
        {"x_stride": x.shape[1], "y_stride": y.shape[1], "first": first},
        {"state": ops.state, "limits": limits} | ({"y": y} if x is y else {"x": x, "y": y}),
        -(-cols // THREADS),
        PerToken(),
    )


def zero(ops: OpList, x: Buffer, y: Buffer, cols: int) -> None:
    """y[:, :cols] = 0. x: any rows with so many columns, which are clamped to it; they may be y."""
    clamp(ops, x, ops.constant("limits.0", [0.0, 0.0]), y, cols)


def shift_scale(ops: OpList, x: Buffer, factor: Weight | Buffer, shift: Weight | None = None) -> None:
    """x = (x - shift) * factor, column by column."""
    ops.add(
        "shift_scale",
        {"VECS": x.shape[1] // 4, "SHIFT": int(shift is not None)},
        {},
        {"state": ops.state, "factor": factor, "x": x} | ({"shift": shift} if shift else {}),
        -(-x.shape[1] // (4 * THREADS)),
        PerToken(),
    )


def project_transposed(ops: OpList, x: Buffer, weight: Weight, y: Buffer) -> None:
    """y = x W, for a matrix that is stored (inputs, outputs)."""
    ops.add(
        "matmul_transposed",
        {"QUANT": weight.layout.fragment, "COLS": weight.cols, "WG": GATHER_THREADS},
        {"rows": weight.rows, "x_stride": x.shape[1]},
        {"state": ops.state, "x": x, "w": weight, "y": y},
        -(-quants.groups(weight.cols) // GATHER_THREADS),
        PerToken(),
    )


def depthwise(ops: OpList, x: Buffer, kernel: Weight, cols: int, chosen: Buffer, terms: Weight | None = None) -> Buffer:
    """A convolution of each of `cols` channels on its own: (n, cols). `kernel`: (cols, taps).

    `terms`: a bias (cols), or a bias, the factor and the shift of a batch norm (3 * cols), or the mean, the variance,
    the factor and the shift of one (4 * cols).
    """
    y = ops.rows("depthwise", cols)
    ops.add(
        "depthwise",
        {"QUANT": kernel.layout.fragment, "CHANNELS": cols, "TAPS": chosen.shape[1]}
        | {"TERMS": terms.cols // cols if terms else 0},
        {"stride": x.shape[1]},
        {"state": ops.state, "taps": chosen, "w": kernel, "x": x, "y": y} | ({"terms": terms} if terms else {}),
        -(-cols // THREADS),
        PerToken(),
    )
    return y


@dataclass(frozen=True)
class GridHeads:
    """Heads whose scores depend on the columns and lines of a grid, of at most `side` each."""

    count: int
    dim: int
    side: int

    @property
    def wide(self) -> int:
        """Dimensions of a head with its positions."""
        return self.dim + 2 * self.side


def grid_heads(
    ops: OpList, x: Buffer, tables: tuple[Buffer, Buffer], cells: Buffer, heads: GridHeads, cache: Cache
) -> Buffer:
    """Append keys and values of x, (n, 3 * count * dim), to the cache; return the queries: (n, count * wide).

    `tables`: a key of each distance of columns, and of lines, (2 * side - 1, dim). `cells`: see wgsl/grid_heads.wgsl.
    """
    width = heads.count * heads.wide
    y = ops.rows("grid_queries", width, ops.input_dtype)
    ops.add(
        "grid_heads",
        {"HEADS": heads.count, "HEAD_DIM": heads.dim, "SIDE": heads.side, "Y16": int(y.dtype == "f16")},
        {"x_stride": x.shape[1], "table_stride": tables[0].shape[1], "y_stride": y.shape[1], "scale": heads.dim**0.5},
        {"state": ops.state, "x": x, "columns": tables[0], "lines": tables[1], "cells": cells, "y": y}
        | {"k": cache.k, "v": cache.v},
        -(-width // THREADS),
        PerToken(),
    )
    return y


def response_norm(ops: OpList, x: Buffer, terms: Weight, cols: int) -> Buffer:
    """x * (1 + factor * length / the mean of lengths) + bias, for products; a column's length is over all rows.

    `terms`: the factors and the bias of the columns (2 * cols).
    """
    lengths, y = ops.buffer(f"{ops.name}.lengths", (1, pad(cols))), ops.rows("response", cols, ops.input_dtype)
    ops.add(
        "column_norms", {"COLS": cols}, {"x_stride": x.shape[1]}, {"state": ops.state, "x": x, "y": lengths},
        -(-cols // COLUMNS),
    )  # fmt: skip
    ops.add(
        "response_norm",
        {"COLS": cols, "WG": norm_threads(ops.device, cols), "Y16": int(y.dtype == "f16")},
        {"least": LEAST_MEAN, "x_stride": x.shape[1], "y_stride": y.shape[1]},
        {"x": x, "lengths": lengths, "terms": terms, "y": y},
        PerToken(),
    )
    return y


def subsample(ops: OpList, x: Buffer, length: Buffer, kernels: Weight, biases: Weight, bins: int) -> Buffer:
    """Two convolutions of 3 x 3 places with stride 2, the second of each channel on its own, with ReLU between them.

    `x`: (frames, bins), four frames for each row of the list; the first word of `length` says how many there are.
    `kernels`: (2 * channels, 9), the first's and the second's; `biases`: (2 * channels).
    Returns (n * a quarter of the bins, channels).
    """
    channels, parts = kernels.rows // 2, -(-bins // 4)
    y = ops.buffer(f"{ops.name}.subsampled", (ops.batch, parts * pad(channels)))
    four = replace(x, shape=(x.shape[0] // 4, 4 * x.shape[1]))
    ops.add(
        "subsample",
        {"QUANT": kernels.layout.fragment, "CHANNELS": channels, "BINS": bins},
        {"x_stride": x.shape[1], "y_stride": y.shape[1], "part_stride": pad(channels)},
        {"state": ops.state, "x": four, "length": length, "w": kernels, "biases": biases, "y": y},
        -(-channels // THREADS),
        PerToken(),
        parts,
    )
    return replace(y, shape=(ops.batch * parts, pad(channels)))


def softmax(ops: OpList, x: Buffer, cols: int) -> Buffer:
    """The softmax of each row of `cols` columns, for products."""
    y = ops.rows("softmax", cols, ops.input_dtype)
    ops.add(
        "softmax",
        {"COLS": cols, "Y16": int(y.dtype == "f16")},
        {"x_stride": x.shape[1], "y_stride": y.shape[1]},
        {"state": ops.state, "x": x, "y": y},
        -(-cols // THREADS),
        PerToken(),
    )
    return y


def plain_rms_norm(ops: OpList, x: Buffer, cols: int, eps: float) -> Buffer:
    """x / rms(x), row by row, for products."""
    y = ops.rows("plain_norm", cols, ops.input_dtype)
    norm_into(ops, x, RowNorm(ops.constant(f"ones.{cols}", [1.0] * cols), cols, eps), y)
    return y


@dataclass(frozen=True)
class Parts:
    """`count` parts of each row of a buffer, each `step` columns after the one before."""

    buffer: Buffer
    first: int = 0
    step: int = 0
    count: int = 1


@dataclass(frozen=True)
class LengthOf:
    """The factor that gives every part of a row the length of that row of `rows` (n, padded cols), times `factor`."""

    rows: Buffer
    factor: float = 1.0


def copy_columns(
    ops: OpList, source: Parts, target: Parts, cols: int, *, scale: float | LengthOf = 1.0, add: bool = False
) -> None:
    """target = scale * source, part by part, of `cols` columns. `add`: target += ..."""
    x, y = source.buffer, target.buffer
    like, factor = (scale.rows, scale.factor) if isinstance(scale, LengthOf) else (None, scale)
    ops.add(
        "copy_columns",
        {"COLS": cols, "ADD": int(add), "LIKE": int(like is not None), "WG": norm_threads(ops.device, cols)}
        | {"X16": int(x.dtype == "f16")},
        {"scale": factor, "x_stride": x.shape[1], "x_first": source.first, "x_step": source.step}
        | {"y_stride": y.shape[1], "y_first": target.first, "y_step": target.step},
        {"x": x, "y": y} | ({"like": like} if like else {}),
        PerToken(),
        target.count,
    )


def sparse_gate(ops: OpList, x: Buffer, cols: int, activation: str, deviations: float) -> Buffer:
    """activation(gate) * up of stacked rows, for products: (n, cols).

    gate = max(0, gate - (mean + `deviations` * standard deviation of the token's gates)).
    """
    y = ops.rows("hidden", cols, ops.input_dtype)
    ops.add(
        "sparse_gate",
        {"COLS": cols, "ACTIVATION": activation, "Y16": int(y.dtype == "f16"), "WG": gate_threads(ops.device, cols)},
        {"deviations": deviations, "x_stride": x.shape[1], "y_stride": y.shape[1]},
        {"x": x, "y": y},
        PerToken(),
    )
    return y


def gate_threads(device: Device, cols: int) -> int:
    """Threads of a workgroup of sparse_gate.wgsl: each has several gates."""
    most = min(256 if device.software else 1024, device.max_threads)
    return max(64, min(most, 1 << (cols // 4).bit_length()))


def norm_threads(device: Device, cols: int) -> int:
    """Threads of a workgroup of norm.wgsl: more for long rows, whose loads then need no second round."""
    return 256 if cols >= 1024 and not device.software else 64


@dataclass(frozen=True)
class RowNorm:
    """The RMS norm of rows of `cols` columns, times `factors`; with `mean`, their layer norm; plus the bias."""

    factors: Weight | Buffer
    cols: int
    eps: float
    mean: bool = False
    bias: Weight | None = None


def norm_into(ops: OpList, x: Buffer, norm: RowNorm, y: Buffer, parts: int = 1) -> None:
    """y = each row of x, normalised. `parts`: rows of x for each row of the list."""
    flags = {"MEAN": int(norm.mean), "BIAS": int(norm.bias is not None), "ADD": 0, "Y16": int(y.dtype == "f16")}
    params = {"COLS": norm.cols, "WG": norm_threads(ops.device, norm.cols)} | flags
    bindings = {"x": x, "norm": norm.factors, "y": y} | ({"bias": norm.bias} if norm.bias else {})
    ops.add("norm", params, {"eps": norm.eps}, bindings, PerToken(), parts)


def row_threads(device: Device, cols: int) -> int:
    """Threads of a workgroup that has several whole rows."""
    return 64 if device.software else min(ROW_THREADS, device.max_threads, max(64, 1 << (cols // 4 - 1).bit_length()))


def row_params(device: Device, cols: int) -> dict[str, int]:
    """The #params of kernels whose workgroups have whole rows."""
    wg = row_threads(device, cols)
    return {"COLS": cols, "WG": wg, "VECS_PER_THREAD": -(-pad(cols) // (4 * wg))}


def add_attended(ops: OpList, x: Buffer, attended: Buffer, low: Buffer, norms: Weight, eps: float) -> None:
    """x = (x + norm(attended) + norm(x) + norm(low)) / sqrt(2).

    `low`: of a low-rank residual (Laurel). `norms`: the weights of the norms of x, attended and low.
    """
    bindings = {"norms": norms, "attended": attended, "low": low, "x": x}
    ops.add("laurel", row_params(ops.device, norms.cols // 3), {"eps": eps}, bindings, PerToken())
