"""What kernels are measured on: ops as a model's plan has them, of the same types and shapes, on throwaway buffers.

What a GPU keeps in its caches would make a matrix look faster than it is, so several copies of it take turns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gguf.constants import GGMLQuantizationType as Q

from py_engine.plan.cache import make_cache
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE, PREFILL
from py_engine.plan.ops import AttentionOptions, Ops, Projection
from py_engine.plan.plan import Buffer, Op, Plan, Weight

ROOM = 128 << 20  # bytes of throwaway weights
COPIES = 16
CONTEXT = 8192  # tokens of a throwaway cache, at most
FILLED = 2048  # of them seen in a short context
EPS = 1e-5


@dataclass(frozen=True)
class Work:
    """`n` tokens at position `pos`; outputs are compared for `checked` tokens. The work is there `copies` times."""

    name: str
    n: int
    checked: int
    pos: int
    copies: int

    @property
    def positions(self) -> tuple[int, ...]:
        """Where it is timed; what counts is the sum."""
        return (self.pos,)

    def planned(self, device: Device) -> tuple[Plan, list[Buffer]]:
        """A plan whose one list, "test", is the work; and what it computes."""
        raise NotImplementedError


def _weight(name: str, type: Q, rows: int, cols: int, plan: Plan) -> Weight:
    return plan.weights.setdefault(name, Weight(name, type, rows, cols, ((name, 0, rows),)))


@dataclass(frozen=True)
class Matrix(Work):
    """A matrix and a vector, with what is fused to them but for rotation: `gated`, `normed`, `added`."""

    weight: Weight
    cut: Weight  # as many of its rows as there is room for
    activation: str
    normed: bool
    added: bool

    def planned(self, device: Device) -> tuple[Plan, list[Buffer]]:
        plan = Plan(1, self.pos + 2, 1)
        ops = Ops(plan, "test", 1, device)
        cut = self.cut
        x = ops.rows("x", cut.cols)
        norm = _weight("norm", Q.F32, 1, cut.cols, plan) if self.normed else None
        for i in range(self.copies):
            w = _weight(f"w{i}", cut.type, cut.rows, cut.cols, plan)
            if self.activation:
                y = ops.gated(x, Projection([w], None, norm, EPS), self.activation)
            elif self.added:
                y = ops.rows("y", cut.rows)
                ops.linear(x, w, None, y)
            else:
                y = ops.normed_stack("y", x, Projection([w], None, norm, EPS))
        return plan, [y]


@dataclass(frozen=True)
class Attention(Work):
    """Attention of one token, and the joining of its shares."""

    n_head_kv: int
    group: int
    head_dim: int
    kv_type: str
    n_ctx: int
    real_ctx: int

    @property
    def positions(self) -> tuple[int, ...]:
        """A short context and a long one: what is best for one may be bad for the other."""
        return tuple(dict.fromkeys((self.pos, max(self.pos, self.n_ctx - 3))))

    def planned(self, device: Device) -> tuple[Plan, list[Buffer]]:
        return _attention(self, device, 1, self.n_ctx)


@dataclass(frozen=True)
class Prefill(Work):
    """The model's most costly matrix with many tokens, and their attention."""

    cut: Weight
    attention: Attention | None

    def planned(self, device: Device) -> tuple[Plan, list[Buffer]]:
        plan, outputs = Plan(self.n, self.n, 1), list[Buffer]()
        if self.attention is not None:
            plan, outputs = _attention(self.attention, device, self.n, self.n)
        ops = Ops(plan, "test", self.n, device)
        x, w = ops.rows("x", self.cut.cols), _weight("w", self.cut.type, self.cut.rows, self.cut.cols, plan)
        return plan, [ops.project("y", x, w, None), *outputs]


def _attention(work: Attention, device: Device, batch: int, n_ctx: int) -> tuple[Plan, list[Buffer]]:
    plan = Plan(batch, n_ctx, 1)
    ops = Ops(plan, "test", batch, device)
    heads = work.n_head_kv * work.group, work.n_head_kv, work.head_dim
    cache = make_cache(plan, 0, work.n_head_kv * work.head_dim, work.kv_type, 0, 0)
    if batch == 1:  # as a model's token comes
        ops.quantize_cache(cache, work.n_head_kv * work.head_dim)
    q = ops.rows("queries", heads[0] * work.head_dim)
    return plan, [ops.attention(q, cache, heads, AttentionOptions(work.head_dim**-0.5))]


# -- from a model's plan ----------------------------------------------------------------------------------------------


def _products(plan: Plan, name: str, kernels: tuple[str, ...]) -> list[Op]:
    """The products of a list, one of a kind, those that read most first."""
    kinds: dict[tuple, list[Op]] = {}
    for op in plan.lists.get(name, []):
        if op.kernel in kernels and isinstance(w := op.bindings["w"], Weight):
            kinds.setdefault((w.type, w.rows, w.cols), []).append(op)
    ordered = sorted(kinds.values(), key=lambda ops: -sum(op.bindings["w"].nbytes for op in ops))
    return [ops[0] for ops in ordered]


def _cut(weight: Weight, room: int) -> Weight:
    """The first rows of a matrix, pairs of them, as many as there is room for."""
    rows = min(weight.rows, max(2, room * weight.rows // weight.nbytes // 2 * 2))
    return replace(weight, name="w", rows=rows, sources=(("w", 0, rows),))


def matrices_of(plan: Plan) -> list[Matrix]:
    """The matrices that a token meets."""
    found = []
    for op in _products(plan, DECODE, ("matvec",)):
        weight, epilogue = op.bindings["w"], op.params["EPILOGUE"]
        assert isinstance(weight, Weight)
        cut = _cut(weight, ROOM // 2)
        found.append(
            Matrix(
                f"{weight.type.name} {weight.rows}x{weight.cols}",
                1,
                1,
                0,
                max(1, min(COPIES, ROOM // cut.nbytes)),
                weight,
                cut,
                str(op.params["ACTIVATION"]) if epilogue == "gated" else "",
                bool(op.params["NORM"]),
                epilogue == "add",
            )
        )
    return found


def attention_of(plan: Plan) -> Attention | None:
    """The attention of most layers, of one token."""
    ops = [op for op in plan.lists.get(DECODE, []) if op.kernel == "attention_decode"]
    if not ops:
        return None
    op = min(ops, key=lambda op: bool(op.params["WINDOW"]))  # all of the context costs most
    n_ctx = min(plan.n_ctx, CONTEXT)
    pos = max(0, min(n_ctx, FILLED) - 3)
    heads = int(op.consts["n_head_kv"]), int(op.params["G"]), int(op.params["HEAD_DIM"])
    return Attention("attention", 1, 1, pos, 1, *heads, str(op.params["KV"]), n_ctx, plan.n_ctx)


def prefill_of(plan: Plan) -> Prefill | None:
    """Many tokens at once."""
    products = _products(plan, PREFILL, ("matmul", "matmul_matrix"))
    if not products or plan.batch < 2:
        return None
    weight = products[0].bindings["w"]
    assert isinstance(weight, Weight)
    return Prefill("prefill", plan.batch, min(plan.batch, 37), 0, 1, _cut(weight, ROOM // 2), attention_of(plan))
