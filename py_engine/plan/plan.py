"""The plan: which kernels run on which buffers, in which order. Pure data, made once per model.

A model file (models/*.py) writes its layers once, in terms of ops.py. Lowered for one token they are the decode list,
for many tokens the prefill list. gpu/ records a list into pipelines and bind groups; cpu/ runs the same list
with numpy. Nothing here knows about either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import quants
from py_engine.plan.adapters import Adapters
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.lists import DECODE, MEDIA, PACKED, PREFILL, SIZES, SPLIT_ATTENTION, of_prompts, plain, unsized
from py_engine.plan.pages import PAGE, PageGroup
from py_engine.plan.shared_constants import SHORT_BATCH

Span = tuple[str, int, int]  # a buffer's lifetime: list ("" for all), first op, last op
DTYPE_BYTES = {"f32": 4, "u32": 4, "f16": 2}
ZEROS = ""  # Source of a missing optional tensor: `rows` zeros.
MATRICES = {"w": "", "w_2": "_2"}  # the bindings of matrices of any type, and what the names of their planes end with


@dataclass(frozen=True)
class Buffer:
    """A region of GPU memory.

    `pool`: "activations" (sharing memory by lifetime), "kv", or "state" (written by the host).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"
    pool: str = "activations"

    @property
    def nbytes(self) -> int:
        """Size in bytes, rounded up to a multiple of 16."""
        return -(-prod(self.shape) * DTYPE_BYTES[self.dtype] // 16) * 16


@dataclass(frozen=True)
class Weight:
    """A matrix (rows, cols) in GPU memory, stacked from GGUF tensors of one type.

    `sources`: (tensor, first row in it, rows), stacked in this order. `scales`: a factor for the products of each
    tensor, or of each expert of each tensor, in the same order (matrix_scales.py).
    """

    name: str
    type: Q
    rows: int
    cols: int
    sources: tuple[tuple[str, int, int], ...]
    scales: Weight | None = None

    @property
    def layout(self) -> quants.Layout:
        """The memory layout of the type."""
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
        """Split by rows into (first row, part), so that every plane of a part fits into a binding of `limit` bytes."""
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
        name = f"{self.name}[{first}:{first + rows}]"
        return replace(self, name=name, rows=rows, sources=tuple(sources))


def planes_of(name: str, weight: Weight) -> dict[str, str]:
    """What a weight that is bound as `name` is in WGSL: the name of a binding -> the weight's plane."""
    if name not in MATRICES:
        return {name: "w_qs"}
    return {plane + MATRICES[name]: plane for plane in weight.layout.planes}


@dataclass(frozen=True)
class PerToken:
    """A workgroup count that depends on the number of tokens in the batch: ceil(n / tile) + extra."""

    tile: int = 1
    extra: int = 0

    def count(self, n: int) -> int:
        """Workgroups for a batch of n tokens."""
        return -(-n // self.tile) + self.extra


@dataclass(frozen=True)
class Contexts:
    """How a dispatch depends on the batch's longest context.

    `positions`: if not 0, a workgroup along y has so many positions of a context, or more where the op's `grid` has too
    few workgroups. Those after the newest position do nothing. `above`, `up_to`: the op is dispatched only if the
    context is longer than `above`, and at most `up_to` (0: of any length). Where the length is not known on the host,
    ops with `up_to` are left out, but for those with `or_unknown`.
    """

    positions: int = 0
    above: int = 0
    up_to: int = 0
    or_unknown: bool = False

    def include(self, length: float) -> bool:
        """Whether the op is dispatched in contexts of so many positions. lists.js decides the same."""
        if length == inf and self.or_unknown:
            return True
        return length > self.above and (not self.up_to or length <= self.up_to)


ALWAYS = Contexts()


@dataclass(frozen=True)
class Op:
    """One dispatch: wgsl/<kernel>.wgsl, or the function <kernel> of cpu/, on these buffers.

    `params` are the kernel's #param values (compiled in), `consts` the fields of its Params struct,
    `bindings` name -> Buffer or Weight, `grid` the workgroup counts.
    """

    kernel: str
    params: dict[str, int | float | str]
    consts: dict[str, int | float]
    bindings: dict[str, Buffer | Weight]
    grid: tuple[int | PerToken, int | PerToken, int | PerToken]
    contexts: Contexts = ALWAYS


@dataclass(frozen=True)
class Embedding:
    """Where a model's embeddings are after the list EMBED, and after a pooling list that follows it.

    Buffers: `rows` (n, padded width), of every token; "pooled" (sequences, padded width); "ranked" (sequences, padded
    labels).
    """

    rows: str
    width: int
    pooling: str | None  # the metadata's default
    labels: int = 0  # of the classification head; 0: no head
    softmax: bool = False  # the labels' scores are to be normalised by softmax


@dataclass(frozen=True)
class DraftPlan:
    """What drafts in a plan: a draft model or a DFlash model (draft.py), or the model's MTP layer, assistant or EAGLE-3
    head (mtp.py)."""

    n_ctx: int  # positions that it may be used at
    cost: float  # the bytes that a step of it reads, of those that a step of the plan's own model reads
    most: int  # tokens of a draft
    sequences: int  # that it drafts for at a time
    computed_by_model: bool = False  # the model's lists compute what it reads; else it is a draft model, with own lists
    at_once: bool = False  # one step of it drafts all tokens; else each token takes one


@dataclass(frozen=True)
class DraftsFor:
    """What the plan of a draft model has in common with that of the model that it drafts for."""

    group: int  # the index of the page group that its caches are in
    n_vocab: int  # tokens of the model, at least as many as its own


@dataclass(frozen=True)
class DiffusionPlan:
    """How a diffusion model's predictions are read (diffusion.py)."""

    mask: int  # the token at the positions that are to be filled in
    shifted: bool  # the logits of a position are of the token after it


@dataclass
class Plan:
    """Everything about one loaded model that the executors need."""

    batch: int  # most tokens of a prefill step
    n_ctx: int
    n_vocab: int
    max_small_batch: int = SHORT_BATCH  # most tokens of a small batch
    page: int = PAGE  # positions of a page of the caches
    page_groups: list[PageGroup] = field(default_factory=list)
    weights: dict[str, Weight] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    lists: dict[str, list[Op]] = field(default_factory=dict)
    media_apart: bool = False  # MEDIA has other ops than PREFILL, and buffers of its own
    lazy: set[str] = field(default_factory=set)  # lists that are compiled when a request first needs them
    constants: dict[str, bytes] = field(default_factory=dict)  # contents of "state" buffers that never change
    embedding: Embedding | None = None
    adapters: Adapters = field(default_factory=Adapters)  # LoRA adapters and control vectors
    media_width: int = 0  # values of an embedding in place of a token (media.py); 0: none are expected
    encoders: dict[str, EncoderPlan] = field(default_factory=dict)  # of "image" and "audio", in a projector's plan
    draft: DraftPlan | None = None
    drafts_for: DraftsFor | None = None  # this is a draft model's plan, before it becomes part of another one
    diffusion: DiffusionPlan | None = None
    packs_prefixes: bool = False  # packed batches may have prompts whose beginning is in the caches (packing.py)
    decoder_start: int | None = None  # of an encoder-decoder model: the token that answers begin with

    @property
    def generates(self) -> bool:
        """Whether the model generates text; encoders do not."""
        return DECODE in self.lists

    @property
    def encodes_prompts(self) -> bool:
        """Whether an encoder reads the prompt, and a decoder writes the answer."""
        return self.decoder_start is not None

    @property
    def causal(self) -> bool:
        """Whether the model generates one token after the other, with caches; encoders and diffusion models do not."""
        return self.generates and self.diffusion is None

    def slots(self) -> tuple[dict[str, int], list[int]]:
        """Assign memory to the activations: buffer name -> slot, and the bytes of each slot.

        Two buffers share a slot if their lifetimes do not overlap in any list. Buffers of one op never share, so that
        no kernel reads what it writes. A buffer used by several lists is live throughout; a list with adapters and the
        same without count as one. Greedy: the largest buffer first, each into the first slot that is free over its
        lifetime. An encoder's stages follow each other: they count as one list. Steps run between slices of a prompt's
        list (replay.js), so they share no memory with it.
        """
        lives: dict[str, list[Span]] = {}
        places = self._stage_places()
        for name, ops in self.lists.items():
            split = name.startswith(SPLIT_ATTENTION)
            alike = plain(name) == PACKED or (plain(name) == MEDIA and not self.media_apart)
            if alike or (name.startswith(SIZES) and not split):
                continue  # the buffers of PREFILL, in the same order
            chain, begin = places.get(unsized(name), (unsized(name), 0))
            i = begin - 1
            for op in ops:
                i += op.kernel != "attention_merge"  # in PREFILL, one op does what two do in a list that is split
                for b in op.bindings.values():
                    if isinstance(b, Buffer) and b.pool == "activations":
                        spans = lives.setdefault(b.name, [])
                        if spans and spans[-1][0] == chain:
                            spans[-1] = (chain, spans[-1][1], i)
                        else:
                            spans.append((chain, i, i))
        for spans in lives.values():
            if len({plain(name) for name, _, _ in spans}) > 1:
                spans[:] = [("", 0, 0)]
        assigned: dict[str, int] = {}
        occupied: list[list[Span]] = []
        sizes: list[int] = []
        for b in sorted((self.buffers[n] for n in lives), key=lambda b: -b.nbytes):
            life = lives[b.name]
            free = (i for i, spans in enumerate(occupied) if not any(_overlap(a, s) for a in spans for s in life))
            slot = next(free, len(occupied))
            if slot == len(occupied):
                occupied.append([])
                sizes.append(0)
            assigned[b.name] = slot
            occupied[slot] += lives[b.name]
            sizes[slot] = max(sizes[slot], b.nbytes)
        return assigned, sizes

    def _stage_places(self) -> dict[str, tuple[str, int]]:
        """An encoder's lists: name -> (encoder, index of the list's first op in it)."""
        found: dict[str, tuple[str, int]] = {}
        for modality, encoder in self.encoders.items():
            at = 0
            for stage in encoder.stages:
                found[stage.list] = modality, at
                at += len(self.lists[stage.list])
        return found

    @property
    def recurrent(self) -> bool:
        """Whether layers have a state, which no position of a cache holds (states.py)."""
        return any(group.states for group in self.page_groups)

    def page_rows(self, group: PageGroup) -> int:
        """Rows of one page in a cache of its group."""
        return 1 if group.states else self.page

    def page_bytes(self, group: PageGroup) -> int:
        """Bytes of one page in all caches of its group."""
        return sum(self.page_sizes(group, group.caches))

    def page_sizes(self, group: PageGroup, caches: Sequence[str]) -> list[int]:
        """Bytes of one page in each of these caches of its group."""
        return [self.buffers[name].nbytes // group.pages for name in caches]

    def with_pages(self, group: PageGroup, pages: int) -> list[Buffer]:
        """The caches of a group with so many pages."""
        return [
            replace(b, shape=(pages * self.page_rows(group), *b.shape[1:]))
            for b in map(self.buffers.__getitem__, group.caches)
        ]

    def set_pages(self, group: PageGroup, pages: int) -> None:
        """Record that a group's caches have so many pages."""
        self.buffers |= {b.name: b for b in self.with_pages(group, pages)}
        group.pages = pages

    def dispatches(self, names: Iterable[str], context: float) -> int:
        """Dispatches of lists in contexts of so many positions."""
        return sum(op.contexts.include(context) for name in names for op in self.lists.get(name, []))

    def memory(self) -> dict[str, int]:
        """Bytes per pool."""
        weights = sum(w.nbytes for w in self.weights.values())
        kv, state = (self.pool_bytes(pool) for pool in ("kv", "state"))
        return {"weights": weights, "kv": kv, "activations": sum(self.slots()[1]), "state": state}

    def pool_bytes(self, pool: str) -> int:
        """Bytes of a pool's buffers if none share memory."""
        return sum(b.nbytes for b in self.buffers.values() if b.pool == pool)


def _overlap(a: Span, b: Span) -> bool:
    if a[0] == b[0]:
        return not a[0] or (a[1] <= b[2] and b[1] <= a[2])
    lists = {plain(a[0]), plain(b[0])}
    return "" in lists or (bool(lists & {PREFILL, MEDIA}) and not all(of_prompts(name) for name in lists))
