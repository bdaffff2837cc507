"""One answer while it is generated: its tokens so far and its place in the context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from py_engine.generate.media import PromptMedia
from py_engine.plan.sampling import Batch, Constraint, Sampling


@dataclass
class GenerationStats:
    """Figures of one request. `prefill_ms` ends with the first token."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    shifted_tokens: int = 0  # dropped from a full context
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    submits: int = 0  # this and the next three count the device's work for all requests; set when the answer ends
    dispatches: int = 0
    encode_ms: float = 0.0  # spent encoding and submitting GPU work
    wait_ms: float = 0.0  # spent waiting for the GPU; near 0: the host is the bottleneck
    seed: int | None = None  # that its tokens are sampled with

    @property
    def context(self) -> int:
        """Tokens of the prompt and the answer."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class AnswerLimits:
    """Where an answer ends, and what happens when the context is full."""

    max_tokens: int
    stop_ids: frozenset[int] = frozenset()  # each of them ends the answer and is yielded last
    # None: a full context ends the answer. n: the first n tokens stay, the older half of the others is dropped, and the
    # answer continues.
    keep: int | None = None
    private: bool = False  # what is computed for it must not outlive the page


@dataclass(frozen=True)
class Begun:
    """What an earlier worker generated of an answer, and the seed that it sampled with."""

    ids: list[int]
    seed: int | None
    branched: bool = False  # the last token was chosen by hand: the text before it need not be computed as it was


@dataclass(frozen=True)
class GenerationRequest:
    """What to generate an answer from.

    `constraint` limits each token; it has advanced past what was `begun`. `media`: of the prompt. `scales`: of the LoRA
    adapters and control vectors, in their order; None: the default ones.
    """

    prompt: Sequence[int]  # token ids, and those that stand for media
    sampling: Sampling
    limits: AnswerLimits
    constraint: Constraint | None = None
    begun: Begun | None = None
    media: PromptMedia = field(default_factory=PromptMedia)
    scales: Sequence[float] | None = None


@dataclass
class Answer:
    """The answer to one request. `ids` starts as the prompt and is what the context holds, or will hold."""

    ids: list[int]
    sampling: Sampling
    left: int  # tokens that may still follow
    stop_ids: frozenset[int]
    constraint: Constraint | None = None
    media: PromptMedia = field(default_factory=PromptMedia)
    exact: bool = False  # the text must not depend on the cache, or on an interruption
    private: bool = False  # as in AnswerLimits
    scales: Sequence[float] = ()  # of the plan's adapters
    begins: int = field(init=False)  # index of its first token in `ids`
    tokens: int = 0  # generated so far
    begun: int = 0  # of them before this request
    shifted: int = 0  # tokens dropped from the context
    done: bool = False
    lacks_pages: bool = False  # it continues when there are pages
    needs: int = 0  # positions that a constraint's next tokens need at least: forced ones, or those sampled ahead
    prompted: int = field(init=False)  # tokens of `ids` that are fed in batches, as a prompt; later ones were decoded
    stats: GenerationStats = field(default_factory=GenerationStats)

    def __post_init__(self) -> None:
        self.begins = self.prompted = len(self.ids)

    def start_decoder(self, token: int) -> None:
        """Have an encoder read the prompt, and the answer follow the decoder's first token."""
        self.ids.append(token)
        self.begins += 1
        self.exact = True  # tokens after the prompt are the decoder's: they are never fed as a prompt

    def resume(self, tokens: list[int], keep: int | None, n_ctx: int) -> None:
        """Go on after tokens that were generated before. Shifts the context wherever they did."""
        self.accept(Batch(tokens))
        self.begun = self.tokens
        for token in tokens:
            self.ids.append(token)
            if keep is not None and len(self.ids) > n_ctx and not self.done:
                self.shift(keep, n_ctx)

    def accept(self, batch: Batch) -> Batch:
        """Count a batch's tokens, up to and including one that ends the answer, and return those."""
        stop = next((i for i, token in enumerate(batch.ids) if token in self.stop_ids), None)
        batch = batch if stop is None else batch[: stop + 1]
        self.tokens += len(batch.ids)
        self.left -= len(batch.ids)
        self.done = stop is not None or self.left <= 0
        return batch

    def shift(self, keep: int, n_ctx: int) -> int:
        """Free a part of the context: keep the first `keep` tokens, drop the older half of the others.

        Returns how many tokens were dropped. What is left is a prompt from now on.
        """
        keep = min(keep, n_ctx // 2)
        dropped = (len(self.ids) - keep) // 2
        del self.ids[keep : keep + dropped]
        self.begins = self.begins if self.begins <= keep else max(keep, self.begins - dropped)
        self.shifted += dropped
        self.stats.shifted_tokens += dropped
        self.prompted, self.needs = len(self.ids), 0
        return dropped
