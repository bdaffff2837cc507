"""How the next token is chosen: the parameters of a request, what constrains it, and what comes out."""

from __future__ import annotations

import math
import random
import struct
from array import array
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from py_engine.plan.lists import LOGPROBS, RESAMPLE, SAMPLE, SHAPED_RESAMPLE, SHAPED_SAMPLE
from py_engine.plan.shared import MOST_LOGPROBS

MOST_EXPONENT = 88.7228391  # e to this is the largest float32
ALL = 0x7FFFFFFF  # of a context's tokens
LEAST = 1e-6  # share of the likelihood: a filter never takes everything out
FIELDS = (  # the Sampling struct of sampling.wgsl
    ("temperature", "f"), ("top_k", "I"), ("top_p", "f"), ("min_p", "f"), ("seed", "I"), ("shifted", "I"),
    ("typical_p", "f"), ("xtc_probability", "f"), ("xtc_threshold", "f"), ("answer", "I"), ("presence", "f"),
    ("frequency", "f"), ("repetition", "f"), ("repeat_last", "I"), ("dry_multiplier", "f"), ("dry_base", "f"),
    ("dry_allowed", "I"), ("dry_last", "I"), ("dry_longest", "I"), ("logprobs", "I"),
)  # fmt: skip


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters of one request, with llama.cpp's definitions, applied in its order: logit_bias, the grammar's
    mask, penalties, DRY, top_k, typical_p, top_p, min_p, XTC, then temperature.

    temperature 0 is greedy; the defaults switch every filter off; seed None draws one at random.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    seed: int | None = None
    presence_penalty: float = 0.0  # these two count the tokens of the answer so far, as OpenAI has it
    frequency_penalty: float = 0.0
    repeat_penalty: float = 1.0  # of the last `repeat_last_n` tokens of prompt and answer; -1: of all
    repeat_last_n: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_breakers: tuple[int, ...] = ()  # ids of the tokens that contain a sequence breaker
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token, -100..100); -100 and less: banned
    logprobs: int = -1  # -1: none; n: of the chosen token and the n <= MOST_LOGPROBS likeliest, before any filter

    def seeded(self) -> Sampling:
        """The same with a seed."""
        return self if self.seed is not None else replace(self, seed=random.getrandbits(32))

    @property
    def shapes(self) -> bool:
        """Whether it takes more than temperature, top_k, top_p and min_p."""
        penalises = self.presence_penalty or self.frequency_penalty or self._repeat_last or self._dry_last
        return bool(penalises or self.typical_p < 1 or self._xtc or self.logit_bias)

    def lists(self, masked: bool = False) -> list[str]:
        """The plan's lists that choose a token (planner.py); `masked`: as a mask allows."""
        first, again = (SHAPED_SAMPLE, SHAPED_RESAMPLE) if self.shapes else (SAMPLE, RESAMPLE)
        return [first] + ([again] if masked else []) + ([LOGPROBS] if self.logprobs >= 0 else [])

    def biases(self, vocab: int) -> bytes:
        """What is added to each logit, float32 (vocab,)."""
        dense = array("f", bytes(4 * vocab))
        for token, bias in self.logit_bias:
            dense[token] = bias
        return dense.tobytes()

    def breaker_bits(self, vocab: int) -> bytes:
        """A bit for each token, set in those of dry_breakers, in words of 32."""
        bits = bytearray(-(-vocab // 32) * 4)
        for token in self.dry_breakers:
            bits[token // 8] |= 1 << token % 8
        return bytes(bits)

    @property
    def _repeat_last(self) -> int:
        return 0 if self.repeat_penalty == 1 else _last(self.repeat_last_n)

    @property
    def _dry_last(self) -> int:
        return 0 if self.dry_multiplier <= 0 or self.dry_base < 1 else _last(self.dry_penalty_last_n)

    @property
    def _xtc(self) -> float:
        """The probability, 0 where nothing can be above the threshold and still have something above it."""
        return 0.0 if self.xtc_threshold > 0.5 else self.xtc_probability

    def pack(self, answer: int = 0, shifted: int = 0) -> bytes:
        """The Sampling struct of sampling.wgsl. `answer`: position of the answer's first token;
        `shifted`: tokens dropped from the context before.
        """
        filtered = self.temperature > 0 or self.typical_p < 1 or self._xtc > 0  # else the likeliest token it is
        growth = math.log(self.dry_base) if self.dry_base > 1.000001 else 0.0
        longest = self.dry_allowed_length + int(MOST_EXPONENT / growth) if growth else ALL
        values = {
            "temperature": self.temperature,
            "top_k": self.top_k if filtered else 0,
            "top_p": max(self.top_p, LEAST) if filtered else 1.0,
            "min_p": self.min_p if filtered else 0.0,
            "seed": (self.seed or 0) & 0xFFFFFFFF,
            "shifted": shifted,
            "typical_p": max(self.typical_p, LEAST),
            "xtc_probability": self._xtc,
            "xtc_threshold": max(self.xtc_threshold, LEAST),
            "answer": answer,
            "presence": self.presence_penalty,
            "frequency": self.frequency_penalty,
            "repetition": self.repeat_penalty,
            "repeat_last": self._repeat_last,
            "dry_multiplier": self.dry_multiplier if self._dry_last else 0.0,
            "dry_base": self.dry_base,
            "dry_allowed": self.dry_allowed_length,
            "dry_last": self._dry_last,
            "dry_longest": min(longest, ALL),
            "logprobs": max(0, min(self.logprobs, MOST_LOGPROBS)),
        }
        return struct.pack("<" + "".join(kind for _, kind in FIELDS), *(values[name] for name, _ in FIELDS))


def _last(n: int) -> int:
    return ALL if n < 0 else n


class Constraint(Protocol):
    """What the next token may be, such as a grammar; asked by the engine only while it generates."""

    async def mask(self) -> Any | None:
        """An Int32Array of ceil(vocabulary / 32) words, a set bit for each token that may come next; None: all may."""

    async def accept(self, token: int) -> None:
        """The answer goes on with that token. The engine says so of every token: chosen, forced, or the end.

        A constraint may also have `async def try_accept(self, token: int) -> bool`: the same for a token that is
        perhaps not allowed, which then changes nothing. Without it the engine looks into the mask.
        """

    async def forced(self) -> list[int]:
        """Tokens that must come next, if any: they are fed without sampling each, and reported like sampled ones."""

    def finished(self) -> bool:
        """Whether nothing but the end may follow."""


@dataclass(frozen=True)
class TokenLogprob:
    """The log-probability of a chosen token, and of the likeliest: [(token, logprob)], the likeliest first.

    Of softmax(logits), before any bias, mask, penalty or filter, at temperature 1.
    """

    token: int
    logprob: float
    top: list[tuple[int, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Batch:
    """The next tokens of an answer, a few at a time; `logprobs` one for each where they were asked for."""

    ids: list[int]
    logprobs: list[TokenLogprob] | None = None

    def __getitem__(self, part: slice) -> Batch:
        """Some of them."""
        return Batch(self.ids[part], None if self.logprobs is None else self.logprobs[part])


def read_logprobs(rows: memoryview, count: int, n: int, vocab: int) -> list[TokenLogprob]:
    """What logprobs.wgsl wrote for `count` tokens: for each a row of (token, bits of its log-probability), the chosen
    one first, then MOST_LOGPROBS of which n are meant.
    """
    n = min(n, MOST_LOGPROBS)
    ids, values = rows.cast("B").cast("I"), rows.cast("B").cast("f")
    out = []
    for first in range(0, 2 * count * (1 + MOST_LOGPROBS), 2 * (1 + MOST_LOGPROBS)):
        pairs = [(ids[first + 2 * k], values[first + 2 * k + 1]) for k in range(1 + n)]
        out.append(TokenLogprob(*pairs[0], [pair for pair in pairs[1:] if pair[0] < vocab]))
    return out
