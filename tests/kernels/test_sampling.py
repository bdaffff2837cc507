"""The samplers' kernels against the numpy samplers. tests/unit/test_samplers.py checks those.

Both must give the same token for every combination of parameters, the same shaped logits, the same log-probabilities.
A row of a small batch must give exactly what it gives alone.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from py_engine.plan import sampler_ops
from py_engine.plan.ops import Ops
from py_engine.plan.sampler_ops import Sampler
from py_engine.plan.sampling import Sampling
from py_engine.plan.shared_constants import BUCKETS, LOGPROB_ROWS, MAX_LOGPROBS, SHORT_BATCH
from tests.support.kernels.bench import Bench, Setup, nmse
from tests.support.kernels.checks import give
from tests.support.kernels.variants import CACHED, SWIFTSHADER, in_pairs, in_turn

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
    Sampling(top_p=0.999999),
    Sampling(temperature=0.8, typical_p=0.6),
    Sampling(typical_p=0.9, top_k=20, top_p=0.9, min_p=0.02),
    Sampling(typical_p=0.0),
    Sampling(typical_p=0.2, top_p=0.3),
    Sampling(temperature=1.3, typical_p=0.999),
    Sampling(xtc_probability=1.0, xtc_threshold=0.03),
    Sampling(xtc_probability=1.0, xtc_threshold=0.0),
    Sampling(xtc_probability=1.0, xtc_threshold=0.5),
    Sampling(top_n_sigma=1.0),
    Sampling(temperature=1.4, top_n_sigma=2.0, top_p=0.8),
    Sampling(temperature=0, xtc_probability=0.5, xtc_threshold=0.01, typical_p=0.95),
    Sampling(temperature=0.9, dynatemp_range=0.8),
    Sampling(temperature=0.2, dynatemp_range=1.5, dynatemp_exponent=0.5, top_k=40, typical_p=0.9),
    Sampling(temperature=0, dynatemp_range=0.9, dynatemp_exponent=2.0, xtc_probability=1.0, xtc_threshold=0.03),
]
SHAPED = [
    Sampling(presence_penalty=1.5, frequency_penalty=-0.5, repeat_penalty=1.3, repeat_last_n=20),
    Sampling(temperature=0, repeat_penalty=1.8, repeat_last_n=-1, logit_bias=((0, 3.0), (2, -100.0), (30, 9.0))),
    Sampling(top_n_sigma=2.5, top_k=30, top_p=0.7, logit_bias=((2, -100.0),)),
    Sampling(dynatemp_range=1.0, dynatemp_exponent=1.35, logit_bias=((2, 100.0),)),
    Sampling(temperature=0, logit_bias=tuple((token, 0.5 * (token % 9)) for token in range(2000, 2, -3))),
    Sampling(dry_multiplier=2.0, dry_base=1.75, dry_allowed_length=1),
    Sampling(temperature=0, dry_multiplier=0.8, dry_base=3.0, dry_penalty_last_n=15, dry_breakers=(1,)),
    Sampling(
        temperature=1.2, top_k=50, top_p=0.9, min_p=0.01, typical_p=0.9, presence_penalty=0.3, frequency_penalty=0.2,
        repeat_penalty=1.1, dry_multiplier=1.0, dry_breakers=(3, 31), xtc_probability=0.7, xtc_threshold=0.05,
        logit_bias=((5, -2.0),), dynatemp_range=0.5,
    ),
]  # fmt: skip
LARGE = [
    *PLAIN,
    Sampling(xtc_probability=1.0, xtc_threshold=1e-9),
    Sampling(xtc_probability=1.0, xtc_threshold=0.0, logit_bias=((2, -100.0),)),
    Sampling(top_k=700),
    Sampling(top_k=8999, top_p=0.5),
    Sampling(top_k=8999, typical_p=0.7, xtc_probability=1.0, xtc_threshold=0.001),
    Sampling(top_n_sigma=1.5, typical_p=0.5, top_p=0.5, min_p=0.3),
]


# These kernels have no f16 code, and compile slowly on lavapipe.
DEVICES = [*SWIFTSHADER, "lavapipe: f16 subgroups"]


def prepare(bench: Bench, logits: np.ndarray, sampling: Sampling, seed: int, mask: np.ndarray | None = None) -> Ops:
    """A sampler over one row of logits, after a history with repetitions."""
    vocab = len(logits)
    ops = bench.begin(Setup(batch=1, n=N, pos=POS, vocab=vocab, seed=seed, seq=SEQ))
    row = ops.buffer("logits", (vocab,))
    bench.data["logits"] = logits.astype(np.float32)
    sampler_ops.sample(ops, row, Sampler(sampling.filters, sampling.is_shaped))
    if mask is not None:
        sampler_ops.sample(ops, row, Sampler(sampling.filters, masked=True))
    bench.data["tokens"][SEQ, : POS + N] = history(bench, vocab)
    bench.data["histogram"] = np.zeros((1, BUCKETS, 4), np.uint32)
    give(bench, SEQ, sampling, POS - 10, seed, mask)
    return ops


def history(bench: Bench, vocab: int) -> np.ndarray:
    return bench.random.integers(0, min(vocab, 4), POS + N)


def normal(vocab: int, seed: int, spread: float = 3.0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(vocab).astype(np.float32) * np.float32(spread)


def peaked(vocab: int, seed: int) -> np.ndarray:
    """Logits like a trained model's: a few likely tokens far above the others."""
    logits = normal(vocab, seed, 2.5)
    some = np.random.default_rng(seed).integers(0, vocab, 30)
    logits[some] += np.linspace(18, 6, 30, dtype=np.float32)
    return logits


def within(sampling: Sampling, vocab: int) -> Sampling:
    """The sampling without biases and breakers that a small vocabulary lacks."""
    bias = tuple((token, value) for token, value in sampling.logit_bias if token < vocab)
    return replace(sampling, logit_bias=bias, dry_breakers=tuple(t for t in sampling.dry_breakers if t < vocab), seed=7)


def check_token(bench: Bench, ops: Ops, sampling: Sampling) -> int:
    """Run a sampler; the token is numpy's, whose filters sort in float64, and the state advances. Returns the token."""
    gpu, host = bench.run(ops)
    vocab = bench.plan.n_vocab
    token = int(gpu["tokens"][SEQ, POS + N])
    assert token == host["tokens"][SEQ, POS + N] < vocab, sampling
    assert (gpu["state"] == host["state"]).all()
    assert not gpu.get("histogram", np.zeros(1)).any(), "the next step needs it empty"
    if sampling.is_shaped:
        allowed = host["shaped"] > -1e29
        assert (allowed == (gpu["shaped"] > -1e29)).all(), sampling
        assert nmse(gpu["shaped"][allowed], host["shaped"][allowed]) < 1e-10, sampling
    return token


NARROW, WIDE = (1, 31, 5), (257, 4096)  # vocabularies of fewer tokens than a workgroup has threads, and of more


@in_turn(
    "sampling, vocab",
    [(s, sizes[i % len(sizes)]) for i, s in enumerate(PLAIN) for sizes in (NARROW, WIDE)],
    DEVICES,
)
def test_sample(bench: Bench, vocab: int, sampling: Sampling) -> None:
    sampling = within(sampling, vocab)
    check_token(bench, prepare(bench, normal(vocab, 0), sampling, 0), sampling)


@in_turn("vocab", [1, 3, 33, 1025, 2500], DEVICES)
def test_shaped(bench: Bench, vocab: int) -> None:
    """Bias, penalties and DRY, with and without filters; one token for each set of parameters, with its own seed."""
    for number, sampling in enumerate(within(s, vocab) for s in SHAPED):
        check_token(bench, prepare(bench, normal(vocab, number), sampling, number), sampling)


@in_turn("kind", ["flat", "normal", "peaked", "levels", "far"])
def test_large_vocabulary(bench: Bench, kind: str) -> None:
    """Logits close together, with many ties, or far apart: the bound is among thousands of logits, or among few."""
    for number, sampling in enumerate(within(s, 9001) for s in LARGE):
        logits = {
            "flat": normal(9001, number, 0.001),
            "normal": normal(9001, number, 0.5),
            "peaked": peaked(9001, number),
            "levels": np.round(normal(9001, number, 2.0)),
            "far": normal(9001, number, 100.0) - 400,
        }[kind]
        check_token(bench, prepare(bench, logits, sampling, number), sampling)


@pytest.mark.slow
@in_turn("vocab", [128256, 262144])
def test_the_largest_vocabularies(bench: Bench, vocab: int) -> None:
    rows = normal(vocab, 1, 1.0), peaked(vocab, 2)
    for number, sampling in enumerate((PLAIN[5], Sampling(top_p=0.95), Sampling(typical_p=0.9), Sampling(top_k=1000))):
        check_token(bench, prepare(bench, rows[number % 2], sampling, number), sampling)


@in_turn("vocab", [5, 1500])
def test_equal_logits(bench: Bench, vocab: int) -> None:
    """Every filter keeps tokens that tie with its bound, so all of them may be sampled."""
    for sampling in (within(s, vocab) for s in (*PLAIN, *SHAPED)):
        check_token(bench, prepare(bench, np.zeros(vocab), sampling, 3), sampling)


@in_turn("value", [np.nan, -np.inf, -1e30])
def test_rows_without_a_likeliest_token(bench: Bench, value: float) -> None:
    """The token is inside the vocabulary whatever the logits are."""
    for sampling in (within(s, 1500) for s in PLAIN):
        gpu, _ = bench.run(prepare(bench, np.full(1500, value), sampling, 1))
        assert gpu["tokens"][SEQ, POS + N] < 1500
        logits = np.full(1500, value, np.float32)
        logits[777] = 1.0
        gpu, _ = bench.run(prepare(bench, logits, sampling, 1))
        assert gpu["tokens"][SEQ, POS + N] == 777, sampling


@in_turn("vocab", [3, 257, 1023], DEVICES)
def test_mask(bench: Bench, vocab: int) -> None:
    """An allowed token stays. A rejected token is counted, and replaced by one sampled among the allowed tokens."""
    again = set()
    some = [Sampling(temperature=0), Sampling(), Sampling(top_k=3, top_p=0.9, typical_p=0.8), SHAPED[0]]
    for seed, sampling in enumerate(replace(s, seed=seed) for seed, s in enumerate(2 * some)):
        for fraction in (0.5, 0.95, 2 / vocab):
            mask = np.random.default_rng([seed, int(9 * fraction)]).random(vocab) < fraction
            mask[vocab - 1] = True
            ops = prepare(bench, normal(vocab, seed), sampling, seed, mask)
            gpu, host = bench.run(ops)
            assert gpu["tokens"][SEQ, POS + N] == host["tokens"][SEQ, POS + N] < vocab
            assert mask[gpu["tokens"][SEQ, POS + N]]
            assert (gpu["state"] == host["state"]).all()
            again.add(int(gpu["state"][2]))
    assert again == {0, 1}


def tokens_of_batch(
    bench: Bench, logits: np.ndarray, places: Sequence[tuple[int, int]], samplings: Sequence[Sampling], masks: bool
) -> tuple[list[int], np.ndarray]:
    """Sample a row for each place in one batch: tokens and log-probabilities. Checked against numpy."""
    vocab = logits.shape[1]
    ops = bench.begin(Setup(batch=SHORT_BATCH, n=len(places), places=places, vocab=vocab))
    rows = ops.rows("logits", vocab)
    bench.fill(rows)[: len(places), :vocab] = logits
    filters = max(s.filters for s in samplings)
    sampler_ops.sample(ops, rows, Sampler(filters, any(s.is_shaped for s in samplings)))
    if masks:
        sampler_ops.sample(ops, rows, Sampler(filters, masked=True))
    sampler_ops.logprobs(ops, rows)
    bench.data["each.histogram"] = np.zeros((SHORT_BATCH, BUCKETS, 4), np.uint32)
    for (at, seq), sampling in zip(places, samplings, strict=True):
        bench.data["tokens"][seq] = np.random.default_rng(seq).integers(0, 5, bench.data["tokens"].shape[1])
        allowed = np.random.default_rng(seq).random((vocab,)) < 0.3
        give(bench, seq, sampling, at // 2, seq, mask=allowed if masks and seq % 2 == 1 else None)
    gpu, host = bench.run(ops)
    assert (gpu["tokens"] == host["tokens"]).all()
    assert (gpu["state"] == host["state"]).all()
    return [int(gpu["tokens"][seq, at + 1]) for at, seq in places], np.array(
        [gpu["logprobs"][s, a + 1] for a, s in places]
    )


@in_turn("vocab, masks", [(2500, True), (33, False)])
def test_a_row_gives_what_it_gives_alone(bench: Bench, vocab: int, masks: bool) -> None:
    """Rows with any parameters side by side, and each by itself."""
    places = ((7, 3), (30, 0), (0, 5), (22, 1), (11, 2), (40, 6), (9, 7))
    samplings = [
        Sampling(temperature=0, logprobs=3),
        PLAIN[5],
        Sampling(seed=5, temperature=1.5, logprobs=20),
        SHAPED[6],
        Sampling(typical_p=0.8, top_p=0.9),
        SHAPED[1],
        Sampling(top_n_sigma=1.0, xtc_probability=1.0),
    ]
    samplings = [within(s, vocab) for s in samplings]
    logits = np.stack([normal(vocab, seed) for seed in range(len(places))])
    tokens, logprobs = tokens_of_batch(bench, logits, places, samplings, masks)
    for m, place in enumerate(places):
        alone = tokens_of_batch(bench, logits[m : m + 1], [place], [samplings[m]], masks)
        assert alone[0] == [tokens[m]], samplings[m]
        count = 1 + max(0, samplings[m].logprobs)
        assert (alone[1][0, :count] == logprobs[m, :count]).all()


@in_pairs(
    ("vocab, n", [(1, 0), (3, 20), (255, 1), (1025, 20), (60000, 20)]),
    ("equal", [False, True]),
    adapters=[CACHED],
)
def test_logprobs(bench: Bench, vocab: int, n: int, equal: bool) -> None:
    """The likeliest tokens in falling order; among equals, the first wins."""
    pos = LOGPROB_ROWS + 5
    ops = bench.begin(Setup(batch=1, n=1, pos=pos, n_ctx=LOGPROB_ROWS + 8, vocab=vocab, seq=SEQ))
    logits = ops.buffer("logits", (vocab,))
    values = bench.fill(logits)
    values[:] *= 3
    if equal:
        values[vocab // 2 :] = values[vocab // 2] + 20
    sampler_ops.logprobs(ops, logits)
    give(bench, SEQ, Sampling(logprobs=n))
    gpu, host = bench.run(ops)
    got, want = gpu["logprobs"][SEQ, 5], host["logprobs"][SEQ, 5]
    count = 1 + min(n, vocab, MAX_LOGPROBS)
    assert (got[:count, 0] == want[:count, 0]).all()
    assert (got[count : 1 + n, 0] == 0xFFFFFFFF).all()
    floats, expected = (np.ascontiguousarray(rows[:count, 1]).view(np.float32) for rows in (got, want))
    assert np.abs(floats - expected).max() < 1e-5
    gpu["logprobs"][SEQ, 5] = 0xFFFFFFFF
    assert (gpu["logprobs"] == 0xFFFFFFFF).all()
