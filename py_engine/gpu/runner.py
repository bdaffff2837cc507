"""The WebGPU runner: drives gpu.py and replay.js, and measures the time of its steps."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyodide.ffi import to_js

from py_engine.errors import WispError
from py_engine.gpu import masking
from py_engine.gpu.contents import GpuContents
from py_engine.gpu.encoding import Encoding
from py_engine.gpu.gpu import Gpu
from py_engine.gpu.memory import obj
from py_engine.gpu.processors import GpuProcessors
from py_engine.gpu.step_times import StepTimes
from py_engine.gpu.submit import GpuSubmit, PartTime
from py_engine.plan import batch_sizes
from py_engine.plan.adapted_lists import AdaptedSequences
from py_engine.plan.draft import draft_step, names_of
from py_engine.plan.encoder import EncoderInputs, EncoderPlan
from py_engine.plan.lists import DECODE, PACKED, PACKED_LAST, SMALL_BATCH_END, SMALL_BATCH_LOGITS, forced_tokens
from py_engine.plan.low_rank import SCALES
from py_engine.plan.packing import PackedBatch
from py_engine.plan.processors import Processor
from py_engine.plan.sampler_ops import Rules
from py_engine.plan.sampling import MASKED_AT, SAMPLING_BYTES, Batch, Sampling, samplers, step
from py_engine.plan.shared_constants import MAX_STEPS, SHORT_BATCH
from py_engine.runners import (
    DEFAULT_FEED,
    FeedOptions,
    HeldSequence,
    MaskedRow,
    MaskedTokens,
    Rounding,
    Row,
)
from py_engine.tasks import quietly

MIN_PROMPT = 64  # tokens of a part of a prompt, at least: a tile of the matrix kernels
WAIT_MS = 2.5  # until the browser reports a result
# How far to sample ahead under a constraint, which may reject tokens. The browser reports submits one after the other.
LOOKAHEAD_MS = 16.0
MASKED_MS = 48.0  # of tokens that are sampled with masks before the first of them is handed on


class GpuRunner(GpuContents):
    """Runs one plan on a GPU."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(gpu)
        self.on_gpu, self.queues, self.divides_prompts = not gpu.variant.software, True, True
        self.numpy, self.threads, self.wait_ms = False, 0, WAIT_MS
        self._samplings: dict[int, Sampling] = {}  # of every sequence that was configured
        self._rules, self.processors = Rules(self.plan.n_vocab), GpuProcessors(gpu)
        self._adapted = AdaptedSequences(self.plan)
        self._masked: set[int] = set()  # sequences whose next tokens a mask restricts
        self._steps: dict[tuple[int, ...], list[str]] = {}  # lists of a step by its sequences; cleared when one changes
        self._shifts: dict[int, int] = {}  # of rotary positions, by sequence, where it is not 0
        self._in_flight: deque[GpuSubmit] = deque()
        self._times = StepTimes()
        self._part_time = PartTime()
        self._held: HeldSequence | None = None
        self._encoding = Encoding(gpu, self._times)

    def set_scales(self, seq: int, scales: bytes) -> None:
        self._check()
        self._adapted.set(seq, scales)
        self._steps.clear()
        self.gpu.write(SCALES, scales, seq * len(scales))

    async def configure(self, sampling: Sampling, answer: int, shifted: int, constrained: bool, seq: int = 0) -> None:
        self._check()
        if sampling.processor is not None:
            await self.add_processor(sampling.processor)
        await self._awaited(self.gpu.compile(names={*sampling.lists(), *sampling.lists(constrained)}))
        before = self._samplings.get(seq, Sampling())
        if sampling.logit_bias != before.logit_bias:
            self.gpu.write("rules", sampling.biases(), self._rules.biases(seq))
        if sampling.dry_breakers != before.dry_breakers:
            self.gpu.write("rules", sampling.breaker_bits(self.plan.n_vocab), self._rules.breakers(seq))
        self.gpu.write("sampling", sampling.pack(answer, shifted), seq * SAMPLING_BYTES)
        self.processors.set(seq, sampling.processor, answer)
        self._samplings[seq] = sampling
        self._masked.discard(seq)
        self._steps.clear()

    async def add_processor(self, processor: Processor) -> None:
        self._check()
        await self._awaited(self.processors.add(processor))

    def feed(
        self, position: int, ids: list[int], lists: Sequence[str], seq: int = 0, *, read: bool = False,
        options: FeedOptions = DEFAULT_FEED,
    ) -> Sequence[Callable[[], None]]:  # fmt: skip
        self._check()
        if options.shift not in (None, self._shifts.get(seq, 0)):
            self.gpu.set_shift(seq, options.shift)
            self._shifts[seq] = options.shift
        if options.media is not None:
            self.gpu.set_media(options.media)
        logprobs = self._samplings[seq].logprobs if read and seq in self._samplings else -1
        submit = GpuSubmit(0, len(ids), logprobs=(logprobs,), read=read, slices=options.slices)
        self._in_flight.append(submit)
        found = self._for_batch(self._adapted.lists(lists, [seq]), len(ids), options.rounding)
        rest = self.gpu.feed(position, ids, found, seq, read, logprobs >= 0, options.slices)
        if options.slices == 1:
            return []
        return [partial(self._submit_slice, replace(submit, slice_=i), slice_) for i, slice_ in enumerate(rest, 1)]

    def _submit_slice(self, submit: GpuSubmit, slice_: Callable[[], None]) -> None:
        self._check()
        self._in_flight.append(submit)
        slice_()

    def _for_batch(self, lists: list[str], n: int, rounding: Rounding = Rounding.SAME) -> list[str]:
        """The lists for a batch of n tokens. The usual ones do for all sizes, until the others are compiled."""
        for split in (True, False) if rounding == Rounding.ANY else (False,):
            found = batch_sizes.lists_for(self.plan, lists, n, split_attention=split)
            if found == lists or self.prepared(found):
                return found
        return lists

    async def prepare(self, lists: Sequence[str], sequences: Sequence[int] = ()) -> None:
        self._check()
        await self._awaited(self.gpu.compile(names=self._adapted.lists(lists, sequences)))

    def prepared(self, lists: Sequence[str], sequences: Sequence[int] = (), *, soon: bool = False) -> bool:
        lists = self._adapted.lists(lists, sequences)
        if missing := set(lists) - self.gpu.recorded:
            self._preparation.begin(missing, soon=soon)
        return not missing

    def step_lists(
        self, sequences: Sequence[int], *, masked: bool = False, drafting: bool = False, n_model_draft: int = 0
    ) -> list[str]:
        if drafting:
            return names_of(draft_step(self._samplings, self._adapted, sequences, n_model_draft))
        masked, key = masked or not self._masked.isdisjoint(sequences), tuple(sequences)
        if not masked and key in self._steps:
            return self._steps[key]
        before, after = step([self._samplings[seq] for seq in sequences], masked)
        lists = self._adapted.lists([*before, *after], sequences)
        if not masked:
            self._steps[key] = lists
        return lists

    def decode(self, rows: Sequence[Row], steps: int) -> None:
        self._check()
        sequences = [row.seq for row in rows]
        submit = GpuSubmit(len(rows), steps, logprobs=tuple(self._samplings[seq].logprobs for seq in sequences))
        self._in_flight.append(submit)
        self.gpu.decode(rows, steps, self.step_lists(sequences), with_rows=submit.scored)

    def start_drafts(self, rows: Sequence[Row]) -> None:
        self._check()
        self.gpu.replay.startDrafts(to_js([obj(seq=row.seq, position=row.position) for row in rows]))

    def draft(self, rows: Sequence[Row], steps: int, ends: Sequence[int], n_model_draft: int = 0) -> bool:
        self._check()
        step = draft_step(self._samplings, self._adapted, [row.seq for row in rows], n_model_draft)
        lists = [{"lists": names, "n": n} for names, n in step]
        request = obj(steps=steps, step=lists, ends=list(ends), lookup=not n_model_draft)
        submitted = bool(self.gpu.replay.draft(request))
        if submitted:
            self._in_flight.append(GpuSubmit(len(rows), steps, drafting=True, n_model_draft=n_model_draft))
        return submitted

    async def result(self) -> list[Batch]:
        self._skip_unread()
        submit = self._in_flight[0]
        result = await self._awaited(
            self.gpu.replay.result(self._times.shortest(submit.kind) * submit.steps / submit.slices)
        )
        self._in_flight.popleft()
        queued, ms = bool(result.queued), self._part_time.add(submit, float(result.ms))
        if not submit.ends_part:
            return submit.batches(result, self.plan.n_vocab)
        # Nothing was queued before it, so its time includes the browser's report. Drafts on trial are never queued:
        # without this they would never be timed.
        if submit.n_model_draft and not queued:
            queued, ms = True, max(ms - WAIT_MS, ms / 2)
        self._times.add(submit.kind, ms / submit.steps, queued, falls=submit.n_model_draft > 0)
        return submit.batches(result, self.plan.n_vocab)

    def _skip_unread(self) -> None:
        while not self._in_flight[0].read:
            self._in_flight.popleft()

    def step_ms(self, rows: int, *, drafting: bool = False, n_model_draft: int = 0) -> float:
        if drafting:
            return self._times.ms((rows, True, n_model_draft))
        return self._times.plain_ms((rows, False, 0), drafting=(rows, True, 0))

    def steps_in(self, rows: int, ms: float, *, drafting: bool = False, n_model_draft: int = 0) -> int:
        return self._times.steps_in((rows, drafting, n_model_draft), ms, MAX_STEPS // 4 if drafting else MAX_STEPS)

    def prompt_ms(self, n: int) -> float:
        return self._times.prompt_ms(n)

    def prompt_timed(self, n: int) -> bool:
        return self._times.prompt_timed(n)

    def prompt_token_ms(self) -> float:
        return self._times.prompt_token_ms()

    def prompt_tokens_in(self, ms: float) -> int:
        return self._times.prompt_tokens_in(ms, min(MIN_PROMPT, self.plan.batch), self.plan.batch)

    # -- one sequence under the host's control

    def begin(self, position: int, count: int, seq: int = 0) -> None:
        self._held = HeldSequence(Row(seq, position - 1), count)

    def mask(self, allowed: Any | None, seq: int) -> None:
        self._check()
        if allowed is not None:
            bits = allowed if isinstance(allowed, bytes) else allowed.subarray(0, self._rules.bit_words)
            self.gpu.write("rules", bits, self._rules.mask(seq))
        self._set_masked(seq, allowed is not None)

    def _set_masked(self, seq: int, masked: bool) -> None:
        if masked != (seq in self._masked):
            self._masked ^= {seq}
            self.gpu.write("sampling", struct.pack("<I", masked), seq * SAMPLING_BYTES + MASKED_AT)

    async def read_logits(self) -> Any:
        self._check()
        return await self._awaited(self.gpu.vector("logits"))

    def write_logits(self, logits: bytes) -> None:
        self._check()
        self.gpu.write("logits", logits)

    def step(self, count: int, eager: bool = False) -> int:
        self._check()
        held = self._held
        assert held is not None
        seq = held.row.seq
        forward, lists = self._held_lists(seq)
        count = min(count, held.left, MAX_STEPS)
        submit = GpuSubmit(1, count, logprobs=(self._samplings[seq].logprobs,))
        self._in_flight.append(submit)
        first = [*forward, *lists] if held.sampled else lists
        self.gpu.decode([held.row], count, [*forward, *lists], with_rows=submit.scored, first=first)
        held.advance(count)
        held.sampled = True
        if eager and held.left:  # the context may end here
            self._forward(held.row)
            held.sampled = False
        return count

    async def take(self) -> tuple[Batch, bool]:
        self._skip_unread()
        result = await self._awaited(self.gpu.replay.result())
        (batch,) = self._in_flight.popleft().batches(result, self.plan.n_vocab)
        self._times.add_waiting(len(batch.ids), float(result.ms))
        return batch, bool(result.resampled[0])

    async def sample_masked(self, source: Any, most: int, unchanged: int) -> MaskedTokens:
        self._check()
        held = self._held
        assert held is not None
        seq = held.row.seq
        self._set_masked(seq, True)
        forward, lists = self._held_lists(seq)
        first = [*forward, *lists] if held.sampled else lists
        ms, (found,) = await masking.sample(
            self.gpu, self._rules, [MaskedRow(held.row, source)],
            left=held.left, most=most, unchanged=unchanged, ms=MASKED_MS, eager=True,
            first=first, sample=lists, forward=forward, feed=self._feeding(seq),
        )  # fmt: skip
        # Also where the device is lost meanwhile: the constraint has advanced past these tokens.
        n = len(found.batch.ids)
        held.advance(n)
        held.sampled = not held.left
        self._times.add_waiting(len(found.changed), ms)  # the other tokens were fed
        return found

    async def decode_masked(self, rows: Sequence[MaskedRow], most: int, ms: float) -> list[MaskedTokens]:
        self._check()
        sequences = [row.row.seq for row in rows]
        for row in rows:
            self._set_masked(row.row.seq, row.source is not None)
        before, after = step([self._samplings[seq] for seq in sequences], masked=True)
        forward, lists = (self._adapted.lists(names, sequences) for names in (before, after))
        _, found = await masking.sample(
            self.gpu, self._rules, rows, left=most, most=most, unchanged=most, ms=ms, eager=False,
            first=[*forward, *lists], sample=lists, forward=forward,
        )  # fmt: skip
        return found

    def end_masked(self) -> None:
        self.gpu.replay.masking.stop()

    def _feeding(self, seq: int) -> dict[str, Any]:
        """How masked.js feeds forced tokens of a sequence, as forced_tokens.py would."""
        one, batch = (self._adapted.lists(forced_tokens(tokens, logits=True), [seq]) for tokens in (1, SHORT_BATCH))
        return {"one": one, "batch": batch, "most": SHORT_BATCH if self.prepared(SMALL_BATCH_END, [seq]) else 1}

    def _held_lists(self, seq: int) -> tuple[list[str], list[str]]:
        """The lists that compute the logits of the held sequence, and those that sample from them."""
        return self._adapted.lists([DECODE], [seq]), samplers([self._samplings[seq]], seq in self._masked)

    def rewind(self, position: int, count: int) -> None:
        self._check()
        assert self._held is not None
        self.gpu.replay.drop()
        self._in_flight.clear()
        seq = self._held.row.seq
        self._held = HeldSequence(Row(seq, position - 1), count)
        self._forward(self._held.row)

    def _forward(self, row: Row) -> None:
        """Compute the logits after a sequence's newest token."""
        forward = self._adapted.lists([DECODE], [row.seq])
        self.gpu.replay.forward(to_js([obj(seq=row.seq, position=row.position)]), to_js(forward))

    def max_lookahead(self) -> int:
        if self.plan.recurrent:  # only the newest token can be computed again
            return 1
        step = self.step_ms(1)
        return max(1, min(MAX_STEPS, int(LOOKAHEAD_MS / step))) if step else 1

    async def stop(self) -> None:
        self._in_flight.clear()
        if not self.gpu.lost:
            await self.gpu.replay.masking.end()
            while await self.gpu.replay.result():
                pass

    def feed_packed(self, batch: PackedBatch, lists: Sequence[str], seq: int = 0) -> None:
        self._check()
        self.gpu.feed_packed(batch, self._for_batch(self._adapted.lists(lists, [seq]), len(batch.ids)), seq)

    @property
    def packs_prompts(self) -> bool:
        return PACKED_LAST in self.plan.lists

    def prepared_packed(self, sequences: Sequence[int]) -> bool:
        if self._adapted.lists([PACKED], sequences) != [PACKED]:
            return False
        return self.prepared([PACKED, PACKED_LAST, *self._packed_end(sequences)], soon=True)

    def _packed_end(self, sequences: Sequence[int]) -> list[str]:
        """The lists that sample a token after each of several packed prompts."""
        return [SMALL_BATCH_LOGITS, *samplers([self._samplings[seq] for seq in sequences], masked=False, batch=True)]

    def feed_prompts(self, batch: PackedBatch, rows: Sequence[Row]) -> None:
        self._check()
        sequences = [row.seq for row in rows]
        for seq in sequences:  # packed prompts have no shift
            if self._shifts.pop(seq, 0):
                self.gpu.set_shift(seq, 0)
        submit = GpuSubmit(0, len(batch.ids), logprobs=tuple(self._samplings[seq].logprobs for seq in sequences))
        self._in_flight.append(submit)
        self.gpu.feed_packed(batch, self._for_batch([PACKED, PACKED_LAST], len(batch.ids)), rows[0].seq)
        self.gpu.decode(rows, 1, self._packed_end(sequences), with_rows=submit.scored)

    def pooled(self, name: str, rows: int, width: int, lists: Sequence[str] = ()) -> Awaitable[Any]:
        self._check()
        return quietly(asyncio.ensure_future(self._awaited(self.gpu.pooled(name, rows, width, lists))))

    async def encode(self, encoder: EncoderPlan, inputs: EncoderInputs) -> Any:
        await self.prepare([stage.list for stage in encoder.stages])
        return await self._awaited(self._encoding.run(encoder, inputs))

    async def compile(self, on_progress: Callable[[int, int], None]) -> None:
        """Compile the kernels of all lists that are not lazy. Must end before anything runs."""
        await self.gpu.compile(on_progress)

    def lists_for(self, names: Sequence[str], seq: int, n: int) -> list[str]:
        """The lists that run in place of these for n tokens of a sequence: with adapters if it has any."""
        return batch_sizes.lists_for(self.plan, self._adapted.lists(names, [seq]), n)

    async def time_lists(self, position: int, n: int, names: Sequence[str], seq: int = 0) -> float:
        """Time lists run one after the other on n tokens at `position`, in nanoseconds."""
        await self.gpu.compile(names=names)
        self.feed(position, [0] * n, [], seq)
        return await self.gpu.time_lists(list(names), n, 1 if self.gpu.variant.software else 10, position + n)

    async def profile(self, position: int, n: int, name: str, seq: int = 0) -> list[float]:
        """Time each dispatch of a list on n tokens at `position`, in nanoseconds."""
        if not self.gpu.device.features.has("timestamp-query"):
            raise WispError("This adapter cannot time its kernels: it lacks timestamp-query.", "unsupported_parameter")
        await self.gpu.compile(names=[name])
        self.feed(position, [0] * n, [], seq)
        return await self.gpu.profile(name, n, 1 if self.gpu.variant.software else 20, position + n)

    def close(self) -> None:
        self._preparation.close()
        self.gpu.close()
