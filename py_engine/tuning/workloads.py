"""Workloads that kernels are measured on: ops of a model's types and shapes, on throwaway buffers.

A matrix that stays in the GPU's caches would look faster than it is, so several copies of it are used in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import tiles
from py_engine.plan.cache import make_cache, page_group
from py_engine.plan.encoder import Stage
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE, PREFILL, SMALL_BATCH
from py_engine.plan.ops import AttentionOptions, Ops, Projection
from py_engine.plan.plan import MATRICES, Buffer, Op, Plan, Weight
from py_engine.plan.shared_constants import SHORT_BATCH

WEIGHT_BYTES = 128 << 20  # of throwaway weights
MAX_COPIES = 16
MAX_CONTEXT = 8192  # tokens of a throwaway cache
PREFILL_TOKENS = 512  # of a prompt, at most
ENCODER_ROWS = 512
MOST_ENCODER_ROWS = 4096  # where tiles are chosen: how many there are counts
SHORT_CONTEXT = 2048  # tokens
EPS = 1e-5


@dataclass(frozen=True)
class Workload:
    """Ops on `n` tokens at position `pos`. Outputs of `checked` tokens are compared; `copies`: how often it repeats."""

    name: str
    n: int
    checked: int
    pos: int
    copies: int

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions at which it is timed; the sum counts."""
        return (self.pos,)

    def planned(self, device: Device) -> tuple[Plan, list[Buffer]]:
        """A plan whose only list, "test", is the workload; and its outputs."""
        raise NotImplementedError


def _weight(name: str, type: Q, rows: int, cols: int, plan: Plan) -> Weight:
    return plan.weights.setdefault(name, Weight(name, type, rows, cols, ((name, 0, rows),)))


@dataclass(frozen=True)
class Matrix(Workload):
    """A matrix times a vector, with the model's fused norm, gate or residual, but without rotation."""

    weight: Weight
    sample: Weight  # its first rows, as many as fit into the throwaway memory
    activation: str  # of a gated pair; "": not gated
    normed: bool
    added: bool

    def planned(self, device: Device) -> tuple[Plan, list[Buffer]]:
        plan = Plan(1, self.pos + 2, 1)
        return plan, [self._append(Ops(plan, "test", 1, device))]

    def _append(self, ops: Ops) -> Buffer:
        """Append the product with each copy of the matrix; return the result."""
        plan, sample = ops.plan, self.sample
        x = ops.rows("x", sample.cols)
        norm = _weight("norm", Q.F32, 1, sample.cols, plan) if self.normed else None
        for i in range(self.copies):
            w = _weight(f"w{i}", sample.type, sample.rows, sample.cols, plan)
            if self.activation:
                y = ops.gated(x, Projection([w], None, norm, EPS), self.activation)
            elif self.added:
                y = ops.rows("y", sample.rows)
                ops.linear(x, w, None, y)
            else:
                y = ops.normed_stack("y", x, Projection([w], None, norm, EPS))
        return y


@dataclass(frozen=True)
class SmallBatch(Matrix):
    """A matrix times the vectors of a small batch."""

    def planned(self, device: Device) -> tuple[Plan, list[Buffer]]:
        plan = Plan(self.n, self.pos + self.n, 1)
        return plan, [self._append(Ops(plan, "test", self.n, device, state_per_token=True))]


@dataclass(frozen=True)
class Attention(Workload):
    """Attention of one token, and the combination of its splits."""

    n_head_kv: int
    group: int
    head_dim: int
    kv_type: str
    n_ctx: int
    model_n_ctx: int  # n_ctx is at most MAX_CONTEXT

    @property
    def positions(self) -> tuple[int, ...]:
        """A short context and a long one: the best tile for one may be bad for the other."""
        return tuple(dict.fromkeys((self.pos, max(self.pos, self.n_ctx - 3))))

    def planned(self, device: Device) -> tuple[Plan, list[Buffer]]:
        return _attention(self, device, 1, self.n_ctx)


@dataclass(frozen=True)
class Prefill(Workload):
    """Many tokens through the model's most costly matrix, and their attention."""

    sample: Weight
    attention: Attention | None
    precise: bool  # as in lists whose activations are not rounded to bytes (OpList.precise)

    def planned(self, device: Device) -> tuple[Plan, list[Buffer]]:
        plan, outputs = Plan(self.n, self.n, 1), list[Buffer]()
        if self.attention is not None:
            plan, outputs = _attention(self.attention, device, self.n, self.n)
        ops = Ops(plan, "test", self.n, device)
        ops.precise = self.precise
        x, w = ops.rows("x", self.sample.cols), _weight("w", self.sample.type, self.sample.rows, self.sample.cols, plan)
        return plan, [ops.project("y", x, w, None), *outputs]


@dataclass(frozen=True)
class EncoderMatmul(Workload):
    """Many rows of an encoder of images or sound through one of its matrices."""

    weight: Weight
    sample: Weight  # its first rows

    def planned(self, device: Device) -> tuple[Plan, list[Buffer]]:
        plan = Plan(self.n, self.n, 1)
        ops, sample = Ops(plan, "test", self.n, device), self.sample
        norm = _weight("norm", Q.F32, 1, sample.cols, plan)
        w = _weight("w", sample.type, sample.rows, sample.cols, plan)
        return plan, [ops.normed_stack("y", ops.rows("x", sample.cols), Projection([w], None, norm, EPS))]


@dataclass(frozen=True)
class MediaAttention(Workload):
    """Attention of an encoder's rows to all of them."""

    heads: int
    head_dim: int

    def planned(self, device: Device) -> tuple[Plan, list[Buffer]]:
        plan = Plan(self.n, self.n, 1)
        ops, size = Ops(plan, "test", self.n, device), self.heads * self.head_dim
        cache = make_cache(plan, 0, size, "f16", page_group(plan, 0))
        options = AttentionOptions(self.head_dim**-0.5, causal=False)
        heads = self.heads, self.heads, self.head_dim
        return plan, [ops.attention(ops.rows("queries", size), cache, heads, options)]


def _attention(workload: Attention, device: Device, batch: int, n_ctx: int) -> tuple[Plan, list[Buffer]]:
    plan = Plan(batch, n_ctx, 1)
    ops = Ops(plan, "test", batch, device)
    heads = workload.n_head_kv * workload.group, workload.n_head_kv, workload.head_dim
    size = workload.n_head_kv * workload.head_dim
    cache = ops.staging(make_cache(plan, 0, size, workload.kv_type, page_group(plan, 0)))
    if batch == 1:  # as in a model: attention quantizes the staged token
        ops.quantize_cache(cache, size)
    q = ops.rows("queries", heads[0] * workload.head_dim)
    return plan, [ops.attention(q, cache, heads, AttentionOptions(workload.head_dim**-0.5))]


# -- from a model's plan ----------------------------------------------------------------------------------------------


def _products(plan: Plan, name: str, kernels: tuple[str, ...]) -> list[tuple[Op, Weight]]:
    """One matrix product of each type and shape in a list, in descending order of the bytes they read together."""
    kinds: dict[tuple, list[tuple[Op, Weight]]] = {}
    for op in plan.lists.get(name, []):
        if op.kernel in kernels and not op.params.get("EXPERTS"):
            for w in (bound for name, bound in op.bindings.items() if name in MATRICES and isinstance(bound, Weight)):
                kinds.setdefault((w.type, w.rows, w.cols), []).append((op, w))
    ordered = sorted(kinds.values(), key=lambda found: -sum(w.nbytes for _, w in found))
    return [found[0] for found in ordered]


def _sample(weight: Weight, max_bytes: int) -> Weight:
    """The first rows of a matrix, an even number, in at most `max_bytes`."""
    rows = min(weight.rows, max(2, max_bytes * weight.rows // weight.nbytes // 2 * 2))
    return replace(weight, name="w", rows=rows, sources=(("w", 0, rows),))


def matrices_of(plan: Plan) -> list[Matrix]:
    """The matrices that a decode step multiplies with, the most costly first."""
    matrices = []
    for op, weight in _products(plan, DECODE, ("matvec",)):
        epilogue = op.params["EPILOGUE"]
        sample = _sample(weight, WEIGHT_BYTES // 2)
        matrices.append(
            Matrix(
                f"{weight.type.name} {weight.rows}x{weight.cols}",
                n=1,
                checked=1,
                pos=0,
                copies=max(1, min(MAX_COPIES, WEIGHT_BYTES // sample.nbytes)),
                weight=weight,
                sample=sample,
                activation=str(op.params["ACTIVATION"]) if epilogue == "gated" else "",
                normed=bool(op.params["NORM"]),
                added=epilogue == "add",
            )
        )
    return matrices


def small_batches_of(plan: Plan) -> list[SmallBatch]:
    """The same matrices in steps of several sequences; none if the plan has no such steps."""
    fields = [vars(matrix) for matrix in matrices_of(plan)] if SMALL_BATCH in plan.lists else []
    more = {"n": SHORT_BATCH, "checked": SHORT_BATCH}
    return [SmallBatch(**{**f, **more, "name": f"{f['name']}, {SHORT_BATCH} tokens"}) for f in fields]


def attention_of(plan: Plan, device: Device) -> Attention | None:
    """The decode attention of a layer; one without a window if there is any."""
    ops = [op for op in plan.lists.get(DECODE, []) if op.kernel == "attention_decode"]
    if not ops:
        return None
    op = min(ops, key=lambda op: bool(op.params["WINDOW"]))  # a whole context costs most
    head_dim, n_ctx = int(op.params["HEAD_DIM"]), min(plan.n_ctx, MAX_CONTEXT)
    group = int(op.params["G"]) * int(op.params.get("SHARE", 1))  # of all workgroups that share a key head
    return Attention(
        "attention",
        n=1,
        checked=1,
        pos=max(0, min(n_ctx, SHORT_CONTEXT) - 3),
        copies=1,
        n_head_kv=int(op.consts["n_head_kv"]),
        group=group // tiles.attention_share(device, head_dim, group),
        head_dim=head_dim,
        kv_type=str(op.params["KV"]),
        n_ctx=n_ctx,
        model_n_ctx=plan.n_ctx,
    )


def _encoder_stage(plan: Plan) -> Stage | None:
    """The stage of an encoder that has most ops."""
    stages = [stage for encoder in plan.encoders.values() for stage in encoder.stages]
    return max(stages, key=lambda stage: len(plan.lists[stage.list]), default=None)


def _encoder_rows(plan: Plan, stage: Stage) -> int:
    capacity = max(encoder.capacity.get(stage.rows, 0) for encoder in plan.encoders.values())
    return min(capacity, MOST_ENCODER_ROWS)


def encoder_matmuls_of(plan: Plan) -> list[EncoderMatmul]:
    """The products with subgroup matrices that an encoder's blocks consist of, the most costly first."""
    stage, found = _encoder_stage(plan), []
    for _, weight in _products(plan, stage.list, ("matmul_matrix",)) if stage else []:
        assert stage is not None
        sample = _sample(weight, WEIGHT_BYTES // 2)
        name, n = f"rows times {weight.rows}x{weight.cols}", _encoder_rows(plan, stage)
        found.append(EncoderMatmul(name, n=n, checked=min(n, 37), pos=0, copies=1, weight=weight, sample=sample))
    return found


def media_attention_of(plan: Plan) -> MediaAttention | None:
    """The attention with subgroup matrices of an encoder's blocks."""
    stage = _encoder_stage(plan)
    op = next((op for op in plan.lists[stage.list] if op.kernel == "attention_matrix"), None) if stage else None
    if op is None or stage is None:
        return None
    n, heads = _encoder_rows(plan, stage) // 2, int(op.consts["n_head_kv"])
    size = int(op.params["HEAD_DIM"])
    return MediaAttention("attention of rows", n, min(n, 37), pos=0, copies=1, heads=heads, head_dim=size)


def prefill_of(plan: Plan, device: Device) -> Prefill | None:
    """A prefill step, or rows of an encoder of images or sound."""
    stage = _encoder_stage(plan)
    name = stage.list if stage else PREFILL
    products = _products(plan, name, ("matmul", "matmul_int8", "matmul_matrix"))
    n = min(plan.batch, ENCODER_ROWS if stage else PREFILL_TOKENS)
    if not products or n < 2:
        return None
    return Prefill(
        "prefill",
        n=n,
        checked=min(n, 37),
        pos=0,
        copies=1,
        sample=_sample(products[0][1], WEIGHT_BYTES // 2),
        attention=attention_of(plan, device),
        precise=stage is not None or bool(products[0][0].params.get("SUMS32")),
    )
