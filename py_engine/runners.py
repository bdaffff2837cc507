"""What the engine needs of an executor. There are gpu/runner.py (WebGPU), cpu/wasm_runner.py (the CPU engine)
and cpu/runner.py (numpy).

`load` copies weights out of a record. Work is submitted, and its results are read later, in the same order:
    feed                             tokens of a sequence, at their positions: a part of a prompt
    feed_packed, pooled              tokens of several sequences at once, and what their pooling yields
    decode                           steps of any sequences
    start_drafts, draft              steps of any sequences, each with drafts of their next tokens
    begin, mask, step, take, rewind  one sequence, step by step under the host's control; nothing else may be submitted
generate/ schedules the calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.plan.encoder import EncoderInputs, EncoderPlan
from py_engine.plan.lists import DECODE_STEP, EMBED, GREEDY, PACKED, PREFILL, PREFILL_END, pool
from py_engine.plan.media import MediaBatch
from py_engine.plan.packing import PackedBatch, packed_batches
from py_engine.plan.placement import Placement
from py_engine.plan.plan import Plan
from py_engine.plan.processors import Processor
from py_engine.plan.sampling import Batch, Sampling
from py_engine.plan.shared_constants import SHORT_BATCH

WARM_UP_TOKENS = 16  # of warm_up()'s prompt
Turn = Callable[[], AbstractAsyncContextManager[None]]  # waits for the device, and holds it


@dataclass(frozen=True)
class Counts:
    """Work of a device so far; milliseconds spent encoding it and waiting for its results."""

    submits: int = 0
    dispatches: int = 0
    encode_ms: float = 0.0
    wait_ms: float = 0.0

    def since(self, before: Counts) -> dict[str, Any]:
        """The difference to earlier counts, by name."""
        return {f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)}


class Rounding(Enum):
    """How a batch of a prompt may be rounded."""

    FLOATS = "products with floats, also where the CPU engine rounds inputs to bytes"
    SAME = "a token has the same result in a batch of any size"
    ANY = "the fastest way: a token's result may depend on the size of its batch"


@dataclass(frozen=True)
class FeedOptions:
    """How a batch of a prompt is computed.

    `media`: what the list MEDIA needs. `shift`: rotary position - position, of later tokens without media (M-RoPE);
    None: as it is. `rounding`: lists that run with ALL_LOGITS always have FLOATS. `slices`: how many submits divide the
    first list, of a runner that `divides_prompts`.
    """

    media: MediaBatch | None = None
    shift: int | None = None
    rounding: Rounding = Rounding.SAME
    slices: int = 1


DEFAULT_FEED = FeedOptions()
FLOAT_FEED = FeedOptions(rounding=Rounding.FLOATS)
Kind = tuple[int, bool, int]  # (rows, drafting, n_model_draft): submits of a kind take the same time per step


@dataclass(frozen=True)
class Row:
    """A sequence in a batch, and the position of its newest token."""

    seq: int
    position: int


def tokens_per_draft(sequences: int) -> int:
    """The tokens that a step with drafts of so many sequences yields of each at most."""
    return SHORT_BATCH - sequences + 1


@dataclass(frozen=True)
class MaskedRow:
    """A sequence of Runner.decode_masked, and what restricts its next tokens.

    `source`: makes masks without Python (Constraint in plan/sampling.py); None: every token may come next. `forced`:
    the ids that come next. `fetch_forced`: more of them, where the source cannot sample; None: the text has ended.
    """

    row: Row
    source: Any | None = None
    forced: Sequence[int] = ()
    fetch_forced: Callable[[], Awaitable[list[int] | None]] | None = None


@dataclass(frozen=True)
class MaskedTokens:
    """Tokens that were sampled with masks, and whether the mask changed each of those that were not forced.

    `forced`: the ids that come next. `ended`: nothing may follow. `error`: of the constraint, after these tokens.
    `mask_ms`: that the masks took.
    """

    batch: Batch
    changed: Sequence[bool]
    forced: Sequence[int] = ()
    ended: bool = False
    error: str = ""
    mask_ms: float = 0.0


def constraint_failed(error: str) -> WispError:
    """The error of an answer whose constraint cannot make a mask, or rejects a token of it."""
    return WispError(f"The answer's form cannot be followed: {error}.", "internal_error", SERVER_ERROR)


# (constraint's `source`, most tokens, how many that no mask changes end it): see Runner.sample_masked
SampleMasked = Callable[[Any, int, int], Coroutine[Any, Any, MaskedTokens]]
# (rows, most steps, milliseconds after which they end): see Runner.decode_masked
DecodeMasked = Callable[[Sequence[MaskedRow], int, float], Awaitable[list[MaskedTokens]]]


@dataclass
class HeldSequence:
    """A sequence under the host's control: its newest token, and the tokens that may still follow."""

    row: Row
    left: int
    sampled: bool = False  # the newest token has not gone through the layers

    def advance(self, tokens: int) -> None:
        """Go on after so many tokens."""
        self.row, self.left = Row(self.row.seq, self.row.position + tokens), self.left - tokens


class Runner(Protocol):
    """An executor of one plan."""

    plan: Plan
    on_gpu: bool  # a real GPU, where small batches have kernels of their own
    queues: bool  # whether submits run while the host goes on
    divides_prompts: bool  # whether it submits FeedOptions.slices one by one
    numpy: bool  # whether rows of results are numpy arrays; else JavaScript Float32Arrays
    threads: int  # of the CPU that compute; 0: a GPU does
    wait_ms: float  # that the device has no work when a submit follows from the result of the one before, about

    @property
    def lost(self) -> str | None:
        """Why its device was lost; None while it works. Every call then raises WispError device_lost."""

    async def load(self, data: Any, placements: Sequence[Placement]) -> None:
        """Copy weights out of a record, a JavaScript ArrayBuffer. On return it may be freed."""

    async def ready(self) -> None:
        """Wait until every weight is in place."""

    async def reserve_pages(self, pages: Sequence[int], turn: Turn) -> None:
        """Grow the caches to so many pages, by group; what they hold stays. WispError out_of_memory.

        `turn()` holds the device while they are replaced. Sequences may run while memory is allocated for them.
        """

    def set_pages(self, group: int, seq: int, first: int, pages: Sequence[int]) -> None:
        """Write entries of a sequence's block table, from entry `first` on."""

    def copy_page(self, group: int, source: int, to: int) -> None:
        """Copy a page in every cache of the group."""

    async def read_pages(self, pages: Sequence[tuple[int, int]]) -> Any:
        """The contents of pages (group, page), one after the other: an ArrayBuffer, or bytes on the CPU."""

    def write_pages(self, pages: Sequence[tuple[int, int, int]], data: Any) -> None:
        """Write pages (group, page, first byte in `data`). `data`: of read_pages()."""

    def set_tokens(self, seq: int, position: int, ids: list[int]) -> None:
        """Write tokens of a sequence that are not fed: penalties and drafts read them."""

    async def configure(self, sampling: Sampling, answer: int, shifted: int, constrained: bool, seq: int = 0) -> None:
        """Set a sequence's sampling parameters.

        `answer`: position of the answer's first token; `shifted`: tokens dropped from the context; `constrained`: masks
        will follow.
        """

    async def add_processor(self, processor: Processor) -> None:
        """Compile a logits processor. WispError invalid_value; unsupported_parameter without a GPU."""

    def set_scales(self, seq: int, scales: bytes) -> None:
        """Set a sequence's scales of the plan's adapters (Adapters.pack).

        Whatever lists the other calls name, those with adapters run where a sequence has any (adapted_lists.py).
        """

    def feed(
        self, position: int, ids: list[int], lists: Sequence[str], seq: int = 0, *, read: bool = False,
        options: FeedOptions = DEFAULT_FEED,
    ) -> Sequence[Callable[[], None]]:  # fmt: skip
        """Submit lists over a sequence's tokens at `position`. The lists must be prepared.

        `read`: result() then returns the token that they sampled. With several slices only the first one is submitted;
        returns what submits each of the others. Between them any steps may be submitted, but no other list for prompts.
        result() returns something for each slice, and the token for the last one.
        """

    async def prepare(self, lists: Sequence[str], sequences: Sequence[int] = ()) -> None:
        """Compile lists, so that they can run: those with adapters if one of `sequences` has any."""

    def prepared(self, lists: Sequence[str], sequences: Sequence[int] = (), *, soon: bool = False) -> bool:
        """Whether lists can run now for these sequences. If not, they will be compiled.

        `soon`: at once, also where their kernels must be proven, which slows what runs now.
        """

    def step_lists(
        self, sequences: Sequence[int], *, masked: bool = False, drafting: bool = False, n_model_draft: int = 0
    ) -> list[str]:
        """The lists of one step of these sequences, which configure() has set. `n_model_draft`: as of draft().

        `masked`: masks restrict what some of them sample.
        """

    def decode(self, rows: Sequence[Row], steps: int) -> None:
        """Submit decode steps: each computes the rows' newest tokens and samples the next ones."""

    def start_drafts(self, rows: Sequence[Row]) -> None:
        """Begin to decode sequences with drafts, at most SHORT_BATCH. All drafts' results must have been read."""

    def draft(self, rows: Sequence[Row], steps: int, ends: Sequence[int], n_model_draft: int = 0) -> bool:
        """Submit steps with drafts of all the sequences of start_drafts(), in the same order.

        False, and nothing is submitted, if they might compute positions of a sequence from its end in `ends` on; a step
        yields up to tokens_per_draft() of each. `n_model_draft`: tokens that the plan's draft model or MTP layer drafts
        of each in a step; 0: the drafts are prompt lookup's. Between two start_drafts(), all are of one kind.
        """

    @property
    def decode_masked(self) -> DecodeMasked | None:
        """Decodes steps of sequences in turn, each with the masks after the one before; returns each sequence's tokens.

        No submit with a result may be in flight. It ends after the most steps, some milliseconds, where a sequence
        ends or fails, or soon after end_masked(). None: the host must make each mask.
        """

    def end_masked(self) -> None:
        """Have decode_masked() end soon, if it runs: other work waits."""

    async def result(self) -> list[Batch]:
        """The tokens of the oldest submit that has not been read, row by row; of a submit with drafts, any number."""

    def steps_in(self, rows: int, ms: float, *, drafting: bool = False, n_model_draft: int = 0) -> int:
        """Decode steps of so many rows that take about `ms`, from measured times; at least 1, at most MAX_STEPS."""

    def prompt_tokens_in(self, ms: float) -> int:
        """Prompt tokens that take about `ms`; at least one small batch, at most a whole one."""

    def prompt_ms(self, n: int) -> float:
        """Milliseconds of a part of a prompt of n tokens; 0: not measured yet."""

    def prompt_timed(self, n: int) -> bool:
        """Whether parts of about n tokens were timed. If not, prompt_ms() may be far too short or too long."""

    def prompt_token_ms(self) -> float:
        """Milliseconds of a token of a long prompt; 0: not measured yet."""

    def step_ms(self, rows: int, *, drafting: bool = False, n_model_draft: int = 0) -> float:
        """Milliseconds of one decode step; 0: not measured yet."""

    def begin(self, position: int, count: int, seq: int = 0) -> None:
        """Begin decoding up to `count` tokens by step(); the last feed has computed the first one's logits."""

    def mask(self, allowed: Any | None, seq: int) -> None:
        """Set which tokens the next steps of a sequence may sample (Constraint.mask); None: all."""

    async def read_logits(self) -> Any:
        """The logits that the next step() samples from, float32 (vocab,), as rows() returns them."""

    def write_logits(self, logits: bytes) -> None:
        """Replace the logits that the next step() samples from: the bytes of float32 (vocab,)."""

    def step(self, count: int, eager: bool = False) -> int:
        """Sample the next tokens, each from the logits of the one before; returns how many there will be.

        `eager`: also compute the logits after the last one, while the host looks at the tokens.
        """

    async def take(self) -> tuple[Batch, bool]:
        """The tokens of the oldest step(), and whether the mask rejected the first choice of any of them."""

    @property
    def sample_masked(self) -> SampleMasked | None:
        """Samples tokens in turn, each with the mask after the one before, as mask(), step() and take() would.

        Forced tokens that the source knows are fed between them. It ends after the most tokens, some milliseconds, a
        number of tokens in a row that no mask changed, or where other forced tokens come next, or the end. None: the
        host must make each mask.
        """

    def rewind(self, position: int, count: int) -> None:
        """Drop the tokens from `position` on and recompute its logits; up to `count` tokens may follow."""

    def max_lookahead(self) -> int:
        """Tokens that are worth sampling before the first of them is checked."""

    async def stop(self) -> None:
        """Wait for all submits and drop their results."""

    async def finish(self) -> None:
        """Wait for what was fed without being read. No submit with a result is in flight."""

    async def logits(self, n: int) -> Any:
        """The first n rows of the list ALL_LOGITS after a feed, float32 (n, vocab)."""

    async def rows(self, name: str, n: int, width: int) -> Any:
        """The first n rows of a buffer of the plan without padding, float32 (n, width)."""

    def feed_packed(self, batch: PackedBatch, lists: Sequence[str], seq: int = 0) -> None:
        """Submit lists over a batch of the packed sequence `seq`. The lists must be prepared."""

    def pooled(self, name: str, rows: int, width: int, lists: Sequence[str] = ()) -> Awaitable[Any]:
        """Submit lists over the first `rows` rows of a buffer after all feed_packed(); the rows, float32 (rows, width).

        What is submitted later does not change them.
        """

    async def encode(self, encoder: EncoderPlan, inputs: EncoderInputs) -> Any:
        """Run an encoder; its results, float32 (tokens, width).

        Where submits run while the host goes on (`queues`), another run may begin before the results are there.
        """

    def counts(self) -> Counts:
        """Work of the device so far."""

    def close(self) -> None:
        """Free all memory."""


@runtime_checkable
class PackingRunner(Runner, Protocol):
    """A runner that can read prompts of several requests as one batch (plan/packing.py)."""

    @property
    def packs_prompts(self) -> bool:
        """Whether its plan has the lists for packed prompts."""

    def prepared_packed(self, sequences: Sequence[int]) -> bool:
        """Whether prompts of these sequences can be fed together now. Begins to compile kernels that they lack."""

    def feed_prompts(self, batch: PackedBatch, rows: Sequence[Row]) -> None:
        """Feed packed prompts, and sample the token after each. `rows`: the last token of each prompt.

        The block table of the first row's sequence lists the pages of all prompts, in their order.
        """


async def warm_up(runner: Runner) -> None:
    """Run the lists that requests need first. The first run of a kernel on a GPU takes longer than all later ones.

    May run while weights arrive: nothing of its results is used.
    """
    if not runner.plan.generates:
        await (_encode_media(runner) if runner.plan.encoders else _encode(runner))
        return
    plan, n, position, shift = runner.plan, min(WARM_UP_TOKENS, runner.plan.batch), 0, None
    prompt = (*PREFILL_END, GREEDY) if plan.causal else (PREFILL,)
    if plan.encodes_prompts:  # the decoder's tokens follow the prompt
        n = position = min(n, plan.n_ctx - 1)
        prompt, shift = (PREFILL,), -n
    for at, count, lists in ((0, n, prompt), (position, 1, DECODE_STEP)):
        runner.feed(at, [0] * count, lists, read=True, options=FeedOptions(shift=shift))
        await runner.result()


async def _encode_media(runner: Runner) -> None:
    """Run a projector's first encoder, on inputs of zeros."""
    encoder = next(iter(runner.plan.encoders.values()))
    rows = {name: min(WARM_UP_TOKENS, most) for name, most in encoder.capacity.items()}
    await runner.encode(encoder, EncoderInputs((), rows, 1))


async def _encode(runner: Runner) -> None:
    n = min(16, runner.plan.batch)
    lists = [PACKED, EMBED, pool("last")]
    await runner.prepare(lists)
    for batch in packed_batches([[0] * n], n, n):
        runner.feed_packed(batch, lists)
    await runner.pooled("pooled", 1, 1)
