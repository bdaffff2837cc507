"""How the next token is chosen: the parameters of a request, what constrains it, and what comes out."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from typing import Any, Protocol

MOST_LOGPROBS = 20  # likeliest tokens of a position that can be asked for


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

    def pack(self) -> bytes:
        """The Sampling struct of sample.wgsl."""
        seed = random.getrandbits(32) if self.seed is None else self.seed & 0xFFFFFFFF
        return struct.pack("<fIffI", self.temperature, self.top_k, self.top_p, self.min_p, seed)


class Constraint(Protocol):
    """What the next token may be, such as a grammar; asked by the engine only while it generates."""

    async def mask(self) -> Any | None:
        """An Int32Array of ceil(vocabulary / 32) words, a set bit for each token that may come next; None: all may."""

    async def accept(self, token: int) -> None:
        """The answer goes on with that token."""

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
