"""Ops for short contexts: more workgroups for a key head, and products that join attention's splits themselves.

Both give a token the bits of the ops for any context, so its text does not depend on the context of others.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import decode_tiles, merged_splits
from py_engine.plan.decode_attention import MERGED_SPLITS
from py_engine.plan.ops import AttentionOptions, Ops
from py_engine.plan.plan import Buffer
from tests.support.kernels.bench import Bench, Setup, bench_of
from tests.support.kernels.checks import check

Pages = Callable[[str], tuple[Page, dict[str, Any]]]
ROUNDED = 2e-3  # normalised error: a value that lies between two bytes may be rounded to the other one


@pytest.fixture(autouse=True)
def _without_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where attention_decode.wgsl serves contexts of any length. test_decode_tiles.py has the other kernel."""
    monkeypatch.setattr(decode_tiles, "tile", lambda *_: None)


def attended(bench: Bench, pos: int, heads: tuple[int, int, int], window: int, sinks: bool) -> tuple[Ops, Buffer]:
    """Ops of one token at `pos`: its attention, and a product of bytes that is added to the rows that are returned."""
    n_head, n_kv, dim = heads
    ops = bench.begin(Setup(batch=1, n=1, pos=pos, n_ctx=1500))
    q, y = ops.rows("q", n_head * dim), ops.rows("y", 40)
    for b in (q, y):
        bench.fill(b)
    cache = bench.cache(n_kv * dim, "f16", window)
    options = AttentionOptions(0.2, window, sinks=bench.vector("sinks", n_head) if sinks else None)
    x = ops.attention(q, cache, heads, options)
    ops.linear(x, bench.weight("w", Q.Q8_0, 40, n_head * dim), None, y)
    return ops, y


@pytest.mark.parametrize(
    ("heads", "window", "sinks", "shares", "places"),
    [
        ((8, 2, 128), 0, False, [1, 4], (64, 255)),
        ((6, 2, 64), 0, True, [1, 3], (0, 63, 64, 254, 255)),
        ((4, 1, 256), 0, False, [2, 4], (0, 254)),
        ((4, 1, 256), 100, False, [4, 4], (63, 255)),  # a window is a short context
        ((3, 3, 96), 0, False, [1, 1], (0, 64)),
    ],
)
def test_a_short_context_gets_the_bits_of_any_other(
    heads: tuple[int, int, int],
    window: int,
    sinks: bool,
    shares: list[int],
    places: tuple[int, ...],
    kernel_pages: Pages,
) -> None:
    bench = bench_of("lavapipe: f16 subgroups", kernel_pages)
    bench = Bench(bench.page, replace(bench.device, software=False, dot8=True))
    for pos in places:
        ops, y = attended(bench, pos, heads, window, sinks)
        usual = [op for op in ops.ops if op.contexts.include(inf)]
        merged_splits.merge(ops.ops, bench.device)
        short = [op for op in ops.ops if op.contexts.include(pos + 1)]
        assert [op.kernel for op in usual] == ["attention_decode", "attention_combine", "matvec"]
        assert [op.kernel for op in short] == ["attention_decode", "matvec"]
        assert [op.params.get("SHARE", 1) for op in (usual[0], short[0])] == shares
        got = []
        for some in (usual, short):
            ops.ops[:] = some
            gpu, host = bench.run(ops)
            check(bench, gpu[y.name][:, :40], host[y.name][:, :40], ROUNDED)
            got.append(gpu[y.name][:, :40].view(np.uint32))
        assert (got[0] == got[1]).all()


def test_longer_contexts_have_the_usual_ops(kernel_pages: Pages) -> None:
    bench = bench_of("lavapipe: f16 subgroups", kernel_pages)
    bench = Bench(bench.page, replace(bench.device, software=False, dot8=True))
    ops, _ = attended(bench, 0, (8, 2, 128), 0, False)
    merged_splits.merge(ops.ops, bench.device)
    limit = MERGED_SPLITS * 64
    for context, share, kernels in (
        (limit, 4, ["attention_decode", "matvec"]),
        (limit + 1, 4, ["attention_decode", "attention_combine", "matvec"]),
        (1025, 2, ["attention_decode", "attention_combine", "matvec"]),
        (4097, 1, ["attention_decode", "attention_combine", "matvec"]),
    ):
        found = [op for op in ops.ops if op.contexts.include(context)]
        assert [op.kernel for op in found] == kernels
        assert found[0].params.get("SHARE", 1) == share
