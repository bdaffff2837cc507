"""Every sampler's distribution over thousands of positions against its definition, in float64; log-probabilities."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from py_engine.cpu.executor import Cpu
from py_engine.plan import sampler_ops
from py_engine.plan.kernels import Device
from py_engine.plan.lists import (
    DECODE,
    DRAW,
    LOGPROBS,
    MASKED_SAMPLE,
    SAMPLE,
    SHAPED_DRAW,
    SHAPED_GREEDY,
    SHAPED_SAMPLE,
    each,
)
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Plan
from py_engine.plan.sampling import Filters, Sampling, read_logprobs, samplers
from tests.support import sampling_reference as reference
from tests.support.sampling_reference import chi_square

VOCAB, DRAWS, ANSWER = 60, 1500, 12
HISTORY = [5, 1, 2, 3, 9, 1, 2, 3, 4, 7, 1, 2, 5, 6, 5, 6, 5, 0, 1, 2, 3, 11, 8, 1, 2, 3]
LOGITS = np.random.default_rng(3).normal(0, 1.2, VOCAB).astype(np.float32)
LOGITS[[4, 9, 11, 5, 2]] = [2.2, 2.5, 2.1, 1.8, 2.3]  # tokens that would continue a repetition
CASES = {
    "plain": Sampling(),
    "temperature": Sampling(temperature=0.6),
    "hot": Sampling(temperature=1.8),
    "dynatemp": Sampling(temperature=1.0, dynatemp_range=0.7),
    "dynatemp of few tokens": Sampling(temperature=0.5, dynatemp_range=1.5, dynatemp_exponent=3.0, top_k=5),
    "dynatemp without temperature": Sampling(temperature=0.0, dynatemp_range=1.2, dynatemp_exponent=0.5, min_p=0.05),
    "dynatemp of one token": Sampling(dynatemp_range=0.5, top_k=1),
    "dynatemp where one token is sure": Sampling(dynatemp_range=1.0, dynatemp_exponent=1.35, logit_bias=((3, 100.0),)),
    "dynatemp beside a ban": Sampling(dynatemp_range=0.9, logit_bias=((4, -100), (7, -100))),
    "dynatemp with a flat exponent": Sampling(temperature=0.3, dynatemp_range=0.2, dynatemp_exponent=0.0),
    "top_n_sigma": Sampling(top_n_sigma=1.5),
    "top_n_sigma beside a ban": Sampling(top_n_sigma=2.0, top_p=0.9, top_k=9, logit_bias=((4, -100),)),
    "top_k": Sampling(top_k=7),
    "top_p": Sampling(top_p=0.7),
    "min_p": Sampling(min_p=0.08),
    "typical_p": Sampling(typical_p=0.5),
    "typical_p without the likeliest": Sampling(typical_p=0.2),
    "no top_p": Sampling(top_p=0.0),
    "no typical_p": Sampling(typical_p=0.0),
    "all of min_p": Sampling(min_p=1.0),
    "all of xtc": Sampling(xtc_probability=1.0, xtc_threshold=0.0),
    "xtc": Sampling(xtc_probability=1.0, xtc_threshold=0.05),
    "xtc of one": Sampling(xtc_probability=1.0, xtc_threshold=0.4),
    "logit_bias": Sampling(logit_bias=((4, -100), (0, 5.0), (59, 2.5), (9, -3.0))),
    "repeat_penalty": Sampling(repeat_penalty=1.6, repeat_last_n=8),
    "repeat_penalty of all": Sampling(repeat_penalty=1.3, repeat_last_n=-1),
    "presence_penalty": Sampling(presence_penalty=1.5),
    "frequency_penalty": Sampling(frequency_penalty=0.7),
    "encouraged": Sampling(frequency_penalty=-0.5, presence_penalty=-0.5),
    "dry": Sampling(dry_multiplier=0.8),
    "dry of long repetitions": Sampling(dry_multiplier=1.4, dry_base=1.2, dry_allowed_length=3),
    "dry of the last": Sampling(dry_multiplier=1.5, dry_penalty_last_n=10, dry_allowed_length=1),
    "dry, broken": Sampling(dry_multiplier=1.5, dry_breakers=(1, 20)),
    "filters in their order": Sampling(temperature=1.4, top_k=20, typical_p=0.9, top_p=0.9, min_p=0.03),
    "everything": Sampling(
        temperature=1.2, top_n_sigma=3.0, top_k=30, typical_p=0.95, top_p=0.95, min_p=0.01, xtc_probability=1.0,
        xtc_threshold=0.1, repeat_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.1, dry_multiplier=0.8,
        dry_breakers=(8,), logit_bias=((3, 1.0), (5, -100)), dynatemp_range=0.4,
    ),
}  # fmt: skip


def executor_for(sampling: Sampling, logits: np.ndarray = LOGITS) -> Cpu:
    """An executor of a plan with the samplers alone, after HISTORY."""
    plan = Plan(1, 64, len(logits))
    buffer = Ops(plan, DECODE, 1, Device()).buffer("logits", (len(logits),))
    sampler_ops.add_lists(plan, Device(), buffer)
    cpu = Cpu(plan, {})
    cpu.buffers["logits"][:] = logits
    rules = sampler_ops.Rules(len(logits))
    cpu.write("sampling", sampling.pack(ANSWER, masked=True))
    cpu.write("rules", sampling.biases(), rules.biases(0))
    cpu.write("rules", sampling.breaker_bits(len(logits)), rules.breakers(0))
    return cpu


def draw(cpu: Cpu, *names: str) -> int:
    cpu.feed(0, HISTORY, list(names))
    return int(cpu.buffers["tokens"][0, len(HISTORY)])


def draws(sampling: Sampling, name: str, count: int = DRAWS, mask: np.ndarray | None = None) -> np.ndarray:
    """`count` tokens drawn by a list, each with its own noise."""
    cpu = executor_for(sampling)
    settings = cpu.buffers["sampling"][0]
    again = [MASKED_SAMPLE] if mask is not None else []
    if mask is not None:
        cpu.write("rules", np.packbits(mask, bitorder="little").tobytes())
    found = np.empty(count, np.int64)
    for place in range(count):
        settings[5] = place  # `shifted`: the noise of another position
        found[place] = draw(cpu, name, *again)
    return found


def counts_of(drawn: np.ndarray) -> np.ndarray:
    """How often each token was drawn."""
    return np.bincount(drawn, minlength=VOCAB)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_draws_follow_the_definition(name: str) -> None:
    """Draws are as frequent as the definition says; both forms of the sampler agree where both can run."""
    sampling = replace(CASES[name], seed=11)
    expected = np.array(reference.distribution(LOGITS.tolist(), HISTORY, ANSWER, sampling))
    drawn = draws(sampling, SHAPED_SAMPLE)
    counts = counts_of(drawn)
    statistic, limit = chi_square(counts, expected)
    assert statistic < limit
    plain = np.array(reference.distribution(LOGITS.tolist(), HISTORY, ANSWER, Sampling()))
    if name != "plain" and "one" not in name:
        assert chi_square_rejects(counts, plain), "the test would not see whether the sampler does anything"
    if not sampling.is_shaped:
        assert (draws(sampling, SAMPLE, 300) == drawn[:300]).all()


def chi_square_rejects(counts: np.ndarray, expected: np.ndarray) -> bool:
    if counts[expected == 0].sum():
        return True
    statistic, limit = chi_square(counts, expected)
    return statistic > limit


@pytest.mark.parametrize("name", CASES)
def test_temperature_0_takes_the_likeliest_token_that_the_filters_leave(name: str) -> None:
    """Temperature 0 takes the likeliest token that passes the filters."""
    sampling = replace(CASES[name], temperature=0, dynatemp_range=0, seed=1)
    expected = reference.distribution(LOGITS.tolist(), HISTORY, ANSWER, sampling)
    assert draw(executor_for(sampling), SHAPED_SAMPLE) == int(np.argmax(expected))


@pytest.mark.parametrize("threshold", [0.0, 1e-30, 1e-12, 1e-7, 1e-3])
@pytest.mark.parametrize("more", [{}, {"top_k": 40}, {"typical_p": 0.9}, {"min_p": 1e-9}])
def test_xtc_leaves_the_least_likely_token_that_reaches_a_small_threshold(
    threshold: float, more: dict[str, Any]
) -> None:
    """Of a sure model most tokens are less likely than a millionth; one is banned, and never sampled."""
    logits = np.linspace(0, 60, VOCAB).astype(np.float32)
    sampling = Sampling(temperature=0, xtc_probability=1.0, xtc_threshold=threshold, logit_bias=((0, -100),), **more)
    expected = reference.distribution(logits.tolist(), HISTORY, ANSWER, sampling)
    assert draw(executor_for(sampling, logits), SHAPED_SAMPLE) == int(np.argmax(expected))


def test_xtc_applies_with_its_probability() -> None:
    sampling = Sampling(xtc_probability=0.3, xtc_threshold=0.05, seed=5)
    on, off = (
        np.array(reference.distribution(LOGITS.tolist(), HISTORY, ANSWER, sampling, side)) for side in (True, False)
    )
    statistic, limit = chi_square(counts_of(draws(sampling, SHAPED_SAMPLE)), 0.3 * on + 0.7 * off)
    assert statistic < limit


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_a_masked_draw_follows_the_definition(fraction: float) -> None:
    """An allowed token stays; a forbidden one is drawn again, among the allowed ones, so none is ever returned."""
    mask = np.random.default_rng(1).random(64) < fraction
    mask[7] = True
    for sampling in (Sampling(seed=2), Sampling(temperature=0.7, top_k=10, top_p=0.9, seed=2)):
        free = np.array(reference.distribution(LOGITS.tolist(), HISTORY, ANSWER, sampling))
        masked = np.where(mask[:VOCAB], LOGITS, -np.inf).tolist()
        again = np.array(reference.distribution(masked, HISTORY, ANSWER, sampling))
        refused = free[~mask[:VOCAB]].sum()
        expected = np.where(mask[:VOCAB], free, 0) + refused * again
        drawn = draws(sampling, SHAPED_SAMPLE, mask=mask)
        counts = counts_of(drawn)
        statistic, limit = chi_square(counts, expected)
        assert statistic < limit
        assert (draws(sampling, SAMPLE, 300, mask) == drawn[:300]).all()
        if sampling.top_k == 0:  # without top_k, this equals one draw among the allowed tokens
            np.testing.assert_allclose(expected, again, atol=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_shaped_logits(seed: int) -> None:
    """Bias, penalties and DRY on histories that repeat themselves."""
    random = np.random.default_rng(seed)
    history = random.integers(0, 3 + seed % 4, random.integers(1, 50)).tolist()
    sampling = Sampling(
        repeat_penalty=float(random.uniform(0.8, 1.5)),
        repeat_last_n=int(random.choice([-1, 0, 5, 64])),
        presence_penalty=float(random.uniform(-1, 2)),
        frequency_penalty=float(random.uniform(-1, 2)),
        dry_multiplier=float(random.choice([0, 0.8])),
        dry_base=float(random.uniform(1, 2)),
        dry_allowed_length=int(random.integers(1, 4)),
        dry_penalty_last_n=int(random.choice([-1, 10])),
        dry_breakers=tuple(random.integers(0, 8, 1).tolist()),
        logit_bias=((1, float(random.uniform(-5, 5))), (2, -100.0)),
    )
    answer = int(random.integers(0, len(history) + 1))
    want = reference.shaped(LOGITS.tolist(), history, answer, sampling)
    cpu = executor_for(sampling)
    cpu.write("sampling", sampling.pack(answer))
    cpu.feed(0, history, [SHAPED_SAMPLE])
    got = cpu.buffers["shaped"][0].astype(np.float64)
    np.testing.assert_allclose(np.where(got < -1e29, -np.inf, got), want, rtol=1e-4, atol=1e-4)


def test_dry_does_not_overflow() -> None:
    """A repetition so long that base^length overflows a float."""
    sampling = Sampling(temperature=0, dry_multiplier=1.0, dry_base=8.0, dry_penalty_last_n=-1)
    logits = np.full(4, 50, np.float32)
    logits[1] = 100
    cpu = executor_for(sampling, logits)
    cpu.feed(0, [1] * 60, [SHAPED_SAMPLE])
    assert np.isfinite(cpu.buffers["shaped"]).all()
    assert cpu.buffers["tokens"][0, 60] == 0


def test_noise_is_never_infinite() -> None:
    """The largest noise comes from the smallest uniform numbers, which have a float's full precision."""
    from py_engine.cpu.sampling import uniform

    ends = uniform(np.array([0, 1, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32))
    assert ((ends > 0) & (ends < 1)).all()
    assert ends[0] < 1e-9


def test_logprobs() -> None:
    """Log-probabilities are log(softmax(logits)), whatever the filters do; the likeliest token is first."""
    sampling = Sampling(temperature=0.5, top_k=3, logit_bias=((1, 50.0),), logprobs=5)
    cpu = executor_for(sampling)
    cpu.feed(0, HISTORY, [SHAPED_SAMPLE, LOGPROBS])
    row = cpu.buffers["logprobs"][0, len(HISTORY)]
    (found,) = read_logprobs(memoryview(row.tobytes()), 1, 5, VOCAB)
    want = np.log(reference.softmax(list(enumerate(LOGITS.tolist()))))
    order = np.argsort(-want)[:5]
    assert found.token == 1
    assert found.logprob == pytest.approx(want[1], abs=1e-5)
    assert [token for token, _ in found.top] == order.tolist()
    assert [p for _, p in found.top] == pytest.approx(want[order], abs=1e-5)


def test_which_parameters_need_the_shaped_sampler() -> None:
    assert not Sampling(temperature=0.5, top_k=4, top_p=0.5, min_p=0.1, seed=1, logprobs=3).is_shaped
    assert not Sampling(typical_p=0.5, top_n_sigma=1.0, xtc_probability=1.0).is_shaped
    assert not Sampling(
        repeat_penalty=1.0, dry_multiplier=0.5, dry_base=0.5, xtc_probability=1, xtc_threshold=0.6
    ).is_shaped
    assert not Sampling(repeat_penalty=1.2, repeat_last_n=0).is_shaped
    assert Sampling(presence_penalty=1.0).lists() == [SHAPED_DRAW]
    assert Sampling(temperature=0, logit_bias=((1, 1.0),), logprobs=2).lists() == [SHAPED_GREEDY, LOGPROBS]
    assert all(CASES[n].is_shaped for n in ("dry", "logit_bias", "presence_penalty", "repeat_penalty"))


def test_which_filters_a_request_needs() -> None:
    """Without noise, only filters that may drop the likeliest token are needed."""
    assert Sampling(temperature=0, top_k=4, top_p=0.5, min_p=0.1, top_n_sigma=1.0).filters is Filters.NONE
    assert Sampling(temperature=0, typical_p=0.5).filters is Filters.ALL
    assert Sampling(temperature=0, xtc_probability=0.5).filters is Filters.ALL
    assert Sampling(temperature=0, dynatemp_range=0.5).filters is Filters.ALL
    assert Sampling(min_p=0.1).filters is Filters.MIN_P
    for sampling in (Sampling(top_k=1), Sampling(top_p=0.9), Sampling(top_n_sigma=1.0)):
        assert sampling.filters is Filters.ALL


def test_lists_of_a_batch() -> None:
    """Sequences share the lists of the one that needs most."""
    some = [Sampling(temperature=0), Sampling(), Sampling(presence_penalty=1.0), Sampling(top_k=3, logprobs=1)]
    assert samplers(some[:2], batch=True) == [each(DRAW)]
    assert samplers(some, masked=True, batch=True) == [each(SHAPED_SAMPLE), each(MASKED_SAMPLE), each(LOGPROBS)]
