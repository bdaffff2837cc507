"""Products with what LoRA adapters add to them, applied on the fly: the model's matrices stay as they are.

With y = W x come two steps for all adapters at once: h = A x, the A of all adapters stacked by rows, and after it
y += scale * B h for those whose scale is not 0 for the token's sequence (add_low_rank.wgsl). In small batches the first
step is part of the dispatch that multiplies, or rounds, the same x; where it rounds, the second one is part of the
product's (low_rank_rows.py). Lists without adapters have neither (adapted_lists.py). Control vectors are one addition
each after a layer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from py_engine.errors import WispError
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import low_rank_rows, mixed_types, products, quants
from py_engine.plan.activations import activation_params
from py_engine.plan.adapters import EMBEDDINGS, Direction, Pair
from py_engine.plan.low_rank_entries import Entry, equal_params, packed, runs_of
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, PerToken, Plan, Weight
from py_engine.plan.products import Epilogue, Product
from py_engine.plan.shared_constants import MAX_SEQUENCES, THREADS

SCALES = "lora_scales"  # the buffer of every sequence's scales, (MAX_SEQUENCES, 2 * adapters): Adapters.pack()
MOST_TOKENS = 8  # of a workgroup of add_low_rank.wgsl
MAX_HELD = 4096  # bytes of h, scales and entries that lib/low_rank.wgsl holds in a workgroup's memory
MOST_GROUPS = 96  # groups of 32 columns of all entries of one dispatch: what a workgroup's memory holds


@dataclass(frozen=True)
class Gate:
    """What follows a product of gate's rows and then up's: y = activation(gate) * up, both with what adapters add."""

    y: Buffer
    cols: int
    activation: str


ACTIVATE = Epilogue("activate")


def adapted(ops: OpList, weight: Weight) -> bool:
    """Whether adapters change products with a weight."""
    return any(ops.adapters.of(tensor) for tensor, _, _ in weight.sources)


def append(ops: OpList, stack: Sequence[Product], gate: Gate | None = None, *, hold: int = 0) -> Epilogue | None:
    """Append products of the same x and y, and what adapters add to them. `gate`: only where there are adapters.

    Return what is left to do: with `hold`, the storage buffers of a kernel with lib/low_rank.wgsl, what that needs to
    add the last part itself, if the device can bind it, too; with `gate`, ACTIVATE if y has both products; else None.
    """
    if not any(adapted(ops, p.weight) for p in stack):
        if not mixed_types.append(ops, stack):
            for product in stack:
                products.append(ops, product)
        return None
    entries: list[Entry] = []
    h, projections = _projections(ops, stack, entries)
    _multiply(ops, stack, projections)
    name, last = "+".join(p.weight.name for p in stack), _only_last(ops, stack[0].x)
    groups = list(_dispatches(entries, ops.device.max_binding))
    parts = [_part(ops, h, group, f"{name}.lora_b.{i}", last=last) for i, group in enumerate(groups)]
    if len(parts) == 1 and low_rank_rows.append(ops, stack[0].y, parts[0].epilogue):
        return ACTIVATE if gate else None
    for part in parts[:-1]:
        _add(ops, stack[0].y, part)
    if hold and hold + mixed_types.buffers_of(parts[-1].epilogue.bindings) <= ops.device.max_storage_buffers:
        return parts[-1].epilogue
    _add(ops, stack[0].y, parts[-1], gate)
    return None


def _only_last(ops: OpList, x: Buffer) -> bool:
    """Whether a list of one token multiplies the last row of a batch."""
    return ops.batch == 1 and x.shape[0] > 1


def _multiply(ops: OpList, stack: Sequence[Product], projections: Sequence[Product]) -> None:
    """Append the products of a stack, and h = A x: in the first product's dispatch where that has place for it."""
    first, *others = projections
    if products.fits_beside(ops, stack[0], first.weight):
        stack = [products.with_beside(ops, stack[0], first.weight, first.y), *stack[1:]]
        projections = others
    if not mixed_types.append(ops, stack):
        for product in stack:
            products.append(ops, product)
    precise, ops.precise = ops.precise, True  # an error in h is one in all of B h; the product is small
    for product in projections:
        products.append(ops, product)
    ops.precise = precise


def _projections(ops: OpList, stack: Sequence[Product], entries: list[Entry]) -> tuple[Buffer, list[Product]]:
    """h and the products h = A x of a stack, one for each type of A; find the entries of the second step."""
    pairs = {
        (tensor, pair.adapter): pair
        for p in stack
        for tensor, _, _ in p.weight.sources
        for pair in ops.adapters.of(tensor)
    }
    if any(tensor == EMBEDDINGS for tensor, _ in pairs):
        raise WispError(
            f"lora[{min(pair.adapter for pair in pairs.values())}]: The adapter changes {EMBEDDINGS}, which this model "
            "also uses for its output. Such an adapter cannot be applied.",
            "unsupported_adapter",
            param="lora",
        )
    ordered = sorted(pairs.items(), key=lambda item: item[1].a.type.value)
    columns, at = dict[tuple[str, int], int](), 0
    for key, pair in ordered:
        columns[key] = at
        at += pair.rank
    h, x, at = ops.rows("lora", at), stack[0].x, 0
    found: list[Product] = []
    for number, (type, run) in enumerate(groupby(ordered, key=lambda item: item[1].a.type)):
        sources = tuple((pair.a.name, 0, pair.rank) for _, pair in run)
        rows, name = sum(rows for _, _, rows in sources), "+".join(p.weight.name for p in stack)
        weight = _weight(ops.plan, f"{name}.lora_a.{number}", type, rows, stack[0].weight.cols, sources)
        found.append(Product(x, weight, h, row0=at, norm=stack[0].norm, eps=stack[0].eps))
        at += rows
    for p in stack:
        y = p.row0
        for tensor, first, rows in p.weight.sources:
            for pair in ops.adapters.of(tensor):
                entries.append(Entry(pair, y, first, rows, columns[tensor, pair.adapter]))
            y += rows
    return h, found


def _weight(plan: Plan, name: str, type: Q, rows: int, cols: int, sources: tuple[tuple[str, int, int], ...]) -> Weight:
    quants.layout(type, name)
    return plan.weights.setdefault(name, Weight(name, type, rows, cols, sources))


def _dispatches(entries: Sequence[Entry], max_binding: int) -> Iterator[list[Entry]]:
    """Entries whose B are of one type and rank, as many as one dispatch takes; each adapter's in a row."""
    ordered = sorted(entries, key=lambda e: (e.pair.b.type.value, e.pair.rank, e.pair.adapter, e.y))
    for (_, rank), same in groupby(ordered, key=lambda e: (e.pair.b.type, e.pair.rank)):
        group: list[Entry] = []
        row_bytes = 4 * quants.GROUP * quants.groups(rank)  # at most
        for entry in same:
            rows = sum(e.rows for e in group) + entry.rows
            full = (len(group) + 1) * quants.groups(rank) > MOST_GROUPS or rows * row_bytes > max_binding - 4096
            if group and full:
                yield group
                group = []
            group.append(entry)
        yield group


@dataclass(frozen=True)
class Part:
    """What the entries of one type and rank add to rows `first` to `end` of a product."""

    epilogue: Epilogue
    first: int
    end: int


def _part(ops: OpList, h: Buffer, group: Sequence[Entry], name: str, *, last: bool) -> Part:
    """The matrix of entries of one type and rank, and what lib/low_rank.wgsl needs for it."""
    pair, adapters = group[0].pair, ops.adapters
    sources = tuple((entry.pair.b.name, entry.first, entry.rows) for entry in group)
    weight = _weight(ops.plan, name, pair.b.type, sum(e.rows for e in group), pair.rank, sources)
    if len(weight.split(ops.device.max_binding)) > 1:
        raise WispError(
            f"lora[{pair.adapter}]: This device cannot bind the adapter's {pair.b.name.split('.', 2)[2]}, which has "
            f"{weight.nbytes >> 20} MiB. Use an adapter of a lower rank.",
            "unsupported_adapter",
            param="lora",
        )
    runs = runs_of(group)
    data, (first, end) = packed(runs), (min(run.y for run in runs), max(run.y + run.rows for run in runs))
    tokens = 1 if ops.small_batch else min(MOST_TOKENS, max(1, MOST_GROUPS // (len(runs) * quants.groups(pair.rank))))
    params: dict[str, int | float | str] = {"QUANT": weight.layout.fragment, "COLS": pair.rank}
    params |= {"ADAPTERS": adapters.count, "TM": tokens, "LAST": int(last)}
    if tokens == 1 and (equal := equal_params(runs)):
        params |= {"ADDS": "low_rank_equal", **equal}
    else:
        held = 4 * h.shape[-1] + 8 * MAX_SEQUENCES * adapters.count + len(data)
        preload = h.shape[-1] if tokens == 1 and held <= MAX_HELD else 0
        params |= {"ADDS": "low_rank", "ENTRIES": len(runs), "PRELOAD": preload}
    bindings: dict[str, Buffer | Weight] = {"w": weight, "entries": table(ops, data), "scales": scales(ops), "h": h}
    return Part(Epilogue("low_rank", params, {"h_stride": h.shape[-1]}, bindings), first, end)


def _add(ops: OpList, y: Buffer, part: Part, gate: Gate | None = None) -> None:
    """Append y += scale * B h; with a gate, its result instead."""
    params = {**part.epilogue.params, "GATED": int(gate is not None)}
    bindings = {"state": ops.state, "y": y, **part.epilogue.bindings}
    consts = {"first": part.first, "rows": part.end - part.first, "y_stride": y.shape[-1], **part.epilogue.consts}
    if gate is not None:
        cols = gate.cols
        params |= {**activation_params(gate.activation), "Y16": int(gate.y.dtype == "f16")}
        bindings |= {"x": y, "y": gate.y}
        consts |= {"first": 0, "rows": cols, "x_stride": y.shape[-1], "y_stride": gate.y.shape[-1]}
    tokens = 1 if params["LAST"] else PerToken(int(params["TM"]))
    grid = -(-int(consts["rows"]) // THREADS), tokens
    ops.add("add_low_rank", params | ops.state_params, consts, bindings, *grid)


def table(ops: OpList, data: bytes) -> Buffer:
    """A constant buffer with these entries. Layers of the same shape share it."""
    name = f"lora.{hashlib.sha256(data).hexdigest()[:16]}"
    ops.plan.constants[name] = data
    return ops.buffer(name, (len(data) // 4,), "u32", "state")


def scales(ops: OpList) -> Buffer:
    """The buffer of every sequence's scales."""
    return ops.buffer(SCALES, (MAX_SEQUENCES, 2 * ops.adapters.count), "f32", "state")


def add_direction(ops: OpList, x: Buffer, direction: Direction) -> None:
    """x += scale * a control vector's direction, for each of the residual streams in x (n, streams * padded width)."""
    width = quants.groups(direction.width) * quants.GROUP
    vector = _weight(ops.plan, direction.tensor, Q.F32, 1, direction.width, ((direction.tensor, 0, 1),))
    ops.add(
        "add_direction",
        {"VECS": width // 4, "ADAPTERS": ops.adapters.count} | ops.state_params,
        {"adapter": direction.adapter},
        {"state": ops.state, "direction": vector, "scales": scales(ops), "x": x},
        -(-width // (4 * THREADS)),
        PerToken(),
        x.shape[1] // width,
    )


def embedding_table(plan: Plan, pair: Pair) -> Weight:
    """A of an adapter for the token embeddings: a row of `rank` values for each token."""
    rows = pair.a.shape[1]
    return _weight(plan, pair.a.name, pair.a.type, rows, pair.rank, ((pair.a.name, 0, rows),))


def add_embedding(ops: OpList, x: Buffer, h: Buffer, pair: Pair) -> None:
    """x += scale * B h, where h has the tokens' rows of A."""
    entry = Entry(pair, 0, 0, pair.b.shape[1], 0)
    _add(ops, x, _part(ops, h, [entry], f"{pair.b.name}.lora_b", last=False))


def check_used(plan: Plan) -> None:
    """Raise WispError unsupported_adapter if the plan does not apply all of an adapter.

    What an adapter changes in matrices that the model has and does not use, such as keys of layers that share those of
    another one, changes nothing.
    """
    used = {tensor for weight in plan.weights.values() for tensor, _, _ in weight.sources}
    adapters = plan.adapters
    wanted = [(pair.adapter, pair.a.name) for name, pairs in adapters.pairs.items() if name in used for pair in pairs]
    wanted += [(d.adapter, d.tensor) for found in adapters.directions.values() for d in found]
    for number, tensor in wanted:
        if tensor not in used:
            raise WispError(
                f"lora[{number}]: Wisp cannot apply the adapter's {tensor.split('.', 2)[2]} to this architecture.",
                "unsupported_adapter",
                param="lora",
            )
