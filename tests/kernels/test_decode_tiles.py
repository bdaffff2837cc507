"""Attention of a small batch in long contexts, where query heads share keys: attention_decode_tiles.wgsl."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from py_engine.plan import decode_tiles, latent_attention
from py_engine.plan.cache import page_group
from py_engine.plan.latent_attention import LatentShape
from py_engine.plan.ops import AttentionOptions, Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.shared_constants import MAX_STEPS
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import check
from tests.support.kernels.variants import in_turn

SUBGROUPS = ["lavapipe: f16 subgroups", "swiftshader: f32 subgroups"]
ALONE, SEVERAL = (257,), (600, 33, 511, 258)  # positions


@pytest.fixture(autouse=True)
def _threads(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What software GPUs are not asked to run: it takes them a while."""
    bench.device = replace(bench.device, software=False)
    monkeypatch.setattr(decode_tiles, "ABOVE", 64)


def attend(bench: Bench, ops: Ops, y: Buffer, cols: int, context: int) -> None:
    """Run the ops of a longest context, and check the first `cols` columns of y."""
    kernels = ["attention_decode", "attention_decode_tiles", "attention_combine"]
    assert [op.kernel for op in ops.ops][-3:] == kernels
    ops.ops[:] = [op for op in ops.ops if op.contexts.include(context)]
    alone = ops.batch == 1 and context > decode_tiles.ABOVE + MAX_STEPS
    assert [op.kernel for op in ops.ops] == (kernels[1:] if alone else kernels)
    gpu, host = bench.run(ops)
    parts = ops.ops[0].bindings["parts"].name
    assert np.array_equal(*(np.isnan(found[parts][..., :-2]) for found in (gpu, host)))  # the last two are unused
    check(bench, gpu[y.name][: bench.n, :cols], host[y.name][: bench.n, :cols])
    assert np.isnan(gpu[y.name][bench.n :]).all()


@in_turn(
    "heads, kv_type, places, soft_cap",
    [
        ((8, 2, 128), "f16", ALONE, 0.0),
        ((8, 2, 128), "f32", SEVERAL, 0.0),
        ((4, 2, 64), "f16", SEVERAL, 20.0),
        ((3, 1, 96), "f32", ALONE, 0.0),
        ((7, 1, 128), "f16", SEVERAL, 0.0),
        ((32, 2, 64), "f16", ALONE, 0.0),
        ((4, 1, 256), "f16", SEVERAL, 0.0),
        ((10, 2, 36), "f16", SEVERAL, 30.0),
        ((6, 1, 100), "f32", (64,), 0.0),
    ],
    SUBGROUPS,
)
def test_heads_that_share_keys(
    bench: Bench, heads: tuple[int, int, int], kv_type: str, places: tuple[int, ...], soft_cap: float
) -> None:
    n_head, n_head_kv, dim = heads
    several = len(places) > 1
    at = Setup(batch=len(places) + 1 if several else 1, n=len(places), pos=places[0], n_ctx=1000)
    ops = bench.begin(replace(at, places=tuple((pos, 3 - i) for i, pos in enumerate(places))) if several else at)
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    y = ops.attention(q, bench.cache(n_head_kv * dim, kv_type), heads, AttentionOptions(dim**-0.5, soft_cap=soft_cap))
    attend(bench, ops, y, n_head * dim, max(places) + 1)


@in_turn(
    "heads, rank, rope, kv_type, places",
    [
        (16, 512, 64, "f16", SEVERAL),
        (20, 512, 64, "f32", ALONE),
        (32, 256, 32, "f16", (300,)),
        (12, 512, 64, "f32", SEVERAL),
        (3, 36, 8, "f16", SEVERAL),
    ],
    SUBGROUPS,
)
def test_latents(bench: Bench, heads: int, rank: int, rope: int, kv_type: str, places: tuple[int, ...]) -> None:
    """A row is the key and, but for its first columns, the value of all heads."""
    several = len(places) > 1
    at = Setup(batch=len(places) + 1 if several else 1, n=len(places), pos=places[0], n_ctx=1000)
    ops = bench.begin(replace(at, places=tuple((pos, 3 - i) for i, pos in enumerate(places))) if several else at)
    shape = LatentShape(heads, rank, 8, rope, 8)
    q = ops.rows("q", heads * shape.row)
    bench.fill(q)
    cache = latent_attention.make_latent_cache(ops.plan, 0, shape, kv_type, page_group(ops.plan, 0))
    bench.fill(cache.k)
    y = ops.attention(q, cache, (heads, 1, shape.row), AttentionOptions(shape.row**-0.5, value_from=rope))
    attend(bench, ops, y, heads * shape.row, max(places) + 1)


@in_turn("context", [65, 64 + MAX_STEPS, inf], SUBGROUPS)
def test_a_context_that_is_shorter_than_the_host_knows(bench: Bench, context: float) -> None:
    """Of one of several steps in a submit, or of a step with drafts, whose context the host does not know."""
    for pos in (0, 63, 64):
        ops = bench.begin(Setup(batch=1, n=1, n_ctx=400, pos=pos))
        q = ops.rows("q", 8 * 64)
        bench.fill(q)
        y = ops.attention(q, bench.cache(2 * 64, "f16"), (8, 2, 64), AttentionOptions(0.2))
        ops.ops[:] = [op for op in ops.ops if op.contexts.include(context)]
        gpu, host = bench.run(ops)
        check(bench, gpu[y.name][:1, : 8 * 64], host[y.name][:1, : 8 * 64])


@in_turn("heads", [(4, 2, 64), (6, 1, 100)], SUBGROUPS)
def test_a_short_context_beside_a_longer_one(bench: Bench, heads: tuple[int, int, int]) -> None:
    """A token has the bits that it has beside shorter ones."""
    n_head, n_head_kv, dim = heads
    ops = bench.begin(Setup(batch=4, n=3, n_ctx=400, places=((63, 0), (64, 1), (300, 2))))
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    y = ops.attention(q, bench.cache(n_head_kv * dim, "f16"), heads, AttentionOptions(0.2))
    whole, found = list(ops.ops), []
    for context in (64, 301):
        ops.ops[:] = [op for op in whole if op.contexts.include(context)]
        gpu, host = bench.run(ops)
        found.append(gpu[y.name][:, : n_head * dim].view(np.uint32))
    check(bench, gpu[y.name][:3, : n_head * dim], host[y.name][:3, : n_head * dim])
    assert (found[0][0] == found[1][0]).all()
    assert (found[0][1] != found[1][1]).any()  # it has the other kernel
