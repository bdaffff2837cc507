"""The runner on WebGPU, by way of gpu.py and replay.js."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyodide.ffi import to_js

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.gpu.gpu import Gpu
from py_engine.plan.cache import AHEAD
from py_engine.plan.placement import Placement
from py_engine.plan.sampling import Batch, Sampling, read_logprobs
from py_engine.runners import Counts

if TYPE_CHECKING:
    from py_engine.files.source import Kept

BATCH_MS = 25.0  # what a submit of several steps should take: text still streams smoothly, an abort is quick
MOST_STEPS = AHEAD // 4  # three submits ahead, and what is left of one behind the last token that is wanted
TIMED = 16  # tokens whose time is taken together: a browser tells of finished work in bursts
# What is computed ahead where it may be in vain: a browser takes 2 to 3 ms to say that a token is there, and looks at
# several submits of it in turn.
AHEAD_MS = 16.0
TOGETHER_MS = 10.0  # the same where others may join at any time


class GpuRunner:
    """A plan on a GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.plan = gpu, gpu.plan
        self.lists = ["sample"]
        self.quick = not gpu.variant.software
        self._free, self._masked = self.lists, self.lists
        self._sampling = Sampling()  # of the sequence that was configured last
        self._written = Sampling()  # whose biases and breakers the device has
        self._preparing: set[str] = set()
        self._each: tuple[bool, int] = (False, 1)  # guesses, sequences
        self._each_ms: dict[tuple[bool, int], float] = {}  # of a step
        self._done: Any = None
        self._step_ms = 0.0
        self._tokens, self._ms = 0, 0.0  # what was taken lately, step by step
        self._resampled = 0

    async def load(self, data: Any, placements: Sequence[Placement]) -> None:
        self._check()
        assert self.gpu.uploading is not None
        await self.gpu.uploading.take(data, placements)

    async def stream(
        self, kept: Kept, placements: Callable[[int], Sequence[Placement]], tell: Callable[[int], None]
    ) -> tuple[set[int], float]:
        """Upload.stream()."""
        self._check()
        assert self.gpu.uploading is not None
        found: tuple[set[int], float] = await self._awaited(self.gpu.uploading.stream(kept, placements, tell))
        return found

    async def ready(self) -> None:
        if self.gpu.uploading is not None:
            await self.gpu.uploading.end()
            self.gpu.uploading = None

    async def make_room(self, sequences: int) -> None:
        self._check()
        await self.gpu.make_room(sequences)

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
        self.gpu.choose_with(lists)

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

    def _start(self, seq: int, position: int, count: int, chosen: bool) -> None:
        self._done = None
        steps, ahead = self._pace()
        self.gpu.replay.start(seq, position, count, steps, ahead, chosen)

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

    def start_each(
        self, sequences: list[int], positions: list[int], chosen: list[bool], count: int, guesses: bool = False
    ) -> None:
        self._check()
        self._done = None
        self._each = guesses, len(sequences)
        self._use(["sample"])
        steps, ahead = self._pace_each()
        self.gpu.replay.startEach(to_js(sequences), to_js(positions), to_js(chosen), count, steps, ahead, guesses)

    def _pace_each(self) -> tuple[int, int]:
        """As _pace(); shorter, since others may want to join."""
        ms = self._each_ms.get(self._each) or self._step_ms
        guesses, sequences = self._each
        if not guesses and sequences == 1:
            return self._pace_of(ms)
        most = MOST_STEPS // 4 if guesses else MOST_STEPS
        return (max(1, min(most, int(TOGETHER_MS / ms))) if ms else 1), 2

    async def next_each(self, more: bool = True) -> list[list[int]]:
        replay = self.gpu.replay
        taken = await self._awaited(replay.next() if more else replay.take())
        if taken is None:
            return []
        ids, steps = [int(i) for i in taken.ids.to_py()], int(taken.steps)
        if not steps:
            return [[token] if there else [] for token, there in zip(ids, taken.chosen.to_py(), strict=True)]
        if replay.warm:
            before, ms = self._each_ms.get(self._each), float(taken.ms) / steps
            self._each_ms[self._each] = ms if before is None else 0.7 * before + 0.3 * ms
            replay.steps, replay.ahead = self._pace_each()
        if self._each[0]:
            return [ids]
        return [ids[at : at + steps] for at in range(0, len(ids), steps)]

    def price(self, guesses: bool, sequences: int = 1) -> float:
        return self._each_ms.get((guesses, sequences), 0.0)

    def _pace(self) -> tuple[int, int]:
        """(steps in a submit, submits ahead) from what a step took: full batches on a fast device, one on a slow."""
        return self._pace_of(self._step_ms)

    def _pace_of(self, ms: float) -> tuple[int, int]:
        if not ms:
            return 1, 2
        steps = max(1, min(MOST_STEPS, int(BATCH_MS / ms)))
        return steps, 3 if steps > 1 else 1 if ms > BATCH_MS else 2

    async def next(self) -> Batch:
        replay = self.gpu.replay
        batch, _, ms = await self._taken(replay.next())
        if replay.warm and batch.ids:
            self._time(ms / len(batch.ids))
            replay.steps, replay.ahead = self._pace()
        return batch

    def _time(self, ms: float) -> None:
        self._step_ms = ms if not self._step_ms else 0.7 * self._step_ms + 0.3 * ms

    async def _taken(self, promise: Any) -> tuple[Batch, bool, float]:
        """What replay.js gives for a submit: tokens, whether any was chosen again, milliseconds."""
        taken = await self._awaited(promise)
        if taken is None:
            return Batch([]), False, 0.0
        ids = [int(i) for i in taken.ids.to_py()]
        n = self._sampling.logprobs
        rows = read_logprobs(taken.rows.to_py(), len(ids), n, self.plan.n_vocab) if n >= 0 else None
        again, self._resampled = int(taken.resampled) != self._resampled, int(taken.resampled)
        return Batch(ids, rows), again, float(taken.ms)

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
        batch, again, ms = await self._taken(self.gpu.replay.take())
        self._tokens, self._ms = self._tokens + len(batch.ids), self._ms + ms
        if self._tokens >= TIMED:
            each = self._ms / self._tokens
            if not self._step_ms or each < self._step_ms:  # else it may have waited for the host
                self._time(each)
            self._tokens, self._ms = 0, 0.0
        return batch, again

    async def rewind(self, position: int, count: int) -> None:
        self._check()
        self.gpu.replay.rewind(position, count)

    def most_ahead(self) -> int:
        if not self._step_ms:
            return 1
        return max(1, min(MOST_STEPS, int(AHEAD_MS / self._step_ms)))

    async def stop(self) -> None:
        if not self.gpu.lost:
            await self.gpu.replay.stop()

    async def logits(self, n: int) -> Any:
        return await self.rows("every.logits", n, self.plan.n_vocab)

    async def rows(self, name: str, n: int, width: int) -> Any:
        self._check()
        return await self.gpu.rows(name, n, width)

    def counts(self) -> Counts:
        counts = self.gpu.replay.counts
        return Counts(int(counts.submits), int(counts.dispatches), float(counts.encode_ms), float(counts.wait_ms))

    async def compile(self, on_progress: Callable[[int, int], None]) -> None:
        """Compile the kernels; nothing runs before."""
        await self.gpu.compile(on_progress)

    async def time_lists(self, position: int, n: int, names: list[str]) -> float:
        """Nanoseconds of lists in a row on n tokens at `position`."""
        await self.gpu.compile(names=names)
        await self.feed(position, [0] * n, [])
        return await self.gpu.time_lists(names, n, 1 if self.gpu.variant.software else 10)

    async def profile(self, position: int, n: int, name: str) -> list[dict[str, Any]]:
        """GPU time of each dispatch of a list, on a batch of n tokens at `position`."""
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
