"""Ops of mixtures of experts: each token has a few networks, which a router (routing.py) chooses. Shapes as in ops.py.

A small batch multiplies each token with its experts' matrices. Many tokens are sorted by expert first: the tiles of the
mat-mul kernels then have tokens of one expert, so that its matrices are read once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from py_engine.plan import expert_low_rank, matmul_tiles, matrix_scales, tiles
from py_engine.plan.activations import activation_params
from py_engine.plan.expert_low_rank import ExpertTensors
from py_engine.plan.kernels import Device
from py_engine.plan.ops import Ops, TokenRows, pad
from py_engine.plan.plan import Buffer, PerToken, Weight, planes_of
from py_engine.plan.products import ADD, STORE, Epilogue, half_params, int8_params
from py_engine.plan.rounded_rows import Rounding, rounded
from py_engine.plan.routing import Route
from py_engine.plan.shared_constants import THREADS
from py_engine.plan.weights import ExpertMatrices

GROUP_THREADS = 256  # threads of group_experts.wgsl
ROUNDED_THREADS = 128  # threads of experts.wgsl whose x is rounded before: more take up to a quarter more time


@dataclass(frozen=True)
class ExpertNetwork:
    """Every expert's feed-forward network: down(activation(gate) * up), or down(activation(up)).

    `inputs`: the gate's matrices and the up's, as one stack or two; or the up's alone. `norm`: the RMS norm of x.
    `weighs_inputs`: the router's weights apply to x, not to the result.
    """

    inputs: list[ExpertMatrices]
    down: ExpertMatrices
    n_ff: int
    activation: str
    gated: bool
    norm: Weight | None = None
    eps: float = 0.0
    weighs_inputs: bool = False


@dataclass(frozen=True)
class Groups:
    """A batch sorted by expert: `slots` (token * used + choice) and the `tiles` that divide them, for one kernel."""

    kernel: str
    tile: dict[str, int]
    count: PerToken  # of tiles
    slots: Buffer
    tiles: Buffer


@dataclass(frozen=True)
class Hidden:
    """The chosen experts' hidden layers (n * used, n_ff). `groups`: how a large batch is sorted."""

    route: Route
    rows: Buffer
    groups: Groups | None = None


def hidden(ops: Ops, route: Route, x: Buffer, network: ExpertNetwork) -> Hidden:
    """The hidden layer of every chosen expert, for the norm of x if the network has one, else for x."""
    norm, n_ff = network.norm, network.n_ff
    groups = None
    if not (ops.small_batch and all(_fits(ops, matrices) for matrices in [*network.inputs, network.down])):
        x, norm = ops.normed_input(x, norm, network.eps) if norm else x, None
        groups = group(ops, route, [weight for weight, _ in (*network.inputs, network.down)])
    y = ops.shaped(f"expert_hidden{route.routing.suffix}", (ops.batch * route.used, pad(n_ff)), ops.input_dtype)
    inputs = [weight for weight, _ in network.inputs]
    changed = expert_low_rank.adapted(ops, inputs)
    in_product = network.gated and len(inputs) == 1 and not network.weighs_inputs and not changed
    if in_product and (groups is None or _stores_halves(ops, groups, network)):
        epilogue = Epilogue("gated", activation_params(network.activation))
        product = ExpertProduct(x, network.inputs[0], y, n_ff, epilogue, norm=norm, eps=network.eps)
        append_product(ops, route, groups, product)
        return Hidden(route, y, groups)
    rows = ops.shaped(f"expert_rows{route.routing.suffix}", (ops.batch * route.used, pad(n_ff * (1 + network.gated))))
    for i, matrices in enumerate(network.inputs):
        append_product(
            ops, route, groups, ExpertProduct(x, matrices, rows, n_ff, row0=i * n_ff, norm=norm, eps=network.eps)
        )
    if changed:
        width = n_ff * (1 + network.gated)
        expert_low_rank.append(ops, route, ExpertTensors(inputs, x, rows, width, norm, network.eps))
    # Weighted x means weighted gates, here, and weighted up, for which combine() weighs the output: down is linear.
    factors = route.weights if network.weighs_inputs else None
    ops.activate(rows, y, n_ff, network.activation, gated=network.gated, rows=TokenRows(route.used, factors))
    return Hidden(route, y, groups)


def combine(ops: Ops, hidden: Hidden, down: ExpertMatrices, add_to: Buffer) -> None:
    """add_to += the weighted sum of the chosen experts' outputs."""
    route, rows = hidden.route, down[0].rows // hidden.route.routing.networks
    if hidden.groups is None:
        small_product(ops, route, ExpertProduct(hidden.rows, down, add_to, rows, ADD, sum=True))
    else:
        _grouped_sum(ops, hidden, hidden.groups, down, add_to)
    if expert_low_rank.adapted(ops, [down[0]]):
        expert_low_rank.append(ops, route, ExpertTensors([down[0]], hidden.rows, add_to, rows, sum=True))


def _grouped_sum(ops: Ops, hidden: Hidden, groups: Groups, down: ExpertMatrices, add_to: Buffer) -> None:
    route, rows = hidden.route, down[0].rows // hidden.route.routing.networks
    y = ops.shaped(f"expert_out{route.routing.suffix}", (ops.batch * route.used, add_to.shape[1]))
    grouped_product(ops, route, groups, ExpertProduct(hidden.rows, down, y, rows))
    ops.add(
        "weighted_sum",
        {"USED": route.used, "VECS": y.shape[1] // 4},
        {},
        {"state": ops.state, "x": y, "weights": route.weights, "y": add_to},
        -(-y.shape[1] // (4 * THREADS)),
        PerToken(),
    )


def _stores_halves(ops: Ops, groups: Groups, network: ExpertNetwork) -> bool:
    """Whether the product of many tokens may have an epilogue that stores f16, four columns at once."""
    matrices = network.inputs[0]
    whole = network.n_ff % 4 == 0 and _fits(ops, matrices)
    return groups.kernel == "matmul_matrix" and whole and not matrices[0].scales


def _fits(ops: Ops, matrices: ExpertMatrices) -> bool:
    """Whether the matrices of all experts are in one binding."""
    return len(matrices[0].split(ops.device.max_binding)) == 1


@dataclass(frozen=True)
class ExpertProduct:
    """y[:, row0 :] = epilogue(x W^T + bias) for every chosen expert; `sum`: y += their weighted sum.

    `rows`: those of an expert in one of the stacked matrices.
    """

    x: Buffer
    matrices: ExpertMatrices
    y: Buffer
    rows: int
    epilogue: Epilogue = STORE
    row0: int = 0
    sum: bool = False
    norm: Weight | None = None
    eps: float = 0.0


def append_product(ops: Ops, route: Route, groups: Groups | None, p: ExpertProduct) -> None:
    if groups is None:
        small_product(ops, route, p)
    else:
        grouped_product(ops, route, groups, p)


# -- a small batch ----------------------------------------------------------------------------------------------------


def small_product(ops: Ops, route: Route, p: ExpertProduct) -> None:
    """Append a product of experts.wgsl."""
    (weight, bias), routing = p.matrices, route.routing
    rows = weight.rows // routing.networks  # of an expert
    # as one matrix times one vector: the experts' rows, or in a sum, their columns end to end
    shape = replace(
        weight,
        rows=rows if p.sum else rows * routing.used,
        cols=weight.cols * routing.used if p.sum else weight.cols,
    )
    dot8 = tiles.dot8(ops.device, shape)
    tile = tiles.matvec(ops.device, shape, dot8)
    epilogue, norm = p.epilogue, p.norm
    inputs: dict[str, Buffer | Weight] = {"x": p.x} | ({"norm": norm} if norm else {})
    inputs |= {"weights": route.weights} if p.sum else {}
    variant: dict[str, int | str] = {"GROUPS_PER_THREAD": weight.layout.groups_per_thread} if dot8 else {}
    if dot8 and ops.batch > 1 and _binds_rounded(ops.device, p):
        rounding = Rounding(p.x, weight.cols, norm=norm, eps=p.eps, threads=tile["TK"] * tile["TR"])
        if p.sum:
            rounding = replace(rounding, slots=routing.used, weights=route.weights)
        inputs = rounded(ops, rounding)
        tile |= {"TR": max(1, ROUNDED_THREADS // tile["TK"])}
        inputs |= {"weights": route.weights} if p.sum and bias else {}
        variant, norm = variant | {"ROUNDED_BEFORE": 1, "SCALED": int(norm is not None)}, None
    ops.add(
        "experts",
        {"QUANT": weight.layout.fragment, "COLS": weight.cols, "NORM": int(norm is not None),
         "BIAS": int(bias is not None), "EPILOGUE": epilogue.name, "DOT8": int(dot8), "LAST": 0,
         "EXPERTS": routing.networks, "ROWS": p.rows, "STACK": rows // p.rows, "USED": routing.used, "SUM": int(p.sum)}
        | variant | tile | ops.state_params | dict(epilogue.params) | matrix_scales.expert_params(weight),
        {"rows": rows, "row0": p.row0, "y_stride": p.y.shape[1]} | ({"eps": p.eps} if norm else {}),
        {"state": ops.state, "chosen": route.chosen, "w": weight, "y": p.y} | inputs
        | ({"bias": bias} if bias else {}) | ({} if p.sum else matrix_scales.bindings(weight)),
        -(-rows // (tile["TR"] * tile["R"])),
        1 if p.sum else routing.used,
        PerToken(),
    )  # fmt: skip


def _binds_rounded(device: Device, p: ExpertProduct) -> bool:
    """Whether a product whose x is rounded before fits into a device's storage buffers."""
    weight, bias = p.matrices
    inputs = 2 + bool(p.norm) + (bool(bias) if p.sum else bool(weight.scales))  # bytes, scales, and x_scale or weights
    return 3 + inputs + bool(bias) + len(planes_of("w", weight)) <= device.max_storage_buffers


# -- many tokens ------------------------------------------------------------------------------------------------------


def group(ops: Ops, route: Route, weights: Sequence[Weight] = ()) -> Groups:
    """Append the sorting of the batch by expert. `weights`: what products of rounded rows would multiply it with."""
    experts, used = route.routing.networks, route.used
    pairs = ops.batch * used
    kernel, tile = matmul_tiles.grouped_matmul(ops.device, ops.batch, used, experts, weights)
    count = matmul_tiles.grouped_tiles(tile["TM"], used, experts)
    fewest = min(tile["TM"], matmul_tiles.SHORT_GROUPED_TILE[0])  # tokens of a tile in lists for fewer tokens
    most = matmul_tiles.grouped_tiles(fewest, used, experts).count(ops.batch)
    groups = Groups(
        kernel,
        tile,
        count,
        ops.shaped(f"slots{route.routing.suffix}", (pairs,), "u32"),
        ops.shaped(f"tiles{route.routing.suffix}", (most, 4), "u32"),
    )
    ops.add(
        "group_experts",
        {"EXPERTS": experts, "USED": used, "TM": tile["TM"], "WG": GROUP_THREADS},
        {},
        {"state": ops.state, "chosen": route.chosen, "slots": groups.slots, "tiles": groups.tiles},
        1,
    )
    return groups


def grouped_product(ops: Ops, route: Route, groups: Groups, p: ExpertProduct) -> None:
    """Append a product for every slot, in as many parts as the binding limit requires."""
    (weight, bias), experts = p.matrices, route.routing.networks
    rows = weight.rows // experts  # of an expert
    tile = matmul_tiles.of_experts(groups.tile, weight)
    in_int8, per_slot, epilogue = groups.kernel == "matmul_int8", p.x.shape[0] == p.y.shape[0], p.epilogue
    rounding = Rounding(p.x, weight.cols, slots=route.used if per_slot else 1, in_order=True)
    for first, part in weight.split(ops.device.max_binding):
        ops.add(
            groups.kernel,
            {"QUANT": part.layout.fragment, "COLS": weight.cols, "BIAS": int(bias is not None),
             "EPILOGUE": epilogue.name, "GROUPED": 1, "EXPERTS": experts, "ROWS": p.rows, "STACK": rows // p.rows,
             "USED": route.used, "X_PER_SLOT": int(per_slot)}
            | (int8_params(weight) if in_int8 else half_params(ops, p.x)) | tile | matrix_scales.expert_params(weight)
            | dict(epilogue.params)
            | ({"SUMS32": 1} if weight.scales and ops.device.f16 and groups.kernel == "matmul" else {}),
            {"rows": part.rows, "row0": p.row0, "y_stride": p.y.shape[1], "first": first},
            {"state": ops.state, "w": part, "tiles": groups.tiles, "slots": groups.slots, "y": p.y}
            | (rounded(ops, rounding) if in_int8 else {"x": p.x})
            | ({"bias": bias} if bias else {}) | matrix_scales.bindings(weight),
            -(-rows // tile["TN"]),
            groups.count,
        )  # fmt: skip
