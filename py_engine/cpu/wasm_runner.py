"""The runner of the CPU engine: submits lists to its device, and reads tokens back."""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from py_engine.cpu.contents import WasmContents
from py_engine.cpu.device import Device, Read, Region
from py_engine.cpu.masking import Masking
from py_engine.cpu.op_times import op_times, time_of
from py_engine.cpu.step_times import PROMPT, CpuStepTimes
from py_engine.cpu.token_reader import TokenReader
from py_engine.plan.adapted_lists import AdaptedSequences
from py_engine.plan.draft import draft_step, names_of
from py_engine.plan.encoder import EncoderInputs, EncoderPlan
from py_engine.plan.lists import ALL_LOGITS, DECODE, SMALL_BATCH
from py_engine.plan.low_rank import SCALES
from py_engine.plan.packing import PackedBatch
from py_engine.plan.pages import STATE_WORDS
from py_engine.plan.plan import Plan
from py_engine.plan.processors import Processor, needs_gpu
from py_engine.plan.sampling import Batch, Sampling, samplers, step
from py_engine.plan.shared_constants import MAX_STEPS
from py_engine.runners import (
    DEFAULT_FEED,
    Counts,
    DecodeMasked,
    FeedOptions,
    HeldSequence,
    Kind,
    Rounding,
    Row,
    SampleMasked,
    tokens_per_draft,
)
from py_engine.tasks import quietly

MIN_PROMPT = 8  # tokens of a part of a prompt, at least: two tiles of products
LOOKAHEAD_MS = 16.0  # how far to sample ahead under a constraint, which may reject tokens


@dataclass(frozen=True)
class CpuSubmit:
    """Work whose result is to be read."""

    kind: Kind
    steps: int  # decode steps, or tokens of a prompt; 0: not timed
    result: asyncio.Future[Read]
    parse: Callable[[bytes], list[Batch]]
    begun: float = 0.0  # of drafts, whose time includes the wait for the result before


class WasmRunner(WasmContents):
    """Runs one plan on the CPU."""

    on_gpu, queues, divides_prompts, wait_ms = False, True, False, 0.0
    sample_masked: SampleMasked | None = None

    def __init__(self, plan: Plan, device: Device, threads: int | None = None) -> None:
        super().__init__(plan, device, threads)
        self._samplings: dict[int, Sampling] = {}  # of every sequence that was configured
        self._tokens = TokenReader(plan, self._memory, self._samplings)
        self._in_flight: deque[CpuSubmit] = deque()
        self._times = CpuStepTimes()
        self._drafted = 0.0  # when the newest result came, if it was that of drafts
        self._unread = 0  # tokens that were fed since the last read, which reports the time of all work since then
        self._adapted = AdaptedSequences(self.plan)
        masking = Masking(self, self._samplings, self._adapted)
        self.decode_masked: DecodeMasked | None = masking.decode
        self.end_masked = masking.stop
        self._masked: set[int] = set()  # sequences whose next tokens a mask restricts
        self._held: HeldSequence | None = None
        self._resampled = 0

    async def add_processor(self, processor: Processor) -> None:
        raise needs_gpu()

    def set_scales(self, seq: int, scales: bytes) -> None:
        self._check()
        self._adapted.set(seq, scales)
        self._inputs.write(SCALES, scales, seq * len(scales))

    async def configure(self, sampling: Sampling, answer: int, shifted: int, constrained: bool, seq: int = 0) -> None:
        self._check()
        self._inputs.sampling(seq, sampling, answer, shifted)
        self._samplings[seq] = sampling
        self._masked.discard(seq)

    # -- submits

    async def prepare(self, lists: Sequence[str], sequences: Sequence[int] = ()) -> None:
        """All lists are prepared: lowering takes milliseconds."""

    def prepared(self, lists: Sequence[str], sequences: Sequence[int] = (), *, soon: bool = False) -> bool:
        return True

    def step_lists(
        self, sequences: Sequence[int], *, masked: bool = False, drafting: bool = False, n_model_draft: int = 0
    ) -> list[str]:
        if drafting:
            return names_of(draft_step(self._samplings, self._adapted, sequences, n_model_draft))
        masked = masked or not self._masked.isdisjoint(sequences)
        before, after = step([self._samplings[seq] for seq in sequences], masked)
        return self._adapted.lists([*before, *after], sequences)

    def _run(self, lists: Sequence[str], times: int = 1, *, exact: bool = False) -> None:
        self._check()
        self._device.run(self._lists.of(lists, exact=exact), times)

    def _submit(self, kind: Kind, steps: int, regions: Sequence[Region], parse: Callable[[bytes], list[Batch]]) -> None:
        begun = (self._drafted or time.perf_counter()) if kind[1] else 0.0
        result = quietly(asyncio.ensure_future(self._device.read(regions)))
        if self._unread:  # their time is in the result's, too
            steps = steps + self._unread if kind == PROMPT else 0
        self._in_flight.append(CpuSubmit(kind, steps, result, parse, begun))
        self._unread = 0

    def feed(
        self, position: int, ids: list[int], lists: Sequence[str], seq: int = 0, *, read: bool = False,
        options: FeedOptions = DEFAULT_FEED,
    ) -> Sequence[Callable[[], None]]:  # fmt: skip
        self._check()
        if options.shift is not None:
            self._inputs.shift(seq, options.shift)
        if options.media is not None:
            self._inputs.media(options.media)
        self.set_tokens(seq, position, ids)
        small = SMALL_BATCH in lists
        self._inputs.states([Row(seq, position + i) for i in range(len(ids) if small else 1)], len(ids))
        exact = options.rounding == Rounding.FLOATS or ALL_LOGITS in lists
        self._run(self._adapted.lists(lists, [seq]), exact=exact)
        if read:
            regions, parse = self._tokens.of([Row(seq, position + len(ids) - 1)], 1)
            self._submit(PROMPT, len(ids), regions, parse)
        else:
            self._unread += len(ids)
        return ()

    def decode(self, rows: Sequence[Row], steps: int) -> None:
        self._check()
        self._inputs.states(rows, len(rows))
        self._run(self.step_lists([row.seq for row in rows]), steps)
        self._submit((len(rows), False, 0), steps, *self._tokens.of(rows, steps))

    def start_drafts(self, rows: Sequence[Row]) -> None:
        self._check()
        self._drafted = 0.0  # the time since then may be another model's
        self._inputs.states(rows, len(rows))
        for row in rows:
            self._inputs.start_draft(row.seq)

    def draft(self, rows: Sequence[Row], steps: int, ends: Sequence[int], n_model_draft: int = 0) -> bool:
        self._check()
        most = tokens_per_draft(len(rows))
        if self._in_flight or any(row.position + 1 + most > end for row, end in zip(rows, ends, strict=True)):
            return False
        for row, end in zip(rows, ends, strict=True):
            self._inputs.draft_end(row.seq, 0 if n_model_draft else end - 1)
        self._run(self.step_lists([row.seq for row in rows], drafting=True, n_model_draft=n_model_draft))
        regions = [self._inputs.newest_region(row.seq) for row in rows]
        regions += [self._inputs.tokens_region(row.seq, row.position + 1, most) for row in rows]

        def parse(data: bytes) -> list[Batch]:
            words = memoryview(data).cast("I").tolist()
            ids = words[len(rows) :]
            counts = [end - row.position for row, end in zip(rows, words, strict=False)]
            return [Batch(ids[most * i : most * i + count]) for i, count in enumerate(counts)]

        self._submit((len(rows), True, n_model_draft), 1, regions, parse)
        return True

    async def result(self) -> list[Batch]:
        submit = self._in_flight[0]
        found = await submit.result
        self._in_flight.popleft()
        self._record_time(submit, found)
        return submit.parse(_bytes(found.data))

    def _record_time(self, submit: CpuSubmit, found: Read) -> None:
        self._drafted = time.perf_counter() if submit.begun else 0.0
        ms = 1000 * (self._drafted - submit.begun) if submit.begun else found.ms
        if submit.steps:
            self._times.add(submit.kind, ms / submit.steps)

    # -- measured times

    def step_ms(self, rows: int, *, drafting: bool = False, n_model_draft: int = 0) -> float:
        return self._times.ms((rows, drafting, n_model_draft))

    def steps_in(self, rows: int, ms: float, *, drafting: bool = False, n_model_draft: int = 0) -> int:
        return self._times.steps_in((rows, drafting, n_model_draft), ms, 1 if drafting else MAX_STEPS)

    def prompt_ms(self, n: int) -> float:
        return n * self.prompt_token_ms()

    def prompt_timed(self, n: int) -> bool:
        return self.prompt_token_ms() > 0

    def prompt_token_ms(self) -> float:
        return self._times.ms(PROMPT)

    def prompt_tokens_in(self, ms: float) -> int:
        return self._times.prompt_tokens_in(ms, MIN_PROMPT, self.plan.batch)

    # -- steps with masks

    def begin_masked(self, rows: Sequence[Row], lists: Sequence[str]) -> None:
        self._check()
        self._inputs.states(rows, len(rows))
        self._run(lists)

    async def sample_masked_rows(self, rows: Sequence[Row], lists: Sequence[str]) -> list[tuple[int, bool]]:
        self._run(lists)
        regions, parse = self._tokens.of(rows, 1)
        size = 4 * STATE_WORDS * len(rows)
        found = await self._device.read([Region(self._memory.buffer("state"), size), *regions])
        data = _bytes(found.data)
        changed = [again > 0 for again in struct.unpack(f"<{size // 4}I", data[:size])[2::STATE_WORDS]]
        return [(batch.ids[0], again) for batch, again in zip(parse(data[size:]), changed, strict=True)]

    # -- one sequence under the host's control

    def begin(self, position: int, count: int, seq: int = 0) -> None:
        self._held, self._resampled = HeldSequence(Row(seq, position - 1), count), 0

    def mask(self, allowed: Any | None, seq: int) -> None:
        self._check()
        if allowed is None and seq not in self._masked:
            return
        self._inputs.mask(seq, allowed)
        self._masked = self._masked | {seq} if allowed is not None else self._masked - {seq}

    async def read_logits(self) -> Any:
        self._check()
        return await self._device.floats(Region(self._memory.buffer("logits"), 4 * self.plan.n_vocab))

    def write_logits(self, logits: bytes) -> None:
        self._check()
        self._inputs.write("logits", logits)

    def step(self, count: int, eager: bool = False) -> int:
        held = self._held
        assert held is not None
        lists = samplers([self._samplings[held.row.seq]], held.row.seq in self._masked)
        forward = self._adapted.lists([DECODE], [held.row.seq])
        count = min(count, held.left, MAX_STEPS)
        first = 0 if held.sampled else 1
        if first:
            self._run(lists)
        if count > first:
            self._run([*forward, *lists], count - first)
        regions, parse = self._tokens.of([held.row], count)
        state = Region(self._memory.buffer("state"), 4 * STATE_WORDS)
        self._submit((1, False, 0), count, [state, *regions], parse)
        held.advance(count)
        held.sampled = True
        if eager and held.left:  # the context may end here
            self._run(forward)
            held.sampled = False
        return count

    async def take(self) -> tuple[Batch, bool]:
        found = await self._in_flight[0].result
        submit = self._in_flight.popleft()
        data = _bytes(found.data)
        resampled = int(struct.unpack_from("<4I", data)[2])
        again, self._resampled = resampled != self._resampled, resampled
        (batch,) = submit.parse(data[4 * STATE_WORDS :])
        self._record_time(submit, found)
        return batch, again

    def rewind(self, position: int, count: int) -> None:
        assert self._held is not None
        seq = self._held.row.seq
        self._in_flight.clear()
        self._held, self._resampled = HeldSequence(Row(seq, position - 1), count), 0
        self._inputs.states([self._held.row], 1)
        self._run(self._adapted.lists([DECODE], [seq]))  # also for tokens that are fed next

    def max_lookahead(self) -> int:
        if self.plan.recurrent:  # only the newest token can be computed again
            return 1
        return self.steps_in(1, LOOKAHEAD_MS)

    async def stop(self) -> None:
        self._in_flight.clear()
        self._unread = 0
        if not self.lost:
            await self._device.read([])

    async def finish(self) -> None:
        await self.stop()

    # -- measurements

    def lists_for(self, names: Sequence[str], seq: int, n: int) -> list[str]:
        """The lists that run in place of these: with adapters if the sequence has any."""
        return self._adapted.lists(names, [seq])

    def _place(self, position: int, n: int, seq: int) -> None:
        """Set the states for n tokens of a sequence as a step's lists need them: up to a small batch, one of each."""
        self.set_tokens(seq, position, [0] * n)
        self._inputs.states([Row(seq, position + i) for i in range(n if n <= self.plan.max_small_batch else 1)], n)

    async def profile(self, position: int, n: int, name: str, seq: int = 0) -> list[float]:
        """Time each op of a list on n tokens at `position`, in nanoseconds."""
        self._check()
        return await op_times(self._device, self._lists.ops_of(name), lambda: self._place(position, n, seq))

    async def time_lists(self, position: int, n: int, names: Sequence[str], seq: int = 0) -> float:
        """Time lists run one after the other on n tokens at `position`, in nanoseconds."""
        self._check()
        return await time_of(self._device, self._lists.of(names), lambda: self._place(position, n, seq))

    # -- rows

    async def logits(self, n: int) -> Any:
        return await self.rows("all_logits.logits", n, self.plan.n_vocab)

    async def encode(self, encoder: EncoderPlan, inputs: EncoderInputs) -> Any:
        self._check()
        for name, at, data in inputs.writes:
            self._inputs.write(name, data, at)
        for stage in encoder.stages:
            self._inputs.states([Row(0, 0)], inputs.rows[stage.rows])
            self._run([stage.list], exact=True)
        return await self._floats(encoder.output, inputs.tokens, encoder.width)

    async def rows(self, name: str, n: int, width: int) -> Any:
        self._check()
        return await self._floats(name, n, width)

    def _floats(self, name: str, n: int, width: int) -> Awaitable[Any]:
        self._unread = 0
        stride = self.plan.buffers[name].shape[1]
        return self._device.floats(Region(self._memory.buffer(name), 4 * width, n, 4 * stride))

    def feed_packed(self, batch: PackedBatch, lists: Sequence[str], seq: int = 0) -> None:
        self._check()
        self._inputs.segments(batch)
        self.feed(batch.position, batch.ids.tolist(), lists, seq)

    def pooled(self, name: str, rows: int, width: int, lists: Sequence[str] = ()) -> Awaitable[Any]:
        self._check()
        self._inputs.states([Row(0, 0)], rows)
        self._run(lists)
        return quietly(asyncio.ensure_future(self._floats(name, rows, width)))

    def counts(self) -> Counts:
        return Counts()


def _bytes(data: Any) -> bytes:
    """The bytes of a JavaScript ArrayBuffer, or bytes."""
    return data if isinstance(data, bytes) else bytes(data.to_bytes())
