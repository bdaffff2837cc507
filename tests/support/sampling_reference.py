"""Reference samplers by llama.cpp's definitions, in float64, one after the other over a sorted list of candidates.

Written from the definitions alone, for judging the engine's samplers: `distribution` gives the probability of every
token, `shaped` the logits that the filters then see.
"""

from __future__ import annotations

import math
from collections import Counter
from statistics import pstdev

import numpy as np

from py_engine.plan.sampling import Sampling
from py_engine.plan.shared_constants import LEAST_TEMPERATURE

Candidates = list[tuple[int, float]]  # (token, logit), in falling order of logits


def distribution(logits: list[float], history: list[int], answer: int, s: Sampling, xtc: bool = True) -> list[float]:
    """The probability of each token as the next one after `history`. The answer in it begins at `answer`.

    `xtc`: whether XTC's random draw enables it.
    """
    values = shaped(logits, history, answer, s)
    candidates = [(t, v) for t, v in enumerate(values) if v > -math.inf]
    candidates.sort(key=lambda c: -c[1])
    candidates = top_n_sigma(candidates, s.top_n_sigma)
    candidates = top_k(candidates, s.top_k)
    candidates = typical(candidates, s.typical_p)
    candidates = top_p(candidates, s.top_p)
    candidates = min_p(candidates, s.min_p)
    if xtc and s.xtc_probability > 0:
        candidates = exclude_top(candidates, s.xtc_threshold)
    out = [0.0] * len(logits)
    heat = temperature(candidates, s)
    if heat == 0:
        out[candidates[0][0]] = 1.0
        return out
    cooled = [(t, v / heat) for t, v in candidates]
    for (token, _), p in zip(cooled, softmax(cooled), strict=True):
        out[token] = p
    return out


def temperature(candidates: Candidates, s: Sampling) -> float:
    """The temperature, which follows the entropy of the candidates within `dynatemp_range`."""
    if s.dynatemp_range <= 0 or len(candidates) < 2:
        return s.temperature
    entropy = -math.fsum(p * math.log(p) for p in softmax(candidates) if p > 0) / math.log(len(candidates))
    low, high = max(0.0, s.temperature - s.dynatemp_range), s.temperature + s.dynatemp_range
    found = low + (high - low) * entropy**s.dynatemp_exponent
    return found if found >= LEAST_TEMPERATURE else 0.0  # Wisp's own: what is lower makes no difference


def softmax(candidates: Candidates) -> list[float]:
    top = max(v for _, v in candidates)
    weights = [math.exp(v - top) for _, v in candidates]
    total = math.fsum(weights)
    return [w / total for w in weights]


def shaped(logits: list[float], history: list[int], answer: int, s: Sampling) -> list[float]:
    """The logits after bias, penalties and DRY; -inf for banned tokens."""
    values = list(map(float, logits))
    for token, bias in s.logit_bias:
        values[token] = -math.inf if bias <= -100 else values[token] + bias
    window = history if s.repeat_last_n < 0 else history[max(0, len(history) - s.repeat_last_n) :]
    for token in set(window):
        values[token] = values[token] / s.repeat_penalty if values[token] > 0 else values[token] * s.repeat_penalty
    for token, count in Counter(history[answer:]).items():
        values[token] -= s.presence_penalty + count * s.frequency_penalty
    for token, length in repetitions(history, s).items():
        values[token] -= s.dry_multiplier * s.dry_base ** (length - s.dry_allowed_length)
    return values


def repetitions(history: list[int], s: Sampling) -> dict[int, int]:
    """Token -> length of the repetition that it would continue, for the tokens that DRY penalises."""
    if s.dry_multiplier == 0:
        return {}
    if s.dry_penalty_last_n >= 0:
        history = history[max(0, len(history) - s.dry_penalty_last_n) :]
    limit = 0  # tokens at the end without a breaker among them
    while limit < len(history) and history[-1 - limit] not in s.dry_breakers:
        limit += 1
    found: dict[int, int] = {}
    if limit < s.dry_allowed_length:
        return found
    for k in range(1, len(history)):  # history[k] followed history[:k]
        length = 0
        while length < limit and length < k and history[k - 1 - length] == history[-1 - length]:
            length += 1
        token = history[k]
        if length >= s.dry_allowed_length and token not in s.dry_breakers:
            found[token] = max(found.get(token, 0), length)
    return found


def top_n_sigma(candidates: Candidates, n: float) -> Candidates:
    """Candidates within n standard deviations of the largest logit."""
    if n <= 0:
        return candidates
    values = [v for _, v in candidates]
    return [c for c in candidates if c[1] >= max(values) - n * pstdev(values)]


def top_k(candidates: Candidates, k: int) -> Candidates:
    return candidates[:k] if k > 0 else candidates


def typical(candidates: Candidates, p_limit: float) -> Candidates:
    """Candidates whose surprise is nearest to the mean surprise, until their probabilities sum to `p_limit`."""
    if p_limit >= 1:
        return candidates
    ps = softmax(candidates)
    entropy = -math.fsum(p * math.log(p) for p in ps if p > 0)
    order = sorted(range(len(ps)), key=lambda i: abs(-math.log(ps[i]) - entropy) if ps[i] > 0 else math.inf)
    chosen, total = [], 0.0
    for i in order:
        chosen.append(candidates[i])
        total += ps[i]
        if total > p_limit:
            break
    return sorted(chosen, key=lambda c: -c[1])


def top_p(candidates: Candidates, p_limit: float) -> Candidates:
    """The likeliest candidates, until their probabilities sum to `p_limit`."""
    if p_limit >= 1:
        return candidates
    total = 0.0
    for i, p in enumerate(softmax(candidates)):
        total += p
        if total >= p_limit:
            return candidates[: i + 1]
    return candidates


def min_p(candidates: Candidates, p_limit: float) -> Candidates:
    """Candidates at least `p_limit` times as likely as the likeliest one."""
    ps = softmax(candidates)
    return [c for c, p in zip(candidates, ps, strict=True) if p >= p_limit * ps[0]]


def exclude_top(candidates: Candidates, threshold: float) -> Candidates:
    """XTC: drop all candidates that reach the threshold except the least likely of them."""
    reached = sum(p >= threshold for p in softmax(candidates))
    return candidates[max(0, reached - 1) :] if threshold <= 0.5 else candidates


def chi_square(counts: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """(chi-square statistic, its limit at probability 1 in 100,000). Pools classes that are too rare."""
    assert counts[expected == 0].sum() == 0, "a token that a filter takes out was chosen"
    counts, expected = counts[expected > 0], expected[expected > 0] * counts.sum()
    rare = expected < 5
    pooled = [(counts[~rare], expected[~rare]), (counts[rare].sum()[None], expected[rare].sum()[None])]
    got, want = (np.concatenate(x) for x in zip(*pooled, strict=True))
    got, want = got[want > 0], want[want > 0]
    degrees = max(1, len(got) - 1)
    # Wilson and Hilferty: the cube root of chi-square / degrees is nearly normal
    limit = degrees * (1 - 2 / (9 * degrees) + 4.26 * np.sqrt(2 / (9 * degrees))) ** 3
    return float(((got - want) ** 2 / want).sum()), float(limit)
