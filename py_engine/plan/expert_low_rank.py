"""What LoRA adapters add to products with experts' matrices: every expert has an A and a B of its own.

After the product come h = A x for the chosen experts of each token (expert_low_rank.wgsl), then y += scale * B h, or
the sum of that by the router's weights (add_expert_low_rank.wgsl). Both work by token and expert in every list, also in
those of prompts: A and B are small. Adapters of the same types and rank share the two dispatches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from py_engine.errors import WispError
from py_engine.plan import low_rank, mixed_types, quants
from py_engine.plan.low_rank_entries import Entry, listed
from py_engine.plan.op_list import OpList, pad
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.routing import Route
from py_engine.plan.shared_constants import THREADS

LANES = 16  # threads that share a row of A
MOST_GROUPS = low_rank.MOST_GROUPS  # groups of 32 columns of h of a dispatch: what a workgroup's memory holds


@dataclass(frozen=True)
class ExpertTensors:
    """The matrices of a product, whose results stand end to end in y. `sum`: y += their sum by the router's weights.

    `x` has a row for each token (its norm is taken first, if one is given), or with `sum` for each chosen expert.
    """

    weights: Sequence[Weight]
    x: Buffer
    y: Buffer
    rows: int  # columns of y that all of them have
    norm: Weight | None = None
    eps: float = 0.0
    sum: bool = False

    @property
    def tensors(self) -> list[str]:
        """Their names in the file, in the order of y's columns."""
        return list(dict.fromkeys(tensor for weight in self.weights for tensor, _, _ in weight.sources))


def adapted(ops: OpList, weights: Sequence[Weight]) -> bool:
    """Whether adapters change products with any of these."""
    return any(low_rank.adapted(ops, weight) for weight in weights)


def append(ops: OpList, route: Route, p: ExpertTensors) -> None:
    """Append what adapters add to a product, which is complete."""
    tensors = p.tensors
    entries = [
        Entry(pair, i * (p.rows // len(tensors)), 0, pair.b.shape[1], 0)
        for i, tensor in enumerate(tensors)
        for pair in ops.adapters.of(tensor)
    ]
    for number, group in enumerate(_dispatches(entries, route.routing.networks, ops.device.max_binding)):
        _append(ops, route, p, f"{'+'.join(tensors)}.{number}", group)


def _dispatches(entries: Sequence[Entry], experts: int, max_binding: int) -> Iterator[list[Entry]]:
    """Entries whose A and B have the same types and shapes, as many as one dispatch takes."""

    def kind(entry: Entry) -> tuple[int, int, int, int]:
        pair = entry.pair
        return pair.a.type.value, pair.b.type.value, pair.rank, entry.rows

    for _, same in groupby(sorted(entries, key=kind), key=kind):
        found = list(same)
        pair, rows = found[0].pair, found[0].rows
        a, b = (_matrix("", [entry], part, experts) for entry in found[:1] for part in "ab")
        most = min((max_binding - 4096) // max(a.nbytes, b.nbytes), MOST_GROUPS // quants.groups(pair.rank))
        if most < 1:
            raise WispError(
                f"lora[{pair.adapter}]: This device cannot bind the adapter's matrices for "
                f"{pair.a.name.split('.', 2)[2].removesuffix('.lora_a')}, which have {max(a.nbytes, b.nbytes) >> 20} "
                f"MiB for {experts} experts of {rows} rows. Use an adapter of a lower rank.",
                "unsupported_adapter",
                param="lora",
            )
        yield from (found[i : i + most] for i in range(0, len(found), most))


def _matrix(name: str, group: Sequence[Entry], part: str, experts: int) -> Weight:
    """A of all experts and entries as one matrix (entries * experts * rank, cols), or B."""
    infos = [getattr(entry.pair, part) for entry in group]
    cols, rows = infos[0].shape[0], infos[0].shape[1] * experts
    quants.layout(infos[0].type, infos[0].name)
    sources = tuple((info.name, 0, rows) for info in infos)
    return Weight(f"{name}.lora_{part}", infos[0].type, len(infos) * rows, cols, sources)


def _append(ops: OpList, route: Route, p: ExpertTensors, name: str, group: Sequence[Entry]) -> None:
    experts, rank, rows = route.routing.networks, group[0].pair.rank, group[0].rows
    a, b = (ops.plan.weights.setdefault(w.name, w) for w in (_matrix(name, group, part, experts) for part in "ab"))
    width = pad(rank * len(group))
    h = ops.shaped(f"expert_lora{route.routing.suffix}", (ops.batch * route.used, width))
    params: dict[str, int | str] = {
        "EXPERTS": experts,
        "STACK": len(group),
        "USED": route.used,
        "ADAPTERS": ops.adapters.count,
        "LAST": 0,
    }
    params |= {"H_STRIDE": width, "USERS": listed(e.pair.adapter for e in group), **ops.state_params}
    shared = {"state": ops.state, "chosen": route.chosen, "h": h, "scales": low_rank.scales(ops)}
    ops.add(
        "expert_low_rank",
        {"QUANT": a.layout.fragment, "COLS": a.cols, "ROWS": rank, "X_PER_SLOT": int(p.sum), "WG": THREADS,
         "X16": int(p.x.dtype == "f16"), "NORM": int(p.norm is not None), "LANES": LANES} | params,
        {"eps": p.eps} if p.norm else {},
        {"w": a, "x": p.x} | shared | ({"norm": p.norm} if p.norm else {}),
        -(-rank * len(group) * LANES // THREADS),
        route.used,
        PerToken(),
    )  # fmt: skip
    factors = route.routing.factors if p.sum else None
    first, end = min(e.y for e in group), max(e.y + rows for e in group)
    ops.add(
        "add_expert_low_rank",
        {"QUANT": b.layout.fragment, "COLS": rank, "ROWS": rows, "SUM": int(p.sum), "WG": THREADS,
         "FACTORS": int(factors is not None), "RATIOS": listed(float(e.pair.factor) for e in group),
         "COLUMNS": listed(e.y for e in group)} | params,
        {"first": first, "cols": end - first, "y_stride": p.y.shape[1]},
        {"w": b, "y": p.y} | shared | ({"weights": route.weights} if p.sum else {})
        | ({"factors": factors} if factors else {}),
        -(-(end - first) // THREADS),
        1 if p.sum else route.used,
        PerToken(),
    )  # fmt: skip
    if any(mixed_types.storage_buffers(op) > ops.device.max_storage_buffers for op in ops.ops[-2:]):
        pair = group[0].pair
        matrix = pair.b.name.split(".", 2)[2].removesuffix(".lora_b")
        raise WispError(
            f"lora[{pair.adapter}]: This device cannot bind all that products with the adapter's {matrix} need in "
            f"{pair.b.type.name}. Use an adapter in F16.",
            "unsupported_adapter",
            param="lora",
        )
