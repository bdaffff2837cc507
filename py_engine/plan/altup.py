"""Ops of AltUp (Baykal et al. 2023): several residual streams; a layer computes with the first of them.

Streams lie beside each other in a row of a buffer: (n, streams * padded columns). A router of the first stream has a
logit for each stream. A workgroup has a whole token, so that it can also normalise, and multiply with the router's few
rows: each of these would be a dispatch of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.plan.op_list import OpList
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.quants import GROUP, groups
from py_engine.plan.rows import row_params, row_threads

BINDINGS = 6  # of altup_correct.wgsl, but for the router's matrix


@dataclass(frozen=True)
class Streams:
    """The residual streams of a list. `rows`: (n, count * padded cols); `first`: the first one (n, padded cols)."""

    rows: Buffer
    first: Buffer
    count: int
    cols: int
    eps: float  # of all norms
    vector: Callable[[Sequence[str]], Weight]  # one vector of tensors of `cols` values each

    def __post_init__(self) -> None:
        if self.cols % 4:
            raise WispError("Residual streams must be a multiple of 4 wide.", "unsupported_architecture")


@dataclass(frozen=True)
class Router:
    """A layer's router: its matrix (count, cols), and the tensor of the weights of its norm."""

    matrix: Weight
    norm: str


def predict(
    ops: Ops, streams: Streams, router: Router, factors: Weight | Buffer, out: Buffer | None, out_norm: str
) -> None:  # fmt: skip
    """streams[i] += the sum over j of f[i, j] * streams[j].

    f = `factors` (count, count, count) times tanh(the router's logits / cols). `out`: the result of the layer before;
    its norm is first added to all streams but the first. `out_norm`: the tensor of that norm's weights.
    """
    routed, bindings = _routing(ops, streams, router)
    bindings["factors"] = factors
    norms = [router.norm] * routed + [out_norm] * (out is not None)
    if norms:
        bindings["norms"] = streams.vector(norms)
    if out:
        bindings["out"] = out
    _add(ops, "altup_predict", streams, {"ADD": int(out is not None)}, bindings)


def correct(
    ops: Ops, streams: Streams, router: Router, factors: Weight | Buffer, out: Buffer, tensors: tuple[str, str]
) -> Buffer:  # fmt: skip
    """x = streams.first + the norm of `out`; streams[i] += (1 + f[i]) * (x - streams[0]); streams.first = streams[0].

    f = `factors` (count, count) times tanh(the router's logits for x / cols). `tensors`: of weights of the result, and
    of the norm of `out`. Return streams.first times the former, column by column.
    """
    weights, out_norm = tensors
    if not _routes(ops, streams, router):
        ops.add_norm(out, streams.vector([out_norm]), streams.first, streams.eps)
    routed, bindings = _routing(ops, streams, router)
    norms = streams.vector([weights, router.norm, out_norm] if routed else [weights])
    scaled = ops.buffer(f"{ops.name}.scaled", streams.first.shape)
    bindings |= {"factors": factors, "norms": norms, "scaled": scaled}
    if routed:
        bindings["out"] = out
    _add(ops, "altup_correct", streams, {}, bindings)
    return scaled


def _routes(ops: Ops, streams: Streams, router: Router) -> bool:
    """Whether the ops multiply with the router's matrix themselves: within a device's limits.

    Not where the plan has adapters of it: lists with them and without must give the same bits.
    """
    logits_and_factors = 4 * streams.count * (streams.count + 1)
    used = 16 * (GROUP // 4 + 1) * groups(streams.cols) + 8 * row_threads(ops.device, streams.cols) + logits_and_factors
    bound = BINDINGS + len(router.matrix.layout.planes)
    fits = used <= ops.device.max_workgroup_storage and bound <= ops.device.max_storage_buffers
    return fits and not any(ops.plan.adapters.of(tensor) for tensor, _, _ in router.matrix.sources)


def _routing(ops: Ops, streams: Streams, router: Router) -> tuple[bool, dict[str, Buffer | Weight]]:
    """Whether the op multiplies with the router's matrix itself, and what it binds for that; else with a product's."""
    if _routes(ops, streams, router):
        return True, {"w": router.matrix}
    projection = Projection([router.matrix], None, streams.vector([router.norm]), streams.eps)
    return False, {"router": ops.normed_stack("altup_router", streams.first, projection)}


def _add(
    ops: OpList, kernel: str, streams: Streams, params: dict[str, int], bindings: dict[str, Buffer | Weight]
) -> None:  # fmt: skip
    wg, matrix = row_threads(ops.device, streams.cols), bindings.get("w")
    routed: dict[str, int | str] = {"ROUTED": int(matrix is not None)}
    if isinstance(matrix, Weight):
        routed |= {"QUANT": matrix.layout.fragment, "LANES": wg >> (streams.count - 1).bit_length()}
    ops.add(
        kernel,
        {"STREAMS": streams.count, **row_params(ops.device, streams.cols)} | params | routed,
        {"scale": 1 / streams.cols, "eps": streams.eps},
        bindings | {"y": streams.rows, "x": streams.first},
        PerToken(),
    )
