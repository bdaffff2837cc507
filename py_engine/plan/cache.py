"""Where the keys and values of one layer lie.

A cache is divided into pages (pages.py). Rows are positions; an encoder's cache has no pages, only a row per position.
kind   "f16" or "f32": (rows, cols) of that type. "q8_0": groups of 32 signed bytes with one f32 scale each; a page
       holds the bytes of all its rows, then their scales. A batch is first written as f32, to `staged`: buffers of
       each list (Ops.staging), because decode steps run between slices of a prompt's list.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.plan.pages import MAX_GROUPS, PageGroup, pages_for, table_offset
from py_engine.plan.plan import Buffer, Plan
from py_engine.plan.shared_constants import MAX_STEPS, SHORT_BATCH
from py_engine.plan.states import States

KINDS = ("f16", "f32", "q8_0")
GROUP = 32  # values that share a scale
MAX_AHEAD = SHORT_BATCH * MAX_STEPS  # positions that the GPU may write beyond the last token read back

UNPAGED = {"PAGE": 0}  # the #params of an encoder's cache


@dataclass(frozen=True)
class Compressed:
    """The caches of one layer's compressed keys (compressed.py)."""

    keys: Buffer  # (rows, at least size / step): a key of `size` values takes `step` positions' columns
    inputs: Buffer  # (rows, 2 * cols), f32: values, then scores of each position
    table: int  # index in the state's tables of the first sequence's block table of `keys`
    step: int  # positions that share a place in the pages of `keys`
    index: Compressed | None = None  # the caches of the index that chooses some of the keys


@dataclass(frozen=True)
class Cache:
    """Keys and values of one layer. `paging`: the #params of lib/pages.wgsl."""

    k: Buffer
    v: Buffer
    kind: str
    paging: dict[str, int]
    cols: int = 0  # values of a row, in "q8_0"
    staged: tuple[Buffer, Buffer] | None = None
    states: States | None = None  # of a recurrent layer
    index: Buffer | None = None  # (rows, size): the keys of the index of sparse attention (index.py)
    compressed: Compressed | None = None  # beside the keys of a window

    @property
    def write_bindings(self) -> dict[str, Buffer]:
        """The buffers that the kernels computing keys and values write."""
        k, v = self.staged or (self.k, self.v)
        return {"k_cache": k, "v_cache": v}

    @property
    def read_bindings(self) -> dict[str, Buffer]:
        """The buffers that attention reads."""
        return {"k_cache": self.k, "v_cache": self.v}

    @property
    def staged_bindings(self) -> dict[str, Buffer]:
        """A batch's keys and values in f32, before they are quantized into a q8_0 cache."""
        assert self.staged is not None
        return {"k_new": self.staged[0], "v_new": self.staged[1]}

    @property
    def layout(self) -> dict[str, int | float | str]:
        """The #params of the kernels that read or write the cache."""
        return {"KV": self.kind, **self.paging}


NO_CACHE = Cache(Buffer("k", ()), Buffer("v", ()), "f32", UNPAGED)  # of a layer without keys and values


def page_group(plan: Plan, window: int) -> PageGroup:
    """The group of the layers with this window; 0: they read the whole context.

    Its caches start with the pages that one sequence needs: for the context, or for a window, a batch of the prompt or
    the tokens that the GPU runs ahead, and the parts of pages at both ends. A draft model's layers are in one group,
    which has the whole context.
    """
    most = pages_for(plan.n_ctx, plan.page)
    if window and plan.drafts_for is None:
        span = pages_for(window + max(plan.batch, MAX_AHEAD), plan.page) + 1
        most, window = min(most, span), window if span < most else 0
    else:
        window = 0
    known = next((group for group in plan.page_groups if group.window == window and not group.states), None)
    if known is None:
        assert len(plan.page_groups) < MAX_GROUPS
        index = len(plan.page_groups) if plan.drafts_for is None else plan.drafts_for.group
        known = PageGroup(index, window, most, most)
        plan.page_groups.append(known)
    return known


def _paging(plan: Plan, group: PageGroup) -> dict[str, int]:
    return {
        "PAGE": plan.page,
        "PAGES": pages_for(plan.n_ctx, plan.page),
        "TABLE": table_offset(plan.n_ctx, plan.page, group.index),
    }


def make_cache(plan: Plan, layer: int, cols: int, kind: str, group: PageGroup) -> Cache:
    """Create the cache of a layer with `cols` values per position. WispError if it cannot store them as `kind`."""
    if kind == "q8_0" and cols % GROUP:
        raise WispError(
            f"A q8_0 cache needs key/value rows of whole groups of {GROUP}; this model's have {cols}. Load it with "
            'kvType "f16".',
            "invalid_value",
            param="kvType",
        )
    width, dtype = (cols // 4 + cols // GROUP, "u32") if kind == "q8_0" else (cols, kind)
    k, v = (_buffer(plan, group, f"{name}.{layer}", width, dtype) for name in ("k", "v"))
    if kind != "q8_0":
        return Cache(k, v, kind, _paging(plan, group))
    return Cache(k, v, kind, _paging(plan, group), cols)


def make_conv_cache(plan: Plan, layer: int, cols: int, kind: str, group: PageGroup) -> Cache:
    """Create the cache of a short convolution's inputs, f32 or f16. `k` and `v` are the same buffer."""
    return make_row_cache(plan, f"conv.{layer}", cols, kind, group)


def make_encoder_cache(plan: Plan, name: str, cols: int) -> Cache:
    """Create the keys and values of an encoder's layer, f32, which are valid within the layer only. Layers share them.

    `name`: of the list.
    """
    k, v = (plan.buffers.setdefault(f"{name}.{b}", Buffer(f"{name}.{b}", (plan.n_ctx, cols))) for b in ("k", "v"))
    return Cache(k, v, "f32", UNPAGED)


def make_row_cache(plan: Plan, name: str, cols: int, kind: str, group: PageGroup) -> Cache:
    """Create a cache of one row per position, f32 or f16. `k` and `v` are the same buffer."""
    kind = "f32" if kind == "f32" else "f16"
    buffer = _buffer(plan, group, name, cols, kind)
    return Cache(buffer, buffer, kind, _paging(plan, group))


def _buffer(plan: Plan, group: PageGroup, name: str, cols: int, dtype: str) -> Buffer:
    group.caches.append(name)
    return plan.buffers.setdefault(name, Buffer(name, (group.pages * plan.page, cols), dtype, "kv"))
