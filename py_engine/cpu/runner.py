"""The numpy runner. It runs in the worker's thread and needs no WebGPU."""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py_engine.cpu.masking import Masking
from py_engine.cpu.step_times import PROMPT, CpuStepTimes
from py_engine.plan.adapted_lists import AdaptedSequences
from py_engine.plan.draft import draft_step, names_of
from py_engine.plan.encoder import EncoderInputs, EncoderPlan
from py_engine.plan.lists import DECODE, SMALL_BATCH
from py_engine.plan.low_rank import SCALES
from py_engine.plan.packing import PackedBatch
from py_engine.plan.placement import Placement
from py_engine.plan.plan import Plan
from py_engine.plan.processors import Processor, needs_gpu
from py_engine.plan.quants import row_bytes
from py_engine.plan.sampler_ops import DRAFTING, Rules
from py_engine.plan.sampling import MASKED_AT, SAMPLING_BYTES, Batch, Sampling, read_logprobs, samplers, step
from py_engine.runners import DEFAULT_FEED, Counts, DecodeMasked, FeedOptions, Kind, Row, SampleMasked, tokens_per_draft

if TYPE_CHECKING:
    from py_engine.cpu.executor import Cpu
    from py_engine.runners import Turn


BUSY_S = 0.1  # the longest time that the thread computes without handling messages, apart from one step's
PAUSE_S = 0.003  # long enough for a timer: a browser may starve messages of other threads while we only yield


@dataclass(frozen=True)
class Work:
    """Submitted work, which runs when its result is asked for."""

    run: Callable[[], list[Batch]]
    kind: Kind | None = None  # None: nothing reads it
    steps: int = 1


class CpuRunner:
    """The runner of one plan on the CPU."""

    sample_masked: SampleMasked | None = None

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.on_gpu = self.queues = self.divides_prompts = False
        self.numpy, self.threads, self.wait_ms = True, 1, 0.0
        self.lost: str | None = None
        self._samplings: dict[int, Sampling] = {}  # of every sequence that was configured
        self._rules = Rules(plan.n_vocab)
        self._resampled = 0
        self._raw: dict[str, Any] = {}  # weight -> its bytes in the file
        self._cpu: Cpu  # from ready() to close()
        self._work: deque[Work] = deque()
        self._times = CpuStepTimes()
        self._held: deque[tuple[int, int]] = deque()  # of every step(): tokens, resampled
        self._row, self._left = Row(0, 0), 0
        self._adapted = AdaptedSequences(self.plan)
        masking = Masking(self, self._samplings, self._adapted)
        self.decode_masked: DecodeMasked | None = masking.decode
        self.end_masked = masking.stop
        self._masked: set[int] = set()  # sequences whose next tokens a mask restricts
        self._pending = False  # the newest token has not gone through the layers
        self._paused = 0.0  # when the thread last had a pause

    async def load(self, data: Any, placements: Sequence[Placement]) -> None:
        import numpy as np

        for p in placements:
            if p.weight.name not in self._raw:
                size = p.weight.rows * row_bytes(p.weight.type, p.weight.cols)
                self._raw[p.weight.name] = np.zeros(size, np.uint8)
            raw = self._raw[p.weight.name]
            at = p.row0 * p.row_bytes if p.weight.rows > 1 else p.row0
            piece = data.slice(p.src, p.src + p.rows * p.row_bytes).to_bytes()
            raw[at : at + len(piece)] = np.frombuffer(piece, np.uint8)

    async def ready(self) -> None:
        from py_engine.cpu.executor import Cpu, dequantize

        weights = {}
        for weight in self.plan.weights.values():
            weights[weight.name] = dequantize(weight, self._raw.pop(weight.name))
            await asyncio.sleep(0)
        self._cpu = Cpu(self.plan, weights)

    async def reserve_pages(self, pages: Sequence[int], turn: Turn) -> None:
        async with turn():
            self._cpu.reserve_pages(pages)

    def set_pages(self, group: int, seq: int, first: int, pages: Sequence[int]) -> None:
        self._run_in_order(lambda: self._cpu.set_pages(group, seq, first, pages))

    def copy_page(self, group: int, source: int, to: int) -> None:
        self._run_in_order(lambda: self._cpu.copy_page(group, source, to))

    async def read_pages(self, pages: Sequence[tuple[int, int]]) -> Any:
        return self._cpu.read_pages(pages)

    def write_pages(self, pages: Sequence[tuple[int, int, int]], data: Any) -> None:
        content = data if isinstance(data, bytes) else data.to_bytes()
        self._run_in_order(lambda: self._cpu.write_pages(pages, content))

    def set_tokens(self, seq: int, position: int, ids: list[int]) -> None:
        self._run_in_order(lambda: self._cpu.set_tokens(seq, position, ids))

    async def add_processor(self, processor: Processor) -> None:
        raise needs_gpu()

    def set_scales(self, seq: int, scales: bytes) -> None:
        self._adapted.set(seq, scales)
        self._run_in_order(lambda: self._cpu.write(SCALES, scales, seq * len(scales)))

    async def configure(self, sampling: Sampling, answer: int, shifted: int, constrained: bool, seq: int = 0) -> None:
        self._run_in_order(lambda: self._configure(sampling, sampling.pack(answer, shifted), seq))
        self._samplings[seq] = sampling
        self._masked.discard(seq)

    def _configure(self, sampling: Sampling, packed: bytes, seq: int) -> None:
        self._cpu.write("rules", sampling.biases(), self._rules.biases(seq))
        self._cpu.write("rules", sampling.breaker_bits(self.plan.n_vocab), self._rules.breakers(seq))
        self._cpu.write("sampling", packed, seq * SAMPLING_BYTES)

    def step_lists(
        self, sequences: Sequence[int], *, masked: bool = False, drafting: bool = False, n_model_draft: int = 0
    ) -> list[str]:
        if drafting:
            return names_of(draft_step(self._samplings, self._adapted, sequences, n_model_draft))
        masked = masked or not self._masked.isdisjoint(sequences)
        before, after = step([self._samplings[seq] for seq in sequences], masked)
        return self._adapted.lists([*before, *after], sequences)

    async def prepare(self, lists: Sequence[str], sequences: Sequence[int] = ()) -> None:
        pass

    def prepared(self, lists: Sequence[str], sequences: Sequence[int] = (), *, soon: bool = False) -> bool:
        return True

    def feed(
        self, position: int, ids: list[int], lists: Sequence[str], seq: int = 0, *, read: bool = False,
        options: FeedOptions = DEFAULT_FEED,
    ) -> Sequence[Callable[[], None]]:  # fmt: skip
        def run() -> list[Batch]:
            self._cpu.set_media(seq, options.shift, options.media)
            if SMALL_BATCH in lists:
                self._set_states([Row(seq, position + i) for i in range(len(ids))])
            self._cpu.feed(position, ids, self._adapted.lists(lists, [seq]), seq)
            return [self._read(Row(seq, position + len(ids) - 1), 1)]

        if read:
            self._work.append(Work(run, PROMPT, len(ids)))
        else:
            self._run_in_order(run)
        return ()

    def decode(self, rows: Sequence[Row], steps: int) -> None:
        self._work.append(Work(lambda: self._decode(rows, steps), (len(rows), False, 0), steps))

    def _decode(self, rows: Sequence[Row], steps: int) -> list[Batch]:
        self._set_states(rows)
        lists = self.step_lists([row.seq for row in rows])
        out = []
        for i in range(steps):
            self._run(lists)
            out.append([self._read(Row(row.seq, row.position + i), 1) for row in rows])
        return [_joined(batches) for batches in zip(*out, strict=True)]

    def start_drafts(self, rows: Sequence[Row]) -> None:
        self._set_states(rows)
        for row in rows:
            self._cpu.buffers["drafting"][row.seq, :2] = 0, 2

    def draft(self, rows: Sequence[Row], steps: int, ends: Sequence[int], n_model_draft: int = 0) -> bool:
        most = tokens_per_draft(len(rows))
        if self._work or any(row.position + 1 + most > end for row, end in zip(rows, ends, strict=True)):
            return False
        for row, end in zip(rows, ends, strict=True):
            self._cpu.buffers["drafting"][row.seq, 0] = 0 if n_model_draft else end - 1

        def run() -> list[Batch]:
            self._run(self.step_lists([row.seq for row in rows], drafting=True, n_model_draft=n_model_draft))
            newest = self._cpu.buffers["drafting"][:, DRAFTING.index("newest")]
            return [self._read(row, int(newest[row.seq]) - row.position) for row in rows]

        self._work.append(Work(run, (len(rows), True, n_model_draft)))
        return True

    async def result(self) -> list[Batch]:
        await self._handle_messages()
        work = self._work.popleft()
        assert work.kind is not None
        started = time.perf_counter()
        batches = work.run()
        self._times.add(work.kind, 1000 * (time.perf_counter() - started) / work.steps)
        self._run_unread()
        return batches

    async def _handle_messages(self) -> None:
        """Let the thread handle messages, such as an abort."""
        pauses = time.perf_counter() - self._paused > BUSY_S
        await asyncio.sleep(PAUSE_S if pauses else 0)
        if pauses:
            self._paused = time.perf_counter()

    def _run_unread(self) -> None:
        """Run the oldest work that nothing reads."""
        while self._work and self._work[0].kind is None:
            self._work.popleft().run()

    def _run_in_order(self, run: Callable[[], Any]) -> None:
        """Run now, or after the work that was submitted before."""
        if self._work:
            self._work.append(Work(run))
        else:
            run()

    def step_ms(self, rows: int, *, drafting: bool = False, n_model_draft: int = 0) -> float:
        return self._times.ms((rows, drafting, n_model_draft))

    def steps_in(self, rows: int, ms: float, *, drafting: bool = False, n_model_draft: int = 0) -> int:
        return 1

    def prompt_ms(self, n: int) -> float:
        return n * self.prompt_token_ms()

    def prompt_timed(self, n: int) -> bool:
        return self.prompt_token_ms() > 0

    def prompt_token_ms(self) -> float:
        return self._times.ms(PROMPT)

    def prompt_tokens_in(self, ms: float) -> int:
        return self.plan.batch

    def _states(self) -> Any:
        """The States, (MAX_SMALL_BATCH, 4)."""
        return self._cpu.states

    def _set_states(self, rows: Sequence[Row]) -> None:
        """Set the State of each token of a small batch."""
        self._states()[: len(rows)] = [(row.position, len(rows), 0, row.seq) for row in rows]

    def _read(self, row: Row, count: int) -> Batch:
        """Read `count` tokens of a sequence after its newest one."""
        first, n = row.position + 1, self._samplings[row.seq].logprobs if row.seq in self._samplings else -1
        ids = [int(i) for i in self._cpu.buffers["tokens"][row.seq, first : first + count]]
        if n < 0:
            return Batch(ids)
        rows = self._cpu.buffers["logprobs"][row.seq]
        packed = b"".join(rows[at % len(rows)].tobytes() for at in range(first, first + count))
        return Batch(ids, read_logprobs(memoryview(packed), count, n, self.plan.n_vocab))

    def _run(self, lists: Sequence[str]) -> None:
        for name in lists:
            self._cpu.run(name)

    # -- steps with masks

    def begin_masked(self, rows: Sequence[Row], lists: Sequence[str]) -> None:
        self._set_states(rows)
        self._run(lists)

    async def sample_masked_rows(self, rows: Sequence[Row], lists: Sequence[str]) -> list[tuple[int, bool]]:
        await self._handle_messages()
        self._run(lists)
        changed = [int(state[2]) > 0 for state in self._states()[: len(rows)]]
        return [(self._read(row, 1).ids[0], again) for row, again in zip(rows, changed, strict=True)]

    # -- one sequence under the host's control

    def begin(self, position: int, count: int, seq: int = 0) -> None:
        self._row, self._left, self._pending = Row(seq, position - 1), count, False
        self._resampled = 0
        self._held.clear()

    async def finish(self) -> None:
        self._run_unread()

    def mask(self, allowed: Any | None, seq: int) -> None:
        bits = None
        if allowed is not None:
            words = allowed.to_py() if hasattr(allowed, "to_py") else allowed
            bits = bytes(memoryview(words).cast("B")[: 4 * self._rules.bit_words])
        self._run_in_order(lambda: self._mask(bits, seq))

    def _mask(self, allowed: bytes | None, seq: int) -> None:
        if allowed is not None:
            self._cpu.write("rules", allowed, self._rules.mask(seq))
        self._cpu.write("sampling", struct.pack("<I", allowed is not None), seq * SAMPLING_BYTES + MASKED_AT)
        self._masked = self._masked | {seq} if allowed is not None else self._masked - {seq}

    async def read_logits(self) -> Any:
        return self._cpu.buffers["logits"].copy()

    def write_logits(self, logits: bytes) -> None:
        self._cpu.write("logits", logits, 0)

    def step(self, count: int, eager: bool = False) -> int:
        lists = samplers([self._samplings[self._row.seq]], self._row.seq in self._masked)
        forward = self._adapted.lists([DECODE], [self._row.seq])
        for _ in range(count):
            self._run([*forward, *lists] if self._pending else lists)
            self._pending = True
        self._held.append((count, int(self._states()[0, 2])))
        self._left -= count
        if eager and self._left:  # the context may end here
            self._run(forward)
            self._pending = False
        return count

    async def take(self) -> tuple[Batch, bool]:
        await self._handle_messages()
        count, resampled = self._held.popleft()
        again, self._resampled = resampled != self._resampled, resampled
        batch = self._read(self._row, count)
        self._row = Row(self._row.seq, self._row.position + count)
        return batch, again

    def rewind(self, position: int, count: int) -> None:
        self._held.clear()
        self._row, self._left, self._pending = Row(self._row.seq, position - 1), count, False
        self._resampled = 0
        self._set_states([self._row])
        self._run(self._adapted.lists([DECODE], [self._row.seq]))  # also for tokens that are fed next

    def max_lookahead(self) -> int:
        return 1

    async def stop(self) -> None:
        while self._work:
            self._run_unread()
            if self._work:
                self._work.popleft()
        self._held.clear()

    async def logits(self, n: int) -> Any:
        return await self.rows("all_logits.logits", n, self.plan.n_vocab)

    async def rows(self, name: str, n: int, width: int) -> Any:
        return self._cpu.buffers[name][:n, :width].copy()

    def feed_packed(self, batch: PackedBatch, lists: Sequence[str], seq: int = 0) -> None:
        lists = self._adapted.lists(lists, [seq])

        def run() -> list[Batch]:
            self._cpu.feed_packed(batch, lists, seq)
            return []

        self._work.append(Work(run))  # with the block tables that are written before and after it, in order

    def pooled(self, name: str, rows: int, width: int, lists: Sequence[str] = ()) -> Awaitable[Any]:
        found: list[Any] = []

        def run() -> list[Batch]:
            self._states()[0, 1] = rows
            self._run(lists)
            found.append(self._cpu.buffers[name][:rows, :width].copy())
            return []

        self._work.append(Work(run))
        return self._computed(found)

    async def _computed(self, found: list[Any]) -> Any:
        """What submitted work puts into a list."""
        while not found:
            await self._handle_messages()
            self._work.popleft().run()
        return found[0]

    async def encode(self, encoder: EncoderPlan, inputs: EncoderInputs) -> Any:
        for name, at, data in inputs.writes:
            self._cpu.write(name, data, at)
        for stage in encoder.stages:
            await self._handle_messages()
            self._states()[0] = 0, inputs.rows[stage.rows], 0, 0
            self._run([stage.list])
        return self._cpu.buffers[encoder.output][: inputs.tokens, : encoder.width].copy()

    def counts(self) -> Counts:
        return Counts()

    def close(self) -> None:
        if hasattr(self, "_cpu"):
            del self._cpu
        self._raw = {}


def _joined(batches: Sequence[Batch]) -> Batch:
    """Consecutive batches of one answer as one."""
    ids = [token for batch in batches for token in batch.ids]
    scored = [row for batch in batches for row in batch.logprobs or []]
    return Batch(ids, scored if batches[0].logprobs is not None else None)
