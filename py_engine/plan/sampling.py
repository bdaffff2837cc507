"""Sampling: a request's parameters, the constraint's interface, and a batch of sampled tokens."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Annotated, Any, Protocol, get_args, get_type_hints

from py_engine.plan import kernels
from py_engine.plan.lists import (
    BATCH_FORWARD,
    DECODE,
    DRAW,
    GREEDY,
    LOGPROBS,
    MASKED_DRAW,
    MASKED_GREEDY,
    MASKED_SAMPLE,
    SAMPLE,
    SHAPED_DRAW,
    SHAPED_GREEDY,
    SHAPED_SAMPLE,
    each,
)
from py_engine.plan.processors import Processor
from py_engine.plan.shared_constants import MAX_LOGPROBS

MAX_EXPONENT = 88.7228391  # exp(88.72...) is the largest float32
UNLIMITED = 0x7FFFFFFF  # tokens: the whole context
MIN_PROBABILITY = 1e-6  # lower bound of the filters' thresholds, so that they never remove every token
FIELDS = kernels.struct_fields("lib/sampling.wgsl", "Sampling")  # name -> "u32" or "f32", in the struct's order
SAMPLING_BYTES = 4 * len(FIELDS)
_LAYOUT = struct.Struct("<" + "".join({"u32": "I", "f32": "f"}[kind] for kind in FIELDS.values()))
MASKED_AT = 4 * list(FIELDS).index("masked")  # byte of Sampling.masked


class Filters(IntEnum):
    """The filters of a sampler: none (the likeliest token), none but min_p, or all."""

    NONE = 0
    MIN_P = 1
    ALL = 2


@dataclass(frozen=True)
class Range:
    """The accepted values of a sampler parameter. `responses`: /v1/responses accepts the parameter, too."""

    low: float
    high: float = 2**31
    responses: bool = False


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters of one request, with llama.cpp's definitions.

    The order is llama.cpp's: logit_bias, the grammar's mask, penalties, DRY, top_n_sigma, top_k, typical_p, top_p,
    min_p, XTC, temperature. Temperature 0 is greedy. The defaults disable every filter. seed None: drawn at random.
    With dynatemp_range, the temperature is within that range of `temperature`, the higher the flatter the distribution.

    This class is the table of sampler parameters: every field with a Range is a parameter of a request, and the API's
    checks, requests.d.ts, the documentation and the layout on the GPU (wgsl/lib/sampling.wgsl) follow from it.
    """

    temperature: Annotated[float, Range(0, 2, responses=True)] = 1.0
    dynatemp_range: Annotated[float, Range(0, 100)] = 0.0  # 0: off
    dynatemp_exponent: Annotated[float, Range(0, 100)] = 1.0
    top_n_sigma: Annotated[float, Range(-1, 100)] = -1.0  # 0 and less: off
    top_k: Annotated[int, Range(-1, responses=True)] = 0  # 0 and -1: off
    top_p: Annotated[float, Range(0, 1, responses=True)] = 1.0
    min_p: Annotated[float, Range(0, 1, responses=True)] = 0.0
    typical_p: Annotated[float, Range(0, 1)] = 1.0
    seed: Annotated[int | None, Range(-(1 << 63), (1 << 64) - 1, responses=True)] = None
    # Presence and frequency penalties count the tokens of the answer so far, as OpenAI defines them.
    presence_penalty: Annotated[float, Range(-2, 2, responses=True)] = 0.0
    frequency_penalty: Annotated[float, Range(-2, 2, responses=True)] = 0.0
    # repeat_penalty applies to the last repeat_last_n tokens of prompt and answer; -1: to all.
    repeat_penalty: Annotated[float, Range(0.01, 100)] = 1.0
    repeat_last_n: Annotated[int, Range(-1)] = 64
    dry_multiplier: Annotated[float, Range(0, 100)] = 0.0
    dry_base: Annotated[float, Range(1, 100)] = 1.75
    dry_allowed_length: Annotated[int, Range(1)] = 2
    dry_penalty_last_n: Annotated[int, Range(-1)] = -1
    xtc_probability: Annotated[float, Range(0, 1)] = 0.0
    xtc_threshold: Annotated[float, Range(0, 1)] = 0.1
    # Of diffusion models, with llama.cpp's names: generate/diffusion.py. Eps and block length 0: the model's schedule.
    diffusion_steps: Annotated[int, Range(1, 65536)] = 128
    diffusion_eps: Annotated[float, Range(0, 1)] = 0.0
    diffusion_block_length: Annotated[int, Range(0, 65536)] = 0
    diffusion_algorithm: Annotated[int, Range(0, 4)] = 4
    diffusion_alg_temp: Annotated[float, Range(0, 100)] = 0.0
    dry_breakers: tuple[int, ...] = ()  # ids of the tokens that contain a sequence breaker
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token, -100..100); -100 or less: banned
    processor: Processor | None = None  # a caller's WGSL, before all of these
    logprobs: int = -1  # -1: none; n: of the sampled and the n <= MAX_LOGPROBS most probable tokens, before filters

    def seeded(self) -> Sampling:
        """These parameters with a seed, drawn at random if the request has none."""
        return self if self.seed is not None else replace(self, seed=random.getrandbits(32))

    @property
    def filters(self) -> Filters:
        """Which filters a sampled token needs. Without noise, those that keep the likeliest token are not needed."""
        if self.typical_p < 1 or self._xtc or self.dynatemp_range > 0:
            return Filters.ALL
        if not self.is_random:
            return Filters.NONE
        return Filters.ALL if self.top_k > 0 or self.top_p < 1 or self.top_n_sigma > 0 else Filters.MIN_P

    @property
    def is_random(self) -> bool:
        """Whether tokens are drawn with noise."""
        return self.temperature > 0 or self.dynatemp_range > 0

    @property
    def is_shaped(self) -> bool:
        """Whether the parameters change logits: bias, penalties, DRY."""
        penalises = self.presence_penalty or self.frequency_penalty or self._repeat_last_n or self._dry_last_n
        return bool(penalises or self.logit_bias)

    def lists(self, masked: bool = False) -> list[str]:
        """The plan's lists that sample a token. `masked`: only tokens that a mask allows."""
        return samplers([self], masked)

    def biases(self) -> bytes:
        """(token, float32 bias) of every biased token, in ascending order of tokens."""
        return b"".join(struct.pack("<If", token, bias) for token, bias in sorted(dict(self.logit_bias).items()))

    def breaker_bits(self, vocab: int) -> bytes:
        """A bit mask of dry_breakers over the vocabulary, in words of 32 bits."""
        bits = bytearray(-(-vocab // 32) * 4)
        for token in self.dry_breakers:
            bits[token // 8] |= 1 << token % 8
        return bytes(bits)

    @property
    def _repeat_last_n(self) -> int:
        return 0 if self.repeat_penalty == 1 else _last_n(self.repeat_last_n)

    @property
    def _dry_last_n(self) -> int:
        return 0 if self.dry_multiplier <= 0 or self.dry_base < 1 else _last_n(self.dry_penalty_last_n)

    @property
    def _xtc(self) -> float:
        """The probability of XTC; 0 if no two tokens can reach the threshold."""
        return 0.0 if self.xtc_threshold > 0.5 else self.xtc_probability

    def pack(self, answer: int = 0, shifted: int = 0, masked: bool = False) -> bytes:
        """The bytes of the struct Sampling of wgsl/lib/sampling.wgsl.

        `answer`: position of the answer's first token. `shifted`: tokens dropped from the context so far. `masked`: a
        mask holds the allowed tokens.
        """
        values = vars(self) | self._as_packed() | {"answer": answer, "shifted": shifted, "masked": int(masked)}
        return _LAYOUT.pack(*(values[name] for name in FIELDS))

    def _as_packed(self) -> dict[str, int | float]:
        """The values that the kernels get, where they differ from the request's."""
        filtered = self.filters is not Filters.NONE
        growth = math.log(self.dry_base) if self.dry_base > 1.000001 else 0.0
        longest = self.dry_allowed_length + int(MAX_EXPONENT / growth) if growth else UNLIMITED
        return {
            "top_n_sigma": self.top_n_sigma if filtered else 0.0,
            "top_k": max(self.top_k, 0) if filtered else 0,
            "top_p": max(self.top_p, MIN_PROBABILITY) if filtered else 1.0,
            "min_p": self.min_p if filtered else 0.0,
            "seed": (self.seed or 0) & 0xFFFFFFFF,
            "typical_p": max(self.typical_p, MIN_PROBABILITY),
            "xtc_probability": self._xtc,
            "repeat_last_n": self._repeat_last_n,
            "dry_multiplier": self.dry_multiplier if self._dry_last_n else 0.0,
            "dry_penalty_last_n": self._dry_last_n,
            "dry_longest": min(longest, UNLIMITED),
            "logprobs": max(0, min(self.logprobs, MAX_LOGPROBS)),
            "biases": len(dict(self.logit_bias)),
        }


def samplers(samplings: Sequence[Sampling], masked: bool = False, batch: bool = False) -> list[str]:
    """The lists that sample a token of each sequence. `masked`: some may sample only tokens that a mask allows.

    `batch`: the sequences are a small batch. A sequence's token does not depend on the lists that the others need.
    """
    filters = max(s.filters for s in samplings)
    shaped = any(s.is_shaped for s in samplings)
    names = [((SHAPED_GREEDY, SHAPED_DRAW, SHAPED_SAMPLE) if shaped else (GREEDY, DRAW, SAMPLE))[filters]]
    names += [(MASKED_GREEDY, MASKED_DRAW, MASKED_SAMPLE)[filters]] if masked else []
    names += [LOGPROBS] if any(s.logprobs >= 0 for s in samplings) else []
    names = [*processing(samplings), *names]
    return [each(name) for name in names] if batch else names


def processing(samplings: Sequence[Sampling]) -> list[str]:
    """The lists that run the processors of sequences, each of them once."""
    return list(dict.fromkeys(s.processor.list for s in samplings if s.processor is not None))


def step(samplings: Sequence[Sampling], masked: bool = False) -> tuple[list[str], list[str]]:
    """The lists of a step that samples a token of each sequence: those before its logits, those after."""
    batch = len(samplings) > 1
    return [*BATCH_FORWARD] if batch else [DECODE], samplers(samplings, masked, batch)


@dataclass(frozen=True)
class Parameter:
    """A sampler parameter of a request."""

    integer: bool
    range: Range
    default: float | None  # None: drawn at random


def parameters() -> dict[str, Parameter]:
    """The sampler parameters of a request: every field of Sampling that has a Range."""
    return {
        name: Parameter(get_args(hint)[0] is not float, hint.__metadata__[0], getattr(Sampling, name))
        for name, hint in get_type_hints(Sampling, include_extras=True).items()
        if hasattr(hint, "__metadata__")
    }


def _last_n(n: int) -> int:
    return UNLIMITED if n < 0 else n


class Constraint(Protocol):
    """A restriction of the next token, for example by a grammar. The engine calls it only while it generates."""

    async def mask(self) -> Any | None:
        """An Int32Array (ceil(vocab / 32),) with a bit set for each allowed next token. None: all are allowed."""

    async def accept(self, token: int) -> None:
        """Advance past a token. The engine calls this for every token: sampled, forced, or end of generation.

        A constraint may also define `async def try_accept(self, token: int) -> bool`, which advances past an allowed
        token and otherwise changes nothing. Without it the engine checks the mask.

        It may also have `source`, a MaskSource of gpu/masked.js, with which a GPU's tokens need no Python.

        It may also define `async def process(self, logits) -> bytes`: the engine then calls it before every token
        with the token's raw logits, float32 (vocab,), and samples from what it returns. Nothing is sampled ahead.
        """

    async def forced(self) -> list[int]:
        """The only possible next tokens, if any. The engine feeds them without sampling and yields them like others."""

    def finished(self) -> bool:
        """Whether only the end of generation is allowed."""


def only_mask(token: int, n_vocab: int) -> bytes:
    """The mask that allows one token."""
    bits = bytearray(-(-n_vocab // 32) * 4)
    bits[token // 8] |= 1 << token % 8
    return bytes(bits)


@dataclass(frozen=True)
class TokenLogprob:
    """The log-probability of a sampled token, and `top`: [(token, logprob)] of the most probable, descending.

    It is log(softmax(logits)), before any bias, mask, penalty or filter, at temperature 1.
    """

    token: int
    logprob: float
    top: list[tuple[int, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Batch:
    """The next tokens of an answer, and their `logprobs` if requested."""

    ids: list[int]
    logprobs: list[TokenLogprob] | None = None

    def __getitem__(self, part: slice) -> Batch:
        """A slice of the tokens and their log-probabilities."""
        return Batch(self.ids[part], None if self.logprobs is None else self.logprobs[part])


def read_logprobs(rows: memoryview, count: int, n: int, vocab: int) -> list[TokenLogprob]:
    """Parse the rows that logprobs.wgsl wrote for `count` tokens.

    A row holds (token, float32 bits of its log-probability) for the sampled token, then for MAX_LOGPROBS others. The
    result has the first `n` of these.
    """
    n = min(n, MAX_LOGPROBS)
    ids, values = rows.cast("B").cast("I"), rows.cast("B").cast("f")
    out = []
    for first in range(0, 2 * count * (1 + MAX_LOGPROBS), 2 * (1 + MAX_LOGPROBS)):
        pairs = [(ids[first + 2 * k], values[first + 2 * k + 1]) for k in range(1 + n)]
        out.append(TokenLogprob(*pairs[0], [pair for pair in pairs[1:] if pair[0] < vocab]))
    return out
