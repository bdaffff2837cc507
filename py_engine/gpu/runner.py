"""The WebGPU runner: drives gpu.py and replay.js, and sizes submits by measured step times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.gpu.gpu import Gpu
from py_engine.gpu.memory import obj
from py_engine.plan.lists import SAMPLE
from py_engine.plan.placement import Placement
from py_engine.plan.sampling import Batch, Sampling, read_logprobs
from py_engine.plan.shared import MAX_STEPS
from py_engine.runners import Counts

if TYPE_CHECKING:
    from py_engine.files.source import CachedRecords

# Target duration of a submit of several steps: short enough for smooth streaming and quick aborts.
SUBMIT_MS = 25.0
BATCH_SUBMIT_MS = 10.0  # the target for batches, which other sequences may join at any time
TIMED_TOKENS = 16  # tokens timed together, because the browser reports finished work in bursts
# How far to sample ahead under a constraint, which may reject tokens. The browser takes 2 to 3 ms to report a token. It
# reports submits one after the other.
LOOKAHEAD_MS = 16.0
SMOOTHING = 0.3  # weight of the newest step time


class GpuRunner:
    """Runs one plan on a GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.plan = gpu, gpu.plan
        self.lists = [SAMPLE]
        self.on_gpu = not gpu.variant.software
        self._free, self._masked = self.lists, self.lists
        self._sampling = Sampling()  # of the sequence configured last
        self._written = Sampling()  # the one whose biases and sequence breakers are on the device
        self._preparing: set[str] = set()
        self._batch_kind: tuple[bool, int] = (False, 1)  # drafting, sequences
        self._batch_step_ms: dict[tuple[bool, int], float] = {}  # batch kind -> milliseconds
        self._done: Any = None
        self._step_ms = 0.0
        self._tokens, self._ms = 0, 0.0  # tokens read back since the last update of the step time, and their time
        self._resampled = 0

    async def load(self, data: Any, placements: Sequence[Placement]) -> None:
        self._check()
        assert self.gpu.uploading is not None
        await self.gpu.uploading.write(data, placements)

    async def stream(
        self,
        cached: CachedRecords,
        placements: Callable[[int], Sequence[Placement]],
        on_progress: Callable[[int], None],
    ) -> tuple[set[int], float]:
        """Upload records from a disk: see Upload.stream()."""
        self._check()
        assert self.gpu.uploading is not None
        uploading = self.gpu.uploading.stream(cached, placements, on_progress)
        found: tuple[set[int], float] = await self._awaited(uploading)
        return found

    @property
    def written_ms(self) -> float:
        """Milliseconds that streams have spent on handing records to the GPU, until ready()."""
        return self.gpu.uploading.written_ms if self.gpu.uploading is not None else 0.0

    async def ready(self) -> None:
        if self.gpu.uploading is not None:
            await self.gpu.uploading.end()
            self.gpu.uploading = None

    async def reserve_sequences(self, sequences: int) -> None:
        self._check()
        await self.gpu.reserve_sequences(sequences)

    async def copy_cache(self, source: int, to: int) -> None:
        self._check()
        await self.gpu.copy_cache(source, to)

    async def configure(self, sampling: Sampling, answer: int, shifted: int, constrained: bool, seq: int = 0) -> None:
        self._check()
        self._free, self._masked = sampling.lists(), sampling.lists(constrained)
        await self.gpu.compile(names={*self._free, *self._masked})
        vocab = self.plan.n_vocab
        if sampling.logit_bias != self._written.logit_bias:
            self.gpu.write("bias", sampling.biases(vocab))
        if sampling.dry_breakers != self._written.dry_breakers:
            self.gpu.write("breakers", sampling.breaker_bits(vocab))
        packed = sampling.pack(answer, shifted)
        self.gpu.write("sampling", packed, seq * len(packed))
        self._sampling = self._written = sampling
        self._use(self._free)

    def _use(self, lists: list[str]) -> None:
        self.lists = lists
        self.gpu.sample_with(lists)

    async def feed(self, position: int, ids: list[int], lists: list[str], seq: int = 0) -> None:
        before, self._done = self._done, None
        self._check()
        await self.gpu.compile(names=lists)
        self._done = self.gpu.feed(position, ids, lists, seq)
        if before is not None:
            await before

    def start(self, position: int, count: int, seq: int = 0) -> None:
        self._start(seq, position, count, True)

    def begin(self, position: int, count: int, seq: int = 0) -> None:
        self._start(seq, position, count, False)

    def _start(self, seq: int, position: int, count: int, sampled: bool) -> None:
        self._done = None
        steps, ahead = self._pace()
        self.gpu.replay.start(seq, position, count, steps, ahead, sampled)

    def prepared(self, lists: Sequence[str]) -> bool:
        missing = set(lists) - self.gpu.recorded - self._preparing
        if missing:
            self._preparing |= missing
            self._compiling = asyncio.ensure_future(self._prepare(missing))
        return self.gpu.recorded.issuperset(lists)

    async def _prepare(self, lists: set[str]) -> None:
        try:
            await self.gpu.compile(names=lists)
        finally:
            self._preparing -= lists

    def start_batch(
        self, sequences: list[int], positions: list[int], sampled: list[bool], count: int, drafting: bool = False
    ) -> None:
        self._check()
        self._done = None
        self._batch_kind = drafting, len(sequences)
        self._use([SAMPLE])
        steps, ahead = self._batch_pace()
        batch = {"sequences": sequences, "positions": positions, "sampled": sampled, "count": count}
        self.gpu.replay.startBatch(obj(**batch, steps=steps, ahead=ahead, drafting=drafting))

    def _batch_pace(self) -> tuple[int, int]:
        """(steps in a submit, submits ahead) of a batch: shorter than _pace(), since other sequences may join."""
        ms = self._batch_step_ms.get(self._batch_kind) or self._step_ms
        drafting, sequences = self._batch_kind
        if not drafting and sequences == 1:
            return self._pace_of(ms)
        max_steps = MAX_STEPS // 4 if drafting else MAX_STEPS
        return (max(1, min(max_steps, int(BATCH_SUBMIT_MS / ms))) if ms else 1), 2

    async def next_batch(self, more: bool = True) -> list[list[int]]:
        replay = self.gpu.replay
        result = await self._awaited(replay.next() if more else replay.take())
        if result is None:
            return []
        ids, steps = [int(i) for i in result.ids.to_py()], int(result.steps)
        if not steps:
            return [[token] if existed else [] for token, existed in zip(ids, result.sampled.to_py(), strict=True)]
        if replay.warm:
            before, ms = self._batch_step_ms.get(self._batch_kind), float(result.ms) / steps
            self._batch_step_ms[self._batch_kind] = ms if before is None else _smoothed(before, ms)
            replay.steps, replay.ahead = self._batch_pace()
        if self._batch_kind[0]:
            return [ids]
        return [ids[at : at + steps] for at in range(0, len(ids), steps)]

    def step_cost_ms(self, drafting: bool, sequences: int = 1) -> float:
        return self._batch_step_ms.get((drafting, sequences), 0.0)

    def _pace(self) -> tuple[int, int]:
        """(steps in a submit, submits ahead) from the measured step time: full submits only on a fast device."""
        return self._pace_of(self._step_ms)

    def _pace_of(self, ms: float) -> tuple[int, int]:
        if not ms:
            return 1, 2
        steps = max(1, min(MAX_STEPS, int(SUBMIT_MS / ms)))
        return steps, 3 if steps > 1 else 1 if ms > SUBMIT_MS else 2

    async def next(self) -> Batch:
        replay = self.gpu.replay
        batch, _, ms = await self._result(replay.next())
        if replay.warm and batch.ids:
            self._time(ms / len(batch.ids))
            replay.steps, replay.ahead = self._pace()
        return batch

    def _time(self, ms: float) -> None:
        self._step_ms = ms if not self._step_ms else _smoothed(self._step_ms, ms)

    async def _result(self, promise: Any) -> tuple[Batch, bool, float]:
        """Read a submit's result: tokens, whether the mask rejected any, milliseconds."""
        result = await self._awaited(promise)
        if result is None:
            return Batch([]), False, 0.0
        ids = [int(i) for i in result.ids.to_py()]
        n = self._sampling.logprobs
        rows = read_logprobs(result.rows.to_py(), len(ids), n, self.plan.n_vocab) if n >= 0 else None
        rejected, self._resampled = int(result.resampled) != self._resampled, int(result.resampled)
        return Batch(ids, rows), rejected, float(result.ms)

    async def _awaited(self, promise: Any) -> Any:
        try:
            return await promise
        except Exception:
            self._check()
            raise

    def mask(self, allowed: Any | None) -> None:
        words = -(-self.plan.n_vocab // 32)
        if allowed is not None:
            self.gpu.write("mask", allowed if isinstance(allowed, bytes) else allowed.subarray(0, words))
        self._use(self._free if allowed is None else self._masked)

    def step(self, count: int, eager: bool = False) -> int:
        return int(self.gpu.replay.step(count, eager))

    async def take(self) -> tuple[Batch, bool]:
        batch, rejected, ms = await self._result(self.gpu.replay.take())
        self._tokens, self._ms = self._tokens + len(batch.ids), self._ms + ms
        if self._tokens >= TIMED_TOKENS:
            per_token = self._ms / self._tokens
            if not self._step_ms or per_token < self._step_ms:  # a longer time may include waits for the host
                self._time(per_token)
            self._tokens, self._ms = 0, 0.0
        return batch, rejected

    async def rewind(self, position: int, count: int) -> None:
        self._check()
        self.gpu.replay.rewind(position, count)

    def max_lookahead(self) -> int:
        if not self._step_ms:
            return 1
        return max(1, min(MAX_STEPS, int(LOOKAHEAD_MS / self._step_ms)))

    async def stop(self) -> None:
        if not self.gpu.lost:
            await self.gpu.replay.stop()

    async def logits(self, n: int) -> Any:
        return await self.rows("all_logits.logits", n, self.plan.n_vocab)

    async def rows(self, name: str, n: int, width: int) -> Any:
        self._check()
        return await self.gpu.rows(name, n, width)

    async def pooled_rows(self, sequences: Sequence[list[int]], lists: list[str], name: str, width: int) -> Any:
        self._check()
        await self.gpu.compile(names=lists)
        return await self._awaited(self.gpu.pooled_rows(sequences, lists, name, width))

    def counts(self) -> Counts:
        counts = self.gpu.replay.counts
        return Counts(int(counts.submits), int(counts.dispatches), float(counts.encode_ms), float(counts.wait_ms))

    async def compile(self, on_progress: Callable[[int, int], None]) -> None:
        """Compile the kernels of all lists that are not lazy. Must end before anything runs."""
        await self.gpu.compile(on_progress)

    async def time_lists(self, position: int, n: int, names: list[str]) -> float:
        """Time lists run one after the other on n tokens at `position`, in nanoseconds."""
        await self.gpu.compile(names=names)
        await self.feed(position, [0] * n, [])
        return await self.gpu.time_lists(names, n, 1 if self.gpu.variant.software else 10)

    async def profile(self, position: int, n: int, name: str) -> list[dict[str, Any]]:
        """Time each dispatch of a list on n tokens at `position`."""
        if not self.gpu.device.features.has("timestamp-query"):
            raise WispError("This adapter cannot time its kernels: it lacks timestamp-query.", "unsupported_parameter")
        await self.gpu.compile(names=[name])
        await self.gpu.feed(position, [0] * n, [])
        return await self.gpu.profile(name, n, 1 if self.gpu.variant.software else 20)

    def close(self) -> None:
        self.gpu.close()

    def _check(self) -> None:
        if self.gpu.lost:
            raise WispError(f"The GPU was lost ({self.gpu.lost}). Load the model again.", "device_lost", SERVER_ERROR)


def _smoothed(before: float, now: float) -> float:
    return (1 - SMOOTHING) * before + SMOOTHING * now
