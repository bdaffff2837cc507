"""Ops of attention to compressed keys (DeepSeek V4, DeepSeek-AI 2026). Shapes as in ops.py.

All query heads share one head of keys, which are also the values. A token attends to the keys of a window, and to
compressed keys: each is a weighted mean over `ratio` positions that the token sees; with `overlaps`, also over the
`ratio` positions before them. Because keys are rotated, so is their sum: it is rotated back by the token's position.

The caches of one layer are
    k                   a key for each position of the window
    compressed.inputs   values, then scores of each position, f32, from which keys are compressed. In the window's pages
    compressed.keys     compressed keys, in the pages of the whole context (wgsl/lib/compressed_keys.wgsl)
An index that chooses some of the compressed keys compresses keys of its own in the same way (compressed.index).
A compressed key is written with the last of its positions. So a sequence can rewind to any position whose window is
there: what it computes from there on overwrites the keys after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from py_engine.plan.cache import Cache, Compressed, make_row_cache, page_group
from py_engine.plan.indexer import IndexShape, Scored, choose_scored
from py_engine.plan.latent_attention import Columns
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, PerToken, Plan, Weight
from py_engine.plan.rope import Rope

APPENDING_THREADS = 256  # of a workgroup of window_append.wgsl
COMPRESSING_THREADS = 256  # of compress.wgsl
ATTENDING_THREADS = 64  # of compressed_attention.wgsl
OVERLAPPING = 4  # the ratio whose keys are also means over the positions of the key before


@dataclass(frozen=True)
class CompressedShape:
    """Dimensions of one layer's attention. The last `rope` dimensions of a head rotate."""

    heads: int
    size: int  # of a query head and of a key
    rope: int
    window: int  # a token attends to itself and the window - 1 tokens before it
    ratio: int  # positions that a key compresses; 0: there are no such keys
    span: int  # the largest `reach` of all layers: they share the window's pages
    index: IndexShape | None = None  # of the index that chooses compressed keys, each of `pool` positions

    @property
    def overlaps(self) -> bool:
        """Whether a key is also a mean over the positions of the key before."""
        return self.ratio == OVERLAPPING

    @property
    def cols(self) -> int:
        """Values of a position from which keys are compressed; it has as many scores."""
        return self.size * (1 + self.overlaps) if self.ratio else 0

    @property
    def of_index(self) -> CompressedShape:
        """The shape of the layer's index: its heads, and their size."""
        assert self.index
        return replace(self, heads=self.index.heads, size=self.index.size)

    @property
    def reach(self) -> int:
        """How many of the last positions the layer reads in the window's pages."""
        return max(self.window, self.ratio * (1 + self.overlaps))


def make_compressed_cache(plan: Plan, layer: int, shape: CompressedShape, kind: str) -> Cache:
    """Create a layer's caches. Those of keys are f32 or f16."""
    near = page_group(plan, shape.span)
    cache = make_row_cache(plan, f"window.{layer}", shape.size, kind, near)
    if not shape.ratio:
        return cache
    found = _keys_cache(plan, f"{layer}", shape, kind)
    if shape.index and shape.index.chooses(plan):
        found = replace(found, index=_keys_cache(plan, f"index.{layer}", shape.of_index, "f32"))
    return replace(cache, compressed=found)


def _keys_cache(plan: Plan, name: str, shape: CompressedShape, kind: str) -> Compressed:
    step = gcd(shape.ratio, plan.page)
    keys = make_row_cache(plan, f"compressed.{name}", -(-shape.size // step), kind, page_group(plan, 0))
    inputs = make_row_cache(plan, f"compressor.{name}", 2 * shape.cols, "f32", page_group(plan, shape.span))
    return Compressed(keys.k, inputs.k, keys.paging["TABLE"], step)


@dataclass(frozen=True)
class Appended:
    """What a batch appends to the caches, and its queries, which the same op rotates. An index has no key."""

    q: Buffer  # (n, heads * size), normalised and rotated in place
    x: Buffer  # (n, ...): from column `first` on a key (size), then values and scores (2 * cols)
    first: int
    norm: Weight | None  # of the key
    rope: Rope


def append(ops: OpList, given: Appended, cache: Cache, shape: CompressedShape, eps: float) -> None:
    """Normalise and rotate queries and keys; append keys to the window, and what later keys are compressed from."""
    found = cache.compressed
    ops.add(
        "window_append",
        {"HEADS": shape.heads, "SIZE": shape.size, "ROPE": shape.rope, "INPUTS": 2 * shape.cols}
        | {"WG": APPENDING_THREADS, "KEYED": 1}
        | cache.layout
        | ops.state_params,
        {"x_stride": given.x.shape[1], "x_first": given.first, "y_stride": given.q.shape[1]}
        | {"rope_scale": given.rope.scale, "eps": eps},
        {"state": ops.state, "x": given.x, "norm": given.norm, "rope_freqs": given.rope.freqs}
        | {"y": given.q, "k_cache": cache.k}
        | ({"inputs": found.inputs} if found else {}),
        shape.heads + 1 + (found is not None),
        PerToken(),
    )


def append_to_index(ops: OpList, given: Appended, cache: Cache, shape: CompressedShape) -> None:
    """Rotate the index's queries; append what its keys are compressed from. `shape`: the index's (of_index)."""
    assert cache.compressed
    assert cache.compressed.index
    ops.add(
        "window_append",
        {"HEADS": shape.heads, "SIZE": shape.size, "ROPE": shape.rope, "INPUTS": 2 * shape.cols}
        | {"WG": APPENDING_THREADS, "KEYED": 0, "KV": "f32"}
        | cache.paging
        | ops.state_params,
        {"x_stride": given.x.shape[1], "x_first": given.first, "y_stride": given.q.shape[1]}
        | {"rope_scale": given.rope.scale, "eps": 0.0},
        {"state": ops.state, "x": given.x, "rope_freqs": given.rope.freqs, "y": given.q}
        | {"inputs": cache.compressed.index.inputs},
        shape.heads + 1,
        PerToken(),
    )


@dataclass(frozen=True)
class Compressor:
    """The weights that compress keys."""

    terms: Weight  # (ratio, cols): added to the scores of each of a key's positions
    norm: Weight  # (size): of the compressed key
    eps: float  # of this norm
    rope: Rope


def compress(ops: OpList, given: Compressor, cache: Cache, shape: CompressedShape) -> None:
    """Append the compressed keys whose last position is in the batch."""
    assert cache.compressed
    _compress(ops, given, cache.compressed, shape, cache.layout)


def choose(ops: OpList, given: Compressor, q: Buffer, weights: Columns, cache: Cache, shape: CompressedShape) -> Buffer:
    """Append the index's compressed keys; return the mask of the positions whose compressed keys a token attends to.

    `q` (n, heads * size): the index's rotated queries. `shape`: the index's (of_index).
    """
    assert cache.compressed
    found = cache.compressed.index
    assert found
    assert shape.index
    _compress(ops, given, found, shape, {"KV": "f32", **cache.paging})
    places = cache.paging | _key_places(found) | {"COMPRESSED": 1}
    return choose_scored(ops, Scored(q, weights, found.keys, places), shape.index)


def _compress(
    ops: OpList, given: Compressor, found: Compressed, shape: CompressedShape, layout: dict[str, int | float | str]
) -> None:
    ops.add(
        "compress",
        {"SIZE": shape.size, "ROPE": shape.rope, "RATIO": shape.ratio, "OVERLAPS": int(shape.overlaps)}
        | {"QUANT": given.terms.layout.fragment, "WG": COMPRESSING_THREADS}
        | _key_places(found)
        | layout
        | ops.state_params,
        {"rope_scale": given.rope.scale, "eps": given.eps},
        {"state": ops.state, "w": given.terms, "norm": given.norm, "rope_freqs": given.rope.freqs}
        | {"inputs": found.inputs, "c_cache": found.keys},
        PerToken(),
    )


@dataclass(frozen=True)
class Attended:
    """What attention reads beside queries and keys."""

    sinks: Weight  # (heads): attention sinks, scores without a value
    rope: Rope
    mask: Buffer | None = None  # (n, words): a bit for each position whose compressed key counts; None: all count


def attend(ops: OpList, q: Buffer, cache: Cache, shape: CompressedShape, given: Attended, scale: float) -> Buffer:
    """The weighted sums of keys, rotated back: (n, heads * size)."""
    mask = given.mask
    y, found = ops.rows("attn", shape.heads * shape.size), cache.compressed
    ops.add(
        "compressed_attention",
        {"SIZE": shape.size, "ROPE": shape.rope, "WINDOW": shape.window, "RATIO": shape.ratio}
        | {"WG": ATTENDING_THREADS, "INDEXED": mask.shape[1] if mask else 0}
        | (_key_places(found) if found else {})
        | cache.layout
        | ops.state_params,
        {"q_stride": q.shape[1], "y_stride": y.shape[1], "scale": scale},
        {"state": ops.state, "q": q, "sinks": given.sinks, "rope_freqs": given.rope.freqs, "k_cache": cache.k, "y": y}
        | ({"c_cache": found.keys} if found else {})
        | ({"index_mask": mask} if mask else {}),
        shape.heads,
        PerToken(),
    )
    return y


def _key_places(found: Compressed) -> dict[str, int]:
    """The #params of wgsl/lib/compressed_keys.wgsl that paging has not."""
    return {"KEY_TABLE": found.table, "STEP": found.step, "KEY_WIDTH": found.keys.shape[1]}
