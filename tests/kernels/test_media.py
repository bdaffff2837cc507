"""The kernels of batches with media, in variants: GPU against numpy.

Outputs start as NaN. NaN remains where a kernel does not write, and spreads where it reads too early.
"""

from dataclasses import replace

import numpy as np
import pytest

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import media
from py_engine.plan.lists import MEDIA
from py_engine.plan.ops import AttentionOptions, HeadNorm, Ops, Projection
from py_engine.plan.pages import shift_index
from py_engine.plan.rope import Pairs, Rope, RopeSpec, media_table, table
from py_engine.plan.shared_constants import FIRST_MEDIA_ID, SHORT_BATCH
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check, tolerance, with_matrices
from tests.support.kernels.variants import BOTH_ADAPTERS, in_pairs, in_turn

SECTIONS = {"following": ((3, 5, 6, 2), False), "in turns": ((6, 5, 4, 1), True)}
Records = tuple[tuple[int, int, int, int, int], ...]


def records(n: int, pos: int, spans: tuple[tuple[int, int], ...] = ()) -> Records:
    """Records of n tokens at `pos`: those of a span (first, end) see its end. All rotary positions differ."""
    ends = [next((end for first, end in spans if first <= pos + m < end), pos + m + 1) for m in range(n)]
    return tuple((end, 7 * m + 100, 5 * m + 40, 3 * m, m // 5) for m, end in enumerate(ends))


def with_media(bench: Bench, ops: Ops, width: int, n_embd: int) -> None:
    """Replace the list's ops by those for batches with media, and fill the embeddings."""
    media.add_list(ops, ops.layer_ends, width, n_embd)
    ops.ops[:] = bench.plan.lists[MEDIA]
    bench.fill(bench.plan.buffers["media"])


@in_pairs(("n", [1, 3, 31, 33]), ("cols", [32, 260]))
def test_embeddings_in_place_of_tokens(bench: Bench, n: int, cols: int) -> None:
    """Every second token belongs to media. Its embedding is given, also scaled, or the table's first row."""
    ops = bench.begin(Setup(batch=34, n=n, pos=3, vocab=9, records=records(n, 3)))
    bench.data["tokens"][0, 4::2] |= FIRST_MEDIA_ID
    x = ops.embed(bench.weight("table", Q.F32, 9, cols), scale=3.0)
    first = ops.embed(bench.weight("layers", Q.F32, 9, cols), scale=5.0, name="per_layer", media_row="first")
    scaled = ops.embed(bench.weight("scaled", Q.F32, 9, cols), scale=7.0, name="scaled", media_row="scaled")
    ops.end_layer(x)
    ops.end_layer(x)
    with_media(bench, ops, 3 * cols, cols)
    gpu, host = bench.run(ops)
    for name in (x.name, first.name, scaled.name):
        check(bench, gpu[name][:n, :cols], host[name][:n, :cols], 1e-10)
        assert np.isnan(gpu[name][n:]).all()


def mrope(bench: Bench, ops: Ops, sections: str) -> Rope:
    """A rotation of 32 dimensions by M-RoPE."""
    counts, turns = SECTIONS[sections]
    spec = RopeSpec(32, sections=counts, interleaved=turns)
    freqs = ops.buffer("freqs", (32,), "u32", "state")
    bench.data["freqs"] = np.frombuffer(table(spec.frequencies(None), spec.axes), np.uint32).copy()
    if sections == "following":  # pictures are rotated by their numbers, too
        numbered = ops.buffer(media_table("freqs"), freqs.shape, "u32", "state")
        bench.data[numbered.name] = np.frombuffer(table(spec.frequencies(None, 4), spec.axes), np.uint32).copy()
    return Rope(32, Pairs.HALVES, freqs, shifts=shift_index(bench.plan.n_ctx, bench.plan.page))


def rotate(bench: Bench, ops: Ops, sections: str, norm: bool) -> None:
    """Rotate 32 of 48 dimensions of four query heads and two key heads."""
    x = ops.rows("x", 64)
    bench.fill(x)
    cache = bench.cache(96, "f32")
    qk_norm = HeadNorm(bench.vector("qk", 96)) if norm else None
    projection = Projection([bench.weight("w", Q.F16, 8 * 48, 64)], norm=bench.vector("norm", 64), eps=EPS)
    ops.qkv(x, projection, cache, (4, 2, 48), mrope(bench, ops, sections), qk_norm)


@in_turn("n, sections, norm", [(33, "following", False), (31, "in turns", True), (3, "in turns", False)], BOTH_ADAPTERS)
def test_rotation_of_pictures(bench: Bench, n: int, sections: str, norm: bool) -> None:
    """Each pair is rotated by its own axis of the token's places."""
    pos = 30
    ops = bench.begin(Setup(batch=34, n=n, pos=pos, n_ctx=96, records=records(n, pos)))
    rotate(bench, ops, sections, norm)
    with_media(bench, ops, 64, 64)
    compare(bench, ops, n, [(pos + m, 0) for m in range(n)])


def compare(bench: Bench, ops: Ops, n: int, places: list[tuple[int, int]]) -> None:
    gpu, host = bench.run(ops)
    name = next(b.name for op in reversed(ops.ops) for k, b in op.bindings.items() if k == "y")
    check(bench, gpu[name][:n, :192], host[name][:n, :192])
    rows = np.concatenate([bench.cache_rows([at], seq) for at, seq in places])
    for cache in ("k.0", "v.0"):
        check(bench, gpu[cache][rows], host[cache][rows], max(tolerance(bench), 1e-6))


@in_turn(
    "n, places, norm",
    [(33, (), True), (1, (), False), (1, (), True), (3, ((5, 2), (9, 0), (40, 7)), False)],
    BOTH_ADAPTERS,
)
def test_rotation_of_text_after_pictures(bench: Bench, n: int, places: tuple[tuple[int, int], ...], norm: bool) -> None:
    """Tokens are rotated by their positions and their sequences' shifts."""
    batch = 34 if n > 3 else SHORT_BATCH if places else n
    setup = Setup(batch=batch, n=n, pos=20, n_ctx=96, seq=0 if places else 3, places=places)
    ops = bench.begin(setup)
    rotate(bench, ops, "in turns", norm)
    compare(bench, ops, n, list(places) or [(20 + m, 3) for m in range(n)])


def seen(bench: Bench, n: int, pos: int, window: int, heads: tuple[int, int, int], kv_type: str, whole: bool) -> None:
    """Compare attention in a batch with two pictures; the first has begun before it. Later positions hold NaN."""
    n_head, n_kv, dim = heads
    spans = ((pos - 2, pos + n // 3), (pos + n // 2, pos + n - 1))
    ops = bench.begin(Setup(batch=n + 1, n=n, pos=pos, n_ctx=192, records=records(n, pos, spans)))
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    cache = bench.cache(n_kv * dim, kv_type, window)
    for b in (cache.k, cache.v):
        bench.data[b.name][bench.cache_rows(range(pos + n, 192), cache=cache)] = np.nan
    y = ops.attention(q, cache, heads, AttentionOptions(dim**-0.5, window, whole_media=whole))
    with_media(bench, ops, 64, 64)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, : n_head * dim], host[y.name][:n, : n_head * dim])
    assert np.isnan(gpu[y.name][n:]).all()


@in_turn(
    "heads, n, pos, kv_type, window, whole",
    [
        ((3, 1, 32), 64, 2, "f16", 0, True),
        ((4, 2, 64), 33, 31, "f32", 0, True),
        ((2, 1, 32), 60, 20, "f16", 9, True),
        ((2, 1, 32), 31, 20, "f32", 0, False),
    ],
    BOTH_ADAPTERS,
)
def test_attention_to_whole_pictures(
    bench: Bench, heads: tuple[int, int, int], n: int, pos: int, kv_type: str, window: int, whole: bool
) -> None:
    """A token of a picture sees all of it, and nothing before its own window."""
    seen(Bench(bench.page, replace(bench.device, software=True)), n, pos, window, heads, kv_type, whole)


@pytest.mark.parametrize(("n", "pos", "window"), [(33, 31, 0), (60, 20, 9)])
def test_attention_to_whole_pictures_with_matrices(
    plain_bench: Bench, n: int, pos: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = (4, 2, 32)
    seen(with_matrices(plain_bench, heads, monkeypatch), n, pos, window, heads, "f16", True)
