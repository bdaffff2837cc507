"""Attention of a prompt in the tiles of a GPU without subgroup matrices: software GPUs against numpy.

Outputs start as NaN, as do cached rows after the end.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from py_engine.plan import attention_tiles, tiles
from py_engine.plan.ops import AttentionOptions
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import check
from tests.support.kernels.variants import in_turn

VARIANTS = ["lavapipe: f16 subgroups", "lavapipe: f32", "swiftshader: f32"]
Heads = tuple[int, int, int]


def attend(
    bench: Bench, heads: Heads, n: int, pos: int, kv_type: str, options: AttentionOptions, n_ctx: int = 384
) -> None:
    """Compare attention of n tokens from `pos` on with numpy's."""
    n_head, n_kv, dim = heads
    ops = bench.begin(Setup(batch=max(2, n), n=n, pos=pos, n_ctx=n_ctx, page=64))
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    cache = bench.cache(n_kv * dim, kv_type)
    for b in (cache.k, cache.v) if kv_type != "q8_0" else ():
        bench.data[b.name][bench.cache_rows(range(pos + n, n_ctx))] = np.nan
    y = ops.attention(q, cache, heads, options)
    assert [op.kernel for op in ops.ops] == ["attention"]
    gpu, host = bench.run(ops)
    limit = 1e-5 if kv_type == "q8_0" else None  # whose random scales make large scores
    check(bench, gpu[y.name][:n, : n_head * dim], host[y.name][:n, : n_head * dim], limit)
    assert np.isnan(gpu[y.name][n:]).all()


def on_gpu(bench: Bench, *measured: tuple[str, Sequence[int]]) -> Bench:
    """The bench of a device that is planned for as a GPU, with `measured` tiles."""
    device = replace(bench.device, software=False, max_threads=256)
    for key, tile in measured:
        device = tiles.with_tile(device, key, tuple(tile))
    return Bench(bench.page, device)


@in_turn(
    "heads, n, pos, kv_type, storage",
    [
        ((4, 2, 64), 65, 0, "f16", 32768),
        ((2, 1, 64), 33, 100, "f32", 32768),
        ((3, 1, 64), 31, 257, "q8_0", 32768),
        ((2, 2, 80), 63, 31, "f16", 32768),
        ((2, 1, 128), 257, 5, "f16", 32768),
        ((8, 1, 128), 3, 128, "f32", 32768),
        ((2, 1, 256), 33, 65, "f16", 32768),
        ((1, 1, 256), 1, 64, "f32", 16384),
        ((4, 1, 64), 257, 90, "f16", 16384),
        ((2, 1, 72), 31, 65, "f32", 16384),
        ((1, 1, 96), 65, 0, "f16", 16384),
        ((71, 1, 32), 3, 40, "f16", 32768),
    ],
    VARIANTS,
)
def test_shapes(bench: Bench, heads: Heads, n: int, pos: int, kv_type: str, storage: int) -> None:
    """Batches and contexts that are no whole tiles, in the workgroup memory of different devices."""
    bench = on_gpu(bench)
    bench = Bench(bench.page, replace(bench.device, max_workgroup_storage=storage))
    attend(bench, heads, n, pos, kv_type, AttentionOptions(heads[2] ** -0.5))


@in_turn(
    "heads, tile",
    [
        ((4, 1, 64), (64, 32, 128, 4, 4, 1, 1)),
        ((4, 1, 64), (64, 32, 128, 4, 4, 0, 0)),
        ((2, 2, 32), (128, 32, 128, 8, 8, 2, 1)),
        ((2, 1, 64), (64, 64, 256, 4, 4, 2, 1)),
        ((2, 1, 64), (32, 32, 128, 2, 4, 2, 0)),
        ((2, 1, 128), (64, 16, 128, 2, 4, 2, 1)),
        ((2, 1, 64), (32, 32, 64, 4, 4, 1, 0)),
    ],
    ["lavapipe: f16 subgroups", "lavapipe: f16"],
)
def test_measured_tiles(bench: Bench, heads: Heads, tile: tuple[int, ...]) -> None:
    """Other tiles than the usual one, of more workgroup memory, too."""
    key = attention_tiles.key(heads[2], heads[0] // heads[1])
    bench = on_gpu(bench, (key, tile))
    assert dict(bench.device.tiles)[key] == tile
    attend(bench, heads, 140, 69, "f16", AttentionOptions(heads[2] ** -0.5))
