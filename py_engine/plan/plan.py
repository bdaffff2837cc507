"""The plan: which kernels run on which buffers, in which order. Pure data, made once per model.

A model file (models/*.py) writes its layers once, in terms of ops.py; lowering them for one token gives the decode
list, for many the prefill list. gpu.py records a list into pipelines and bind groups, cpu.py runs the same list with
numpy. Nothing here knows about either.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from gguf.constants import GGMLQuantizationType as Q

from py_engine.plan import quants
from py_engine.plan.lists import DECODE

Span = tuple[str, int, int]  # a buffer's life: list ("" for all), first op, last op
DTYPE_BYTES = {"f32": 4, "u32": 4, "f16": 2}


@dataclass(frozen=True)
class Buffer:
    """A region of GPU memory.

    `pool`: "activations" (they share memory by lifetime), "kv", or "state" (written by the host).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"
    pool: str = "activations"

    @property
    def nbytes(self) -> int:
        """Bytes, rounded up to a whole 16-byte load."""
        return -(-prod(self.shape) * DTYPE_BYTES[self.dtype] // 16) * 16


@dataclass(frozen=True)
class Weight:
    """A matrix (rows, cols) in GPU memory, stacked from GGUF tensors of one type.

    `sources`: (tensor, first row there, rows).
    """

    name: str
    type: Q
    rows: int
    cols: int
    sources: tuple[tuple[str, int, int], ...]

    @property
    def layout(self) -> quants.Layout:
        """How the type lies in memory."""
        return quants.layout(self.type, self.name)

    def plane_row_bytes(self, plane: str) -> int:
        """Bytes of one row in a plane."""
        return -(-self.cols // self.layout.block) * self.layout.planes[plane].stride

    def plane_bytes(self, plane: str) -> int:
        """Bytes of one plane of the whole matrix."""
        return -(-(self.layout.planes[plane].table + self.rows * self.plane_row_bytes(plane)) // 16) * 16

    @property
    def nbytes(self) -> int:
        """Bytes of all planes."""
        return sum(self.plane_bytes(p) for p in self.layout.planes)

    def split(self, limit: int) -> list[tuple[int, Weight]]:
        """(first row, part) pieces, each of whose planes fits into one binding of `limit` bytes."""
        planes = self.layout.planes
        rows = max(1, min((limit - 16 - planes[p].table) // self.plane_row_bytes(p) for p in planes))
        if rows >= self.rows:
            return [(0, self)]
        return [(r, self._part(r, min(rows, self.rows - r))) for r in range(0, self.rows, rows)]

    def _part(self, first: int, rows: int) -> Weight:
        sources, at = [], 0
        for tensor, start, n in self.sources:
            lo, hi = max(first, at), min(first + rows, at + n)
            if lo < hi:
                sources.append((tensor, start + lo - at, hi - lo))
            at += n
        return Weight(f"{self.name}[{first}:{first + rows}]", self.type, rows, self.cols, tuple(sources))


@dataclass(frozen=True)
class PerToken:
    """A workgroup count that follows the number of tokens in the batch: ceil(n / tile)."""

    tile: int = 1


@dataclass(frozen=True)
class Op:
    """One dispatch: wgsl/<kernel>.wgsl, or cpu.<kernel>, on these buffers.

    `params` are the kernel's #param values (compiled in), `consts` the fields of its Params struct,
    `bindings` name -> Buffer or Weight, `grid` the workgroup counts.
    """

    kernel: str
    params: dict[str, int | float | str]
    consts: dict[str, int | float]
    bindings: dict[str, Buffer | Weight]
    grid: tuple[int | PerToken, int | PerToken, int | PerToken]


@dataclass(frozen=True)
class Embedding:
    """Where a model's embeddings are after its list "embed", and after the list of a pooling behind it.

    Buffers: `rows` (n, width padded), of every token; "pooled" (1, width padded); "ranked" (1, labels padded).
    """

    rows: str
    width: int
    pooling: str | None  # what the metadata asks for
    labels: int = 0  # of the classification head; 0: there is none
    softmax: bool = False  # whether the labels' numbers are to add up to one


@dataclass
class Plan:
    """Everything about one loaded model that the executors need."""

    batch: int  # most tokens in one prefill step
    n_ctx: int
    n_vocab: int
    sequences: int = 1  # that the caches have room for; their buffers' shapes are those of one
    spare: int = 0  # rows beside the window in caches that are rings, 0: there are none
    weights: dict[str, Weight] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    lists: dict[str, list[Op]] = field(default_factory=dict)
    lazy: set[str] = field(default_factory=set)  # lists that are compiled when a request first needs them
    constants: dict[str, bytes] = field(default_factory=dict)  # contents of "state" buffers that never change
    embedding: Embedding | None = None

    @property
    def generates(self) -> bool:
        """Whether the model makes text; encoders do not."""
        return DECODE in self.lists

    def slots(self) -> tuple[dict[str, int], list[int]]:
        """Memory for the activations: buffer name -> slot, and the bytes of each slot.

        Two buffers share a slot when no list needs both at once; within one op nothing is shared, so a kernel never
        reads what it writes. A buffer that several lists use is carried between them and shares with none.
        Biggest first, each into the first slot that is free over its life.
        """
        lives: dict[str, list[Span]] = {}
        for name, ops in self.lists.items():
            for i, op in enumerate(ops):
                for b in op.bindings.values():
                    if isinstance(b, Buffer) and b.pool == "activations":
                        spans = lives.setdefault(b.name, [])
                        if spans and spans[-1][0] == name:
                            spans[-1] = (name, spans[-1][1], i)
                        else:
                            spans.append((name, i, i))
        for spans in lives.values():
            if len(spans) > 1:
                spans[:] = [("", 0, 0)]
        assigned: dict[str, int] = {}
        taken: list[list[Span]] = []
        sizes: list[int] = []
        for b in sorted((self.buffers[n] for n in lives), key=lambda b: -b.nbytes):
            life = lives[b.name]
            free = (i for i, spans in enumerate(taken) if not any(_clash(a, s) for a in spans for s in life))
            slot = next(free, len(taken))
            if slot == len(taken):
                taken.append([])
                sizes.append(0)
            assigned[b.name] = slot
            taken[slot] += lives[b.name]
            sizes[slot] = max(sizes[slot], b.nbytes)
        return assigned, sizes

    def memory(self) -> dict[str, int]:
        """Bytes per pool."""
        kv = self.sequences * sum(b.nbytes for b in self.buffers.values() if b.pool == "kv")
        return {"weights": sum(w.nbytes for w in self.weights.values()), "kv": kv, "activations": sum(self.slots()[1])}


def _clash(a: Span, b: Span) -> bool:
    return "" in (a[0], b[0]) or (a[0] == b[0] and a[1] <= b[2] and b[1] <= a[2])
