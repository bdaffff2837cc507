"""The parts in which a prompt is read: how many tokens at a time, and which lists compute them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from py_engine.generate.answer import Answer
from py_engine.generate.sequence_cache import SequenceCache
from py_engine.plan.batch_sizes import splits_attention
from py_engine.plan.lists import DECODE, MEDIA_END, PREFILL, PREFILL_END, SMALL_BATCH_END
from py_engine.plan.plan import Plan
from py_engine.plan.shared_constants import SHORT_BATCH
from py_engine.runners import FeedOptions, Rounding, Runner

PART_MS = 260.0  # the time of a part of a prompt: late in a prompt of an 8B model, an H100 reads 2,048 tokens in 250
PART_TOKENS = 512  # of a part, at least, where the device takes that many
UNREAD_MS = 24.0  # of parts that are submitted before the result of one is awaited, where an answer is alone
WIDE = 1024  # values of a token from which the products of a prompt's tiles occupy a GPU, however few its tokens


@dataclass(frozen=True)
class PromptPart:
    """Tokens of a prompt, from position `at` on, and the lists that compute them."""

    at: int
    ids: list[int]
    lists: Sequence[str]
    exact: bool  # its tokens have the same results as in a part of any other size
    last: bool
    options: FeedOptions

    def record(self, cache: SequenceCache) -> None:
        """Record in the caches that the part was submitted."""
        cache.append(self.ids, generated=not self.exact)
        cache.advance(self.at + len(self.ids), exact=self.exact)
        if self.last or len(cache.tokens) == cache.checkpoint:
            cache.take_snapshot()


def tokens_of_part(runner: Runner) -> int:
    """Most tokens of a part of a prompt, unless others wait for all of it."""
    return max(min(runner.plan.batch, PART_TOKENS), runner.prompt_tokens_in(PART_MS))


def prompt_part(answer: Answer, cache: SequenceCache, runner: Runner, most: int, *, packed: bool = False) -> PromptPart:
    """The next part of a prompt, of at most `most` tokens; without tokens if pages are lacking. Takes its pages.

    `packed`: others' prompts are read with it, so it is enough work for a GPU, however short it is.
    """
    at = len(cache.tokens)
    if runner.plan.encodes_prompts and not at:
        return _encoded_prompt(answer, cache)
    rest = len(answer.ids) - at
    # Tokens that were decoded once are decoded again if the text must not depend on it, and where it is one token.
    decoded = at >= answer.prompted and (answer.exact or rest == 1)
    short = runner.on_gpu and not answer.exact and not packed and _is_short(runner.plan, rest)
    small = (rest > 1 if decoded else short) and runner.prepared(SMALL_BATCH_END, [cache.number])
    count = min(rest, SHORT_BATCH if small else 1 if decoded else most)
    if answer.exact and at < answer.prompted:
        count = min(count, answer.prompted - at)
    if at < cache.checkpoint:
        count = min(count, cache.checkpoint - at)
    media, shift = answer.media.batch(answer.ids, at, count)
    if runner.plan.encodes_prompts:
        shift = -answer.prompted
    if media is not None:
        return _part_with_media(answer, cache, at, most)
    count = min(count, max(0, cache.reserve(at + count) - at))
    last = count == rest
    lists: Sequence[str] = SMALL_BATCH_END if small else (DECODE,) if decoded else PREFILL_END
    # A sampled text without a seed differs each time anyway.
    differs = not answer.exact and answer.sampling.is_random and not packed
    split = differs and lists == PREFILL_END and splits_attention(runner.plan, count, at + count)
    exact = lists == PREFILL_END and not split
    options = FeedOptions(shift=shift, rounding=Rounding.ANY if split else Rounding.SAME)
    return PromptPart(at, answer.ids[at : at + count], lists if last else lists[:1], exact, last, options)


def _is_short(plan: Plan, tokens: int) -> bool:
    """Whether small batches read so many tokens in less time than one batch of the lists for prompts."""
    if not SHORT_BATCH < tokens <= 2 * SHORT_BATCH:
        return tokens <= SHORT_BATCH
    wide = plan.embedding is not None and plan.embedding.width >= WIDE
    return not wide or any(op.kernel == "matmul_int8" for op in plan.lists[PREFILL])  # its tiles need more tokens


def _encoded_prompt(answer: Answer, cache: SequenceCache) -> PromptPart:
    """The prompt of an encoder-decoder model, which the encoder reads as a whole."""
    count = answer.prompted if cache.reserve(answer.prompted) >= answer.prompted else 0
    return PromptPart(0, answer.ids[:count], (PREFILL,), True, False, FeedOptions(shift=-count))


def _part_with_media(answer: Answer, cache: SequenceCache, at: int, most: int) -> PromptPart:
    """prompt_part() where pictures or sounds are among the next tokens."""
    ids = answer.ids[: answer.prompted] if answer.exact else answer.ids
    count = answer.media.part(ids, at, most)
    count = answer.media.part_within(ids, at, min(count, cache.reserve(at + count) - at))
    media, shift = answer.media.batch(answer.ids, at, count)
    last = at + count == len(answer.ids)
    lists = PREFILL_END if media is None else MEDIA_END
    options = FeedOptions(media, shift)
    return PromptPart(at, answer.ids[at : at + count], lists if last else lists[:1], True, last, options)
