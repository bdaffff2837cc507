"""Attention of one token that normalises and rotates its heads itself: against numpy, and bit by bit against the two
dispatches that small batches run. So a seeded text is the same alone and beside others.
"""

from dataclasses import dataclass, replace
from math import inf

import numpy as np
import pytest

from py_engine.cpu.attention import cache_views
from py_engine.plan import decode_attention, decode_tiles, tiles
from py_engine.plan.attention import ALONE
from py_engine.plan.cache import GROUP, Cache
from py_engine.plan.ops import AttentionOptions, HeadNorm, Ops
from py_engine.plan.pages import shift_index
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Pairs, Rope, frequencies, table
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check, tolerance
from tests.support.kernels.variants import IN_F32, in_turn

N_CTX, SEQUENCE = 192, 3
SUBGROUPS, PLAIN = IN_F32
F16, F16_SUBGROUPS = "lavapipe: f16", "lavapipe: f16 subgroups"
# Of each case.
DEVICES = [F16_SUBGROUPS, PLAIN, SUBGROUPS, F16, PLAIN, SUBGROUPS, F16, F16_SUBGROUPS, SUBGROUPS, PLAIN]
DEVICES += [SUBGROUPS, PLAIN, SUBGROUPS, PLAIN, F16_SUBGROUPS, SUBGROUPS]


@dataclass(frozen=True)
class Case:
    """A layer.

    `norm`: "head", "values" too, "after" the rotation, "across" heads, "own" weights and bias per head, a "single"
    weight per query head, of "queries" or "keys" alone.
    """

    heads: tuple[int, int, int]
    pos: int
    kv_type: str = "f16"
    norm: str = "head"
    rope_dim: int | None = None
    pairs: Pairs = Pairs.HALVES
    window: int = 0
    share: int = 1
    shifted: bool = False  # M-RoPE: after a picture, rotary positions differ from positions
    shares: bool = False  # another layer's cache: only queries

    def build(self, bench: Bench, known: float = 0) -> tuple[Ops, Cache, Buffer]:
        """The layer's ops, its cache and attention's result. The cache is NaN where it is not seen.

        `known`: what the host knows of the context; 0: its length.
        """
        n_head, n_kv, dim = self.heads
        ops = bench.begin(Setup(batch=1, n=1, pos=self.pos, n_ctx=N_CTX, seq=SEQUENCE))
        own_kv = 0 if self.shares else n_kv
        x = ops.rows("qkv", (n_head + 2 * own_kv) * dim)
        bench.fill(x)
        cache = bench.cache(n_kv * dim, self.kv_type)
        first = max(0, self.pos + 1 - self.window) if self.window else 0
        unseen = bench.cache_rows([*range(first), *range(self.pos + self.shares, N_CTX)], SEQUENCE, cache)
        for b in (cache.k, cache.v):
            if self.kv_type == "q8_0":
                _, scales = cache_views(bench.data[b.name], ops.plan.page, n_kv * dim)
                scales[unseen // ops.plan.page, unseen % ops.plan.page] = np.nan
            else:
                bench.data[b.name][unseen] = np.nan
        whole = self.norm in ("across", "own")
        single = self.norm == "single"
        weight = bench.vector("norm", n_head if single else (n_head + n_kv) * dim if whole else 2 * dim)
        bias = bench.vector("bias", weight.cols) if self.norm == "own" else None
        across, own, values, after = (self.norm == kind for kind in ("across", "own", "values", "after"))
        alone = self.norm if self.norm in ALONE else ""
        norm = HeadNorm(
            weight, bias, across_heads=across, layer_norm=own, norm_values=values, after_rotation=after, single=single,
            alone=alone,
        )  # fmt: skip
        rope_dim = dim if self.rope_dim is None else self.rope_dim
        freqs = ops.buffer("freqs", (dim // 2,), "u32", "state")
        shifts = shift_index(N_CTX, ops.plan.page) if self.shifted else None
        rope = Rope(rope_dim, self.pairs, freqs, 1.25, shifts)
        bench.data["freqs"] = np.frombuffer(table(frequencies(dim, 10000.0)), np.uint32).copy()
        q = ops.split_qkv(x, cache, (n_head, own_kv, dim), rope, norm, EPS)
        ops.quantize_cache(cache, own_kv * dim)
        y = ops.attention(q, cache, self.heads, AttentionOptions(dim**-0.5, self.window))
        ops.ops[:] = [op for op in ops.ops if op.contexts.include(known or self.pos + 1)]
        return ops, cache, y

    def stored(self, cache: np.ndarray, row: int, page: int) -> np.ndarray:
        """The values of one row of a cache."""
        if self.kv_type != "q8_0":
            return cache[row].astype(np.float32)
        values, scales = cache_views(cache, page, self.heads[1] * self.heads[2])
        at = row // page, row % page
        return values[at].reshape(-1, GROUP) * scales[at][:, None]


@in_turn(
    "case",
    [
        Case((4, 2, 64), 150),
        Case((2, 1, 128), 64, "f32", rope_dim=64, pairs=Pairs.NEIGHBOURS),  # a split of the newest position alone
        Case((2, 1, 256), 100, window=33),
        Case((3, 1, 20), 0, rope_dim=12),  # vectors of four halves
        Case((4, 1, 64), 127, "f16", "after", window=70, share=2),
        Case((2, 2, 80), 5, "f32", "own"),
        Case((4, 2, 32), 81, "f16", "across", share=2),
        Case((2, 2, 32), 191, "f32", "values", pairs=Pairs.IN_EACH_HALF),
        Case((2, 2, 128), 66, "q8_0", shifted=True),
        Case((2, 1, 256), 128, "q8_0", rope_dim=64, share=2),
        Case((2, 1, 256), 100, window=33, shares=True),
        Case((4, 2, 32), 0, "f32", share=2, shares=True),
        Case((4, 2, 32), 40, "f32", "single"),
        Case((4, 2, 32), 40, "f16", "queries"),
        Case((3, 1, 20), 9, "f32", "keys", pairs=Pairs.NEIGHBOURS),
        Case((2, 1, 128), 65, "q8_0", shares=True),
    ],
    DEVICES,
)
def test_heads_get_what_two_dispatches_compute(bench: Bench, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither reads the row that is written; keys and values of other positions stay as they are."""
    monkeypatch.setattr(tiles, "attention_share", lambda *_: case.share)
    ops, cache, y = case.build(bench)
    assert [op.kernel for op in ops.ops] == ["attention_decode", "attention_combine"]
    gpu, host = bench.run(ops)
    row = int(bench.cache_rows([case.pos], SEQUENCE, cache)[0])
    cols, limit = case.heads[0] * case.heads[2], 1e-5 if case.kv_type == "q8_0" else tolerance(bench)
    check(bench, gpu[y.name][:, :cols], host[y.name][:, :cols], limit)
    for b in (cache.k, cache.v):  # a value between two f16 or two bytes may round either way
        got, want = (case.stored(data[b.name], row, ops.plan.page) for data in (gpu, host))
        check(bench, got, want, max(limit, 1e-6))
    monkeypatch.setattr(decode_attention, "normalises", lambda *_: False)
    ops, cache, y = case.build(bench)
    assert [op.kernel for op in ops.ops] == ["norm_rope_append", "attention_decode", "attention_combine"]
    two, _ = bench.run(ops)
    for name in (y.name, cache.k.name, cache.v.name):
        assert (gpu[name].view(np.uint8) == two[name].view(np.uint8)).all(), name


@in_turn(
    "case, known",
    [
        (Case((4, 2, 64), 40), inf),
        (Case((4, 2, 64), 63), 70),
        (Case((4, 2, 64), 64), 70),
        (Case((4, 2, 64), 150), 151),
        (Case((4, 1, 32), 150, shares=True), inf),
    ],
    [SUBGROUPS],
)
def test_heads_are_the_same_beside_the_kernel_of_long_contexts(
    bench: Bench, case: Case, known: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dispatch normalises and rotates for that kernel, maybe once more: it stores the same key and value again."""
    bench.device = replace(bench.device, software=False)
    monkeypatch.setattr(decode_tiles, "ABOVE", 64)
    ops, cache, y = case.build(bench, known)
    assert [op.kernel for op in ops.ops][-3:] == ["norm_rope_append", "attention_decode_tiles", "attention_combine"]
    gpu, host = bench.run(ops)
    cols = case.heads[0] * case.heads[2]
    check(bench, gpu[y.name][:, :cols], host[y.name][:, :cols])
    monkeypatch.setattr(decode_attention, "normalises", lambda *_: False)
    ops, cache, y = case.build(bench, known)
    assert ops.ops[0].kernel == "norm_rope_append"
    two, _ = bench.run(ops)
    for name in (y.name, cache.k.name, cache.v.name):
        assert (gpu[name].view(np.uint8) == two[name].view(np.uint8)).all(), name
