"""The ops of recurrent layers: a causal convolution, the scan of a state matrix, a gated norm. Shapes as in ops.py."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.shared_constants import THREADS
from py_engine.plan.states import States, StateShape

TILE = 16  # tokens of a prompt's batch that a workgroup of ssm_conv.wgsl computes
BOUNDED, NEGATED = 2, 3  # PER_KEY of scans whose decays have a lower bound; the other one reads -A in place of A
MAX_LANES = 8  # threads of ssm_scan.wgsl that share rows of the matrix
CHUNK_VALUES = 1024  # of keys, and of queries, in a workgroup's memory


@dataclass(frozen=True)
class Kernel:
    """A convolution's weights: taps / apart + 1 of each channel, one after the other, or the rows of a matrix.

    The last one is for the token itself, each other one for the input `apart` tokens before the next one's.
    """

    weights: Weight
    bias: Weight | None = None
    apart: int = 1


def ssm_conv(ops: Ops, x: Buffer, first: int, kernel: Kernel, shape: StateShape, states: States) -> Buffer:
    """silu of the causal convolution along the sequence of x[:, first : first + channels]: (n, channels)."""
    weights, bias = kernel.weights, kernel.bias
    y = ops.rows("convolved", shape.channels)
    tile = 0 if ops.small_batch else TILE
    sizes = {"CHANNELS": shape.channels, "TAPS": shape.taps} | states.paging | ops.state_params
    columns = {"x_stride": x.shape[1], "first": first}
    groups, matrix = -(-shape.channels // THREADS), weights.rows > 1
    ops.add(
        "ssm_conv",
        sizes
        | {"TILE": tile, "APART": kernel.apart, "BIAS": int(bias is not None)}
        | ({"MATRIX": 1, "QUANT": weights.layout.fragment} if matrix else {}),
        columns | {"y_stride": y.shape[1]},
        {"state": ops.state, "x": x, "w" if matrix else "weights": weights, "windows": states.windows, "y": y}
        | ({"bias": bias} if bias else {}),
        groups,
        *([PerToken(tile)] if tile else _runs(ops)),
    )
    if tile:
        ops.add("ssm_window", sizes, columns, {"state": ops.state, "x": x, "windows": states.windows}, groups)
    return y


@dataclass(frozen=True)
class Columns:
    """Columns of a buffer, from `first` on."""

    buffer: Buffer
    first: int = 0

    @property
    def stride(self) -> int:
        """Values of a row."""
        return self.buffer.shape[1]


@dataclass(frozen=True)
class Scan:
    """What ssm_scan.wgsl reads.

    `rates`: A, the bias of dt, and, but for "delta", the skip: of each head, or, of "s6", of each row; its A is
    (rows, cols). `per_key`, of "delta": each column of the matrix has a dt and a bias of its own.
    """

    rule: str  # "ssd", "delta" or "s6"
    values: Columns  # (heads, rows)
    keys: Columns  # (groups, cols)
    queries: Columns
    groups: int  # heads of keys and queries
    dt: Columns  # of each head, or row
    rates: Weight | Buffer
    beta: int = 0  # column of beta in dt's buffer ("delta")
    eps: float = 0.0  # of the L2 norms ("delta")
    tiled: bool = False  # head h has the keys of group h % groups; else, neighbours share a group
    per_key: bool = False
    negative_rates: bool = False  # with a bound: A is that of decays without one
    bound: float = 0.0  # then, a decay is exp(bound * sigmoid(A (input + bias))); 0: exp(A softplus(input + bias))


def ssm_scan(ops: Ops, scan: Scan, shape: StateShape, states: States) -> Buffer:
    """The queries times the state after each token: (n, heads * rows)."""
    y = ops.rows("scanned", shape.heads * shape.rows)
    tile = _scan_tile(ops, shape)
    block = tile["WG"] // tile["LANES"] * tile["R"]  # rows of a workgroup
    ops.add(
        "ssm_scan",
        {"RULE": scan.rule, "HEADS": shape.heads, "GROUPS": scan.groups, "ROWS": shape.rows, "COLS": shape.cols}
        | {"TILED": int(scan.tiled)}
        | ({"PER_KEY": (NEGATED if scan.negative_rates else BOUNDED) if scan.bound else 1} if scan.per_key else {})
        | tile
        | states.paging
        | ops.state_params,
        {"x_stride": scan.values.stride, "values": scan.values.first}
        | {"k_stride": scan.keys.stride, "keys": scan.keys.first}
        | {"q_stride": scan.queries.stride, "queries": scan.queries.first}
        | {"g_stride": scan.dt.stride, "dt": scan.dt.first, "beta": scan.beta, "eps": scan.eps}
        | ({"bound": scan.bound} if scan.bound else {})
        | {"y_stride": y.shape[1]},
        {"state": ops.state, "x": scan.values.buffer, "k": scan.keys.buffer, "q": scan.queries.buffer}
        | {"gates": scan.dt.buffer, "rates": scan.rates, "matrices": states.matrices, "y": y},
        -(-shape.rows // block) * shape.heads,
        *_runs(ops),
    )
    return y


def _scan_tile(ops: Ops, shape: StateShape) -> dict[str, int]:
    """How ssm_scan.wgsl divides a head's matrix among threads.

    Lanes that share rows add their sums by shuffles, so there are no more of them than a subgroup has.
    """
    vectors, lanes, subgroup = -(-shape.cols // 4), 1, ops.device.subgroup
    while lanes < min(vectors, MAX_LANES, subgroup or MAX_LANES):
        lanes *= 2
    threads, r = THREADS, 1 if ops.small_batch or ops.device.software else 2
    chunk = 1 if ops.small_batch else max(1, min(threads // lanes, CHUNK_VALUES // shape.cols, 8))
    return {"LANES": lanes, "VECTORS": -(-vectors // lanes), "R": r, "CHUNK": chunk, "WG": threads}


def _runs(ops: Ops) -> list[PerToken]:
    """Workgroups along the batch: one for each of its sequences. Only a small batch has several."""
    return [PerToken()] if ops.state_params["STATE_PER_TOKEN"] else []


@dataclass(frozen=True)
class GatedNorm:
    """How gated_norm.wgsl combines a norm with a gate.

    `norm`: weights of all columns, or of one group's, the same for all; None: only the gate.
    """

    groups: int
    norm: Weight | None
    eps: float
    gate_first: bool  # norm(x * silu(z)); else norm(x) * silu(z)
    sigmoid: bool = False  # in place of silu


def gated_norm(ops: Ops, x: Buffer, z: Buffer, first: int, cols: int, how: GatedNorm) -> Buffer:
    """The RMS norm of each group of x's columns, gated by silu or sigmoid of z[:, first : first + cols]: (n, cols)."""
    y = ops.rows("gated_norm", cols, ops.input_dtype)
    size, threads = cols // how.groups, THREADS
    while threads < min(size, ops.device.max_threads):
        threads *= 2
    ops.add(
        "gated_norm",
        {"COLS": size, "NORM": 0 if how.norm is None else how.norm.cols // size, "GATE_FIRST": int(how.gate_first)}
        | {"WG": threads, "Y16": int(y.dtype == "f16")}
        | ({"SIGMOID": 1} if how.sigmoid else {}),
        {"x_stride": x.shape[1], "z_stride": z.shape[1], "first": first, "y_stride": y.shape[1], "eps": how.eps},
        {"x": x, "z": z, "y": y} | ({"norm": how.norm} if how.norm else {}),
        PerToken(),
        how.groups,
    )
    return y
