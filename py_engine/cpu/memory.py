"""Where a plan's weights and buffers are in the memory of the CPU engine's module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from py_engine.cpu import encoder_calls
from py_engine.plan.pages import PageGroup
from py_engine.plan.panels import ROWS, weight_bytes
from py_engine.plan.plan import Buffer, Op, Plan, Weight
from py_engine.plan.quants import GROUP, needs_numpy, row_bytes

ALIGN = 64  # bytes: a line of the caches
STACK_BYTES = 1 << 16  # of a thread
ATTENTION_ROWS = (
    2 * 32 + 2 * 16
)  # of head_dim floats in a thread's scratch memory: wasm/attention.c's blocks and queries
PART, MAX_PARTS = 256, 8  # positions of a part of the context, and the most parts that the plan's buffers hold
MOST_COLS = 256  # of a unit of a matrix
UNIT_BYTES = 4 * MOST_COLS * ROWS  # of a dequantised unit
FLOAT_PANELS = 2  # of a matrix that are converted to floats at a time (wasm/products.h)
BINS_BYTES = 8 * 2048  # of a sampler's histogram
STAGING_BYTES = 1 << 20  # of a file's rows that are packed at a time
GRID_BYTES = 4096  # of the largest grid of a type
OP_BYTES = 3 * 128  # of an op's calls, at most


class Memory:
    """The addresses of one plan. Memory grows at the end, and what it loses there is not used again."""

    def __init__(self, plan: Plan, base: int, threads: int) -> None:
        """`base`: the first address that the module leaves free."""
        self.plan, self.end = plan, base
        self.stacks = self.allocate(threads * STACK_BYTES)
        self.scratch_bytes = _scratch_bytes(plan)
        self.part = max(PART, -(-plan.n_ctx // MAX_PARTS // PART) * PART)
        self.scratch = self.allocate(threads * self.scratch_bytes)
        self.prepared = self.allocate(
            max((_prepared_bytes(op, exact=bool(plan.encoders)) for op in _ops(plan)), default=0)
        )
        self.rows = self.allocate(max((_fused_bytes(op) for op in _ops(plan)), default=0))
        self.calls = self.allocate(2 * OP_BYTES * sum(len(ops) for ops in plan.lists.values()))
        matrices = (op.bindings.get(name) for op in _ops(plan) for name in ("w", "lora_a"))
        self._matrices = {weight.name for weight in matrices if isinstance(weight, Weight)}
        slots, sizes = plan.slots()
        places = [self.allocate(size) for size in sizes]
        self._buffers = {
            name: places[slots[name]] if name in slots else self.allocate(b.nbytes) for name, b in plan.buffers.items()
        }
        self.staging_bytes = max([STAGING_BYTES, *(row_bytes(w.type, w.cols) for w in plan.weights.values())])
        self.staging = self.allocate(self.staging_bytes)
        self.grids = {w.type: self.allocate(GRID_BYTES) for w in plan.weights.values() if needs_numpy(w.type)}
        self._weights = {name: self.allocate(self.bytes_of(w)) for name, w in plan.weights.items()}

    def allocate(self, size: int) -> int:
        """The address of so many further bytes."""
        address = self.end
        self.end += _aligned(size)
        return address

    def end_with(self, buffers: Iterable[Buffer]) -> int:
        """The end after move()."""
        return self.end + sum(_aligned(b.nbytes) for b in buffers)

    def of(self, bound: Buffer | Weight) -> int:
        """The address of a buffer or a weight."""
        return (self._weights if isinstance(bound, Weight) else self._buffers)[bound.name]

    def buffer(self, name: str) -> int:
        """The address of a buffer."""
        return self._buffers[name]

    def is_matrix(self, weight: Weight) -> bool:
        """Whether products read a weight, so that it lies in panels. Other weights are floats, row by row."""
        return weight.name in self._matrices

    def bytes_of(self, weight: Weight) -> int:
        """Bytes of a weight."""
        if self.is_matrix(weight):
            return weight_bytes(weight.type, weight.rows, weight.cols)
        return 4 * weight.rows * weight.cols

    def move(self, buffers: Iterable[Buffer]) -> list[tuple[int, int, int]]:
        """Give buffers new places of their present sizes. Returns (old address, new one, bytes that were used)."""
        moved = []
        for b in buffers:
            old = self._buffers[b.name]
            self._buffers[b.name] = self.allocate(b.nbytes)
            moved.append((old, self._buffers[b.name], self.plan.buffers[b.name].nbytes))
        return moved

    def page_regions(self, group: PageGroup, page: int, caches: Sequence[str]) -> list[tuple[int, int]]:
        """The address and bytes of a page in each of these caches of its group."""
        sizes = zip(caches, self.plan.page_sizes(group, caches), strict=True)
        return [(self._buffers[name] + page * size, size) for name, size in sizes]


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def _ops(plan: Plan) -> Iterable[Op]:
    return (op for ops in plan.lists.values() for op in ops)


def _matrix(op: Op) -> Weight:
    weight = op.bindings["w"]
    assert isinstance(weight, Weight)
    return weight


def _prepared_bytes(op: Op, *, exact: bool) -> int:
    """Memory of x as a product reads it: floats at most, with which rounded rows and their sums compete.

    `exact`: it reads floats, of encoders; they are prepared only if a norm comes first.
    """
    x = op.bindings.get("x")
    if "w" not in op.bindings or op.kernel == "embed" or not isinstance(x, Buffer):
        return 0
    if exact and "norm" not in op.bindings:
        return 0
    return x.shape[0] * 4 * _matrix(op).cols


def _fused_bytes(op: Op) -> int:
    """Memory of the rows between a product and its epilogue, or of a router's logits inside an op."""
    if op.params.get("ROUTED"):
        return 4 * GROUP * op.bindings["x"].shape[0]  # type: ignore[union-attr]
    if op.params.get("EPILOGUE") not in ("qkv", "activate", "gated", "gate", "add") or op.kernel == "matmul":
        return 0
    y, x = op.bindings["y"], op.bindings["x"]
    assert isinstance(y, Buffer)
    assert isinstance(x, Buffer)
    if op.kernel == "experts":
        slots = max(x.shape[0], y.shape[0])
        return 4 * slots * int(op.params["STACK"]) * int(op.params["ROWS"])
    return 4 * max(x.shape[0] if op.kernel == "matvec_small_batch" else 1, 1) * _matrix(op).rows


def _head_dim(op: Op) -> int:
    """Dimensions of the heads of attention; 0 for other ops."""
    return int(op.params["SIZE"] if op.kernel == "compressed_attention" else op.params.get("HEAD_DIM", 0))


def _scratch_bytes(plan: Plan) -> int:
    """The most memory that an op needs for itself in one thread."""
    ops = list(_ops(plan))
    heads = max((_head_dim(op) for op in ops), default=0)
    widths: Sequence[int] = [
        b.shape[-1] for b in plan.buffers.values() if b.pool == "activations" and len(b.shape) == 2
    ]
    matrices = (4 * (int(op.params["ROWS"]) + 1) * int(op.params["COLS"]) for op in ops if op.kernel == "ssm_scan")
    scans = (4 * size * (size + 1) for op in ops if op.kernel == "wkv_scan" for size in [int(op.params["SIZE"])])
    compressing = (4 * (4 * int(op.params["SIZE"]) + ROWS * (_matrix(op).cols + MOST_COLS)) for op in ops
                   if op.kernel == "compress")  # fmt: skip
    cols = max((_matrix(op).cols for op in ops if isinstance(op.bindings.get("w"), Weight)), default=0)
    sampler = BINS_BYTES + 2 * 4 * (plan.n_vocab + 4) if plan.generates else 0
    rows = (encoder_calls.scratch_bytes(op, UNIT_BYTES) for op in ops)
    sizes = [
        4 * ATTENTION_ROWS * heads,
        2 * 4 * max(widths, default=0),
        UNIT_BYTES,
        FLOAT_PANELS * 4 * ROWS * cols,
        sampler,
        *matrices,
        *scans,
        *compressing,
        *rows,
    ]
    return _aligned(max(sizes))
