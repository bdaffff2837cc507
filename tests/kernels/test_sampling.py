"""The samplers' kernels against the numpy samplers. tests/unit/test_samplers.py checks those.

Both must give the same token for every combination of parameters, the same shaped logits, the same log-probabilities.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from py_engine.plan import sampler_ops
from py_engine.plan.ops import Ops
from py_engine.plan.sampling import Sampling
from py_engine.plan.shared import LOGPROB_ROWS, MAX_LOGPROBS
from tests.support.kernels.bench import Bench, Setup, bench_of, nmse
from tests.support.kernels.checks import give

POS, N = 40, 3  # the batch whose last token's logits these are
SEQ = 3  # its sequence
PLAIN = [
    Sampling(temperature=0),
    Sampling(),
    Sampling(temperature=0.7, top_k=5),
    Sampling(temperature=1.5, top_p=0.8),
    Sampling(min_p=0.1),
    Sampling(temperature=0.9, top_k=40, top_p=0.95, min_p=0.05),
    Sampling(top_k=1),
    Sampling(top_p=0.0),
]
SHAPED = [
    Sampling(presence_penalty=1.5, frequency_penalty=-0.5, repeat_penalty=1.3, repeat_last_n=20),
    Sampling(temperature=0, repeat_penalty=1.8, repeat_last_n=-1, logit_bias=((0, 3.0), (2, -100.0), (30, 9.0))),
    Sampling(temperature=0.8, typical_p=0.6),
    Sampling(typical_p=0.9, top_k=20, top_p=0.9, min_p=0.02),
    Sampling(xtc_probability=1.0, xtc_threshold=0.03),
    Sampling(xtc_probability=1.0, xtc_threshold=0.0),
    Sampling(typical_p=0.0),
    Sampling(top_n_sigma=1.0),
    Sampling(top_n_sigma=2.5, top_k=30, top_p=0.7, logit_bias=((2, -100.0),)),
    Sampling(temperature=1.4, top_n_sigma=2.0, top_p=0.8),
    Sampling(temperature=0, xtc_probability=0.5, xtc_threshold=0.01, typical_p=0.95),
    Sampling(dry_multiplier=2.0, dry_base=1.75, dry_allowed_length=1),
    Sampling(temperature=0, dry_multiplier=0.8, dry_base=3.0, dry_penalty_last_n=15, dry_breakers=(1,)),
    Sampling(
        temperature=1.2, top_k=50, top_p=0.9, min_p=0.01, typical_p=0.9, presence_penalty=0.3, frequency_penalty=0.2,
        repeat_penalty=1.1, dry_multiplier=1.0, dry_breakers=(3, 31), xtc_probability=0.7, xtc_threshold=0.05,
        logit_bias=((5, -2.0),),
    ),
]  # fmt: skip


@pytest.fixture(params=["swiftshader: f32", "swiftshader: f32 subgroups", "lavapipe: f16 subgroups"])
def bench(request: pytest.FixtureRequest, kernel_pages: Callable[[str], tuple[Page, dict[str, Any]]]) -> Bench:
    """A bench per variant that matters: these kernels have no f16 code, and compile slowly on lavapipe."""
    return bench_of(request.param, kernel_pages)


def prepare(bench: Bench, vocab: int, sampling: Sampling, seed: int, shaped: bool, masked: bool = False) -> Ops:
    """A sampler over random logits, after a history with repetitions."""
    ops = bench.begin(Setup(batch=1, n=N, pos=POS, vocab=vocab, seed=seed, seq=SEQ))
    logits = ops.buffer("logits", (vocab,))
    bench.fill(logits)[:] *= 3
    sampler_ops.sample(ops, logits, shaped)
    if masked:
        sampler_ops.resample(ops, logits, shaped)
    bench.data["tokens"][SEQ, : POS + N] = bench.random.integers(0, min(vocab, 4), POS + N)
    answer = POS - 10
    give(bench, SEQ, sampling, answer, seed)
    if shaped:
        bench.data["bias"] = np.frombuffer(sampling.biases(vocab), np.float32).copy()
        bench.data["breakers"] = np.frombuffer(sampling.breaker_bits(vocab), np.uint32).copy()
    return ops


def within(sampling: Sampling, vocab: int) -> Sampling:
    """The sampling without biases and breakers that a small vocabulary lacks."""
    bias = tuple((token, value) for token, value in sampling.logit_bias if token < vocab)
    return replace(sampling, logit_bias=bias, dry_breakers=tuple(t for t in sampling.dry_breakers if t < vocab), seed=7)


@pytest.mark.parametrize("vocab", [1, 31, 257, 4096])
@pytest.mark.parametrize("sampling", PLAIN, ids=range(len(PLAIN)))
def test_sample(bench: Bench, vocab: int, sampling: Sampling) -> None:
    """The token equals numpy's, whose filters sort in float64; the state advances."""
    ops = prepare(bench, vocab, within(sampling, vocab), 0, False)
    gpu, host = bench.run(ops)
    assert gpu["tokens"][SEQ, POS + N] == host["tokens"][SEQ, POS + N] < vocab
    assert (gpu["state"] == host["state"]).all()


@pytest.mark.parametrize("vocab", [1, 3, 33, 1025, 2500])
def test_shaped(bench: Bench, vocab: int) -> None:
    """Every parameter of a request; one token for each set of parameters, with its own seed."""
    for number, sampling in enumerate(SHAPED + PLAIN):
        ops = prepare(bench, vocab, within(sampling, vocab), number, True)
        gpu, host = bench.run(ops)
        allowed = host["shaped"] > -1e29
        assert (allowed == (gpu["shaped"] > -1e29)).all(), sampling
        assert nmse(gpu["shaped"][allowed], host["shaped"][allowed]) < 1e-10, sampling
        assert (gpu["best"][:, 1] == host["best"][:, 1]).all(), sampling
        assert gpu["tokens"][SEQ, POS + N] == host["tokens"][SEQ, POS + N] < vocab, sampling
        assert (gpu["state"] == host["state"]).all()


@pytest.mark.parametrize("spread", [0.001, 0.5, 8.0])
def test_pool_or_all(bench: Bench, spread: float) -> None:
    """Logits so close together that the bound needs all of them, or so far apart that the pool is enough."""
    some = [*PLAIN, Sampling(top_k=700), Sampling(top_k=8999, top_p=0.5), Sampling(top_p=0.999), *SHAPED]
    for number, sampling in enumerate(some):
        ops = prepare(bench, 9001, within(sampling, 9001), number, sampling.is_shaped)
        bench.data["logits"] *= spread / 3
        gpu, host = bench.run(ops)
        assert gpu["tokens"][SEQ, POS + N] == host["tokens"][SEQ, POS + N], sampling


@pytest.mark.parametrize("vocab", [3, 257, 1023])
def test_mask(bench: Bench, vocab: int) -> None:
    """An allowed token stays. A rejected token is counted, and replaced by one sampled among the allowed tokens."""
    again = set()
    for seed, sampling in enumerate([Sampling(temperature=0), Sampling(), Sampling(top_k=3, top_p=0.9, typical_p=0.8)]):
        for share in (0.5, 0.95, 2 / vocab):
            ops = prepare(bench, vocab, replace(sampling, seed=seed), seed, sampling.is_shaped, True)
            bits = bench.random.random(-(-vocab // 32) * 32) < share
            bits[vocab - 1] = True
            bench.data["mask"] = np.packbits(bits, bitorder="little").view(np.uint32)
            gpu, host = bench.run(ops)
            assert gpu["tokens"][SEQ, POS + N] == host["tokens"][SEQ, POS + N] < vocab
            assert bits[gpu["tokens"][SEQ, POS + N]]
            assert (gpu["state"] == host["state"]).all()
            again.add(int(gpu["state"][2]))
    assert again == {0, 1}


@pytest.mark.parametrize(("vocab", "n"), [(1, 0), (3, 20), (255, 1), (1025, 20)])
def test_logprobs(bench: Bench, vocab: int, n: int) -> None:
    ops = bench.begin(Setup(batch=1, n=1, pos=LOGPROB_ROWS + 5, n_ctx=LOGPROB_ROWS + 8, vocab=vocab, seq=SEQ))
    logits = ops.buffer("logits", (vocab,))
    values = bench.fill(logits)
    values[:] *= 3
    values[vocab // 2 :] = values[vocab // 2]  # among equals, the first wins
    sampler_ops.logprobs(ops, logits)
    give(bench, SEQ, Sampling(logprobs=n))
    gpu, host = bench.run(ops)
    got, want = gpu["logprobs"][5], host["logprobs"][5]
    count = 1 + min(n, vocab, MAX_LOGPROBS)
    assert (got[:count, 0] == want[:count, 0]).all()
    assert (got[count : 1 + n, 0] == 0xFFFFFFFF).all()
    floats, expected = (np.ascontiguousarray(rows[:count, 1]).view(np.float32) for rows in (got, want))
    assert np.abs(floats - expected).max() < 1e-5
    assert (np.delete(gpu["logprobs"], 5, 0) == 0xFFFFFFFF).all()
