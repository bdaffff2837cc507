"""The two executors behind one face: feed a batch, generate tokens, read logits.

A runner's `feed` puts tokens at their positions and runs lists of the plan over them; `start`, `next` and `stop`
generate freely, `begin`, `mask`, `step`, `take` and `rewind` step by step; `load` takes the weights that a record
holds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

from py_engine.cache import AHEAD
from py_engine.errors import SERVER_ERROR, WispError
from py_engine.placement import Placement
from py_engine.plan import Plan
from py_engine.sampling import Batch, Sampling, read_logprobs

if TYPE_CHECKING:
    from py_engine.gpu import Gpu

BATCH_MS = 25.0  # what a submit of several steps should take: text still streams smoothly, an abort is quick
MOST_STEPS = AHEAD // 4  # three submits ahead, and what is left of one behind the last token that is wanted
TIMED = 16  # tokens whose time is taken together: a browser tells of finished work in bursts
# What is computed ahead where it may be in vain: a browser takes 2 to 3 ms to say that a token is there, and looks at
# several submits of it in turn.
AHEAD_MS = 16.0


@dataclass(frozen=True)
class Counts:
    """What a device was asked for; milliseconds that went into asking, and into waiting for its answers."""

    submits: int = 0
    dispatches: int = 0
    encode_ms: float = 0.0
    wait_ms: float = 0.0

    def since(self, before: Counts) -> dict[str, Any]:
        """The difference, by name."""
        return {f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)}


class Runner(Protocol):
    """What the engine needs of an executor."""

    plan: Plan
    lists: list[str]  # those that choose a token, behind "last" or "decode"

    async def load(self, data: Any, placements: Sequence[Placement]) -> None:
        """Take the weights out of a record, a JavaScript ArrayBuffer."""

    async def ready(self) -> None:
        """Wait until every weight is in place."""

    async def configure(self, sampling: Sampling, answer: int, shifted: int, constrained: bool) -> None:
        """Set the sampling parameters. `answer`: position of the answer's first token; `shifted`: tokens that were
        dropped from the context; `constrained`: masks will come.
        """

    async def feed(self, position: int, ids: list[int], lists: list[str]) -> None:
        """Run lists over tokens at `position`; returns when the batch before this one is done."""

    def start(self, position: int, count: int) -> None:
        """Generate up to `count` tokens, the first of which the last feed has sampled for `position`."""

    async def next(self) -> Batch:
        """The next ids; none at the end."""

    def begin(self, position: int, count: int) -> None:
        """Generate up to `count` tokens by step(), for the first of which the last feed has made the logits."""

    def mask(self, allowed: Any | None) -> None:
        """What the tokens of the next step may be (Constraint.mask), None: anything."""

    def step(self, count: int, eager: bool = False) -> int:
        """Choose the next tokens, each from the logits of the one before; gives how many it will be. `eager`: then make
        the logits behind the last, too, while the host looks at the tokens.
        """

    async def take(self) -> tuple[Batch, bool]:
        """The tokens of the oldest step, and whether the mask refused the first choice of any of them."""

    async def rewind(self, position: int, count: int) -> None:
        """Forget the tokens from `position` on, and make its logits again; up to `count` tokens may follow."""

    def most_ahead(self) -> int:
        """Tokens that are worth choosing before the first of them is looked at."""

    async def stop(self) -> None:
        """End generation."""

    async def logits(self, n: int) -> Any:
        """Rows of the list "every" after a feed, float32 (n, vocab)."""

    async def rows(self, name: str, n: int, width: int) -> Any:
        """The first rows of a buffer of the plan without their padding, float32 (n, width)."""

    def counts(self) -> Counts:
        """What the device was asked for so far."""

    def close(self) -> None:
        """Give the memory back."""


class GpuRunner:
    """WebGPU, by way of replay.js."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.plan = gpu, gpu.plan
        self.lists = ["sample"]
        self._free, self._masked = self.lists, self.lists
        self._sampling = Sampling()
        self._done: Any = None
        self._step_ms = 0.0
        self._tokens, self._ms = 0, 0.0  # what was taken lately, step by step
        self._resampled = 0

    async def load(self, data: Any, placements: Sequence[Placement]) -> None:
        self._check()
        assert self.gpu.uploading is not None
        await self.gpu.uploading.take(data, placements)

    async def ready(self) -> None:
        if self.gpu.uploading is not None:
            await self.gpu.uploading.end()
            self.gpu.uploading = None

    async def configure(self, sampling: Sampling, answer: int, shifted: int, constrained: bool) -> None:
        self._check()
        self._free, self._masked = sampling.lists(), sampling.lists(constrained)
        await self.gpu.compile(names={*self._free, *self._masked})
        vocab = self.plan.n_vocab
        if sampling.logit_bias != self._sampling.logit_bias:
            self.gpu.write("bias", sampling.biases(vocab))
        if sampling.dry_breakers != self._sampling.dry_breakers:
            self.gpu.write("breakers", sampling.breaker_bits(vocab))
        self.gpu.write("sampling", sampling.pack(answer, shifted))
        self._sampling = sampling
        self._use(self._free)

    def _use(self, lists: list[str]) -> None:
        self.lists = lists
        self.gpu.choose_with(lists)

    async def feed(self, position: int, ids: list[int], lists: list[str]) -> None:
        before, self._done = self._done, None
        self._check()
        await self.gpu.compile(names=lists)
        self._done = self.gpu.feed(position, ids, lists)
        if before is not None:
            await before

    def start(self, position: int, count: int) -> None:
        self._start(position, count, True)

    def begin(self, position: int, count: int) -> None:
        self._start(position, count, False)

    def _start(self, position: int, count: int, chosen: bool) -> None:
        self._done = None
        steps, ahead = self._pace()
        self.gpu.replay.start(position, count, steps, ahead, chosen)

    def _pace(self) -> tuple[int, int]:
        """(steps in a submit, submits ahead) from what a step took: full batches on a fast device, one on a slow."""
        if not self._step_ms:
            return 1, 2
        steps = max(1, min(MOST_STEPS, int(BATCH_MS / self._step_ms)))
        return steps, 3 if steps > 1 else 1 if self._step_ms > BATCH_MS else 2

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
        try:
            taken = await promise
        except Exception:
            self._check()
            raise
        if taken is None:
            return Batch([]), False, 0.0
        ids = [int(i) for i in taken.ids.to_py()]
        n = self._sampling.logprobs
        rows = read_logprobs(taken.rows.to_py(), len(ids), n, self.plan.n_vocab) if n >= 0 else None
        again, self._resampled = int(taken.resampled) != self._resampled, int(taken.resampled)
        return Batch(ids, rows), again, float(taken.ms)

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
        await self.feed(position, [0] * n, [])
        return await self.gpu.time_lists(names, n, 1 if self.gpu.variant.software else 10)

    async def profile(self, position: int, n: int, name: str) -> list[dict[str, Any]]:
        """GPU time of each dispatch of a list, on a batch of n tokens at `position`."""
        if not self.gpu.device.features.has("timestamp-query"):
            raise WispError("This adapter cannot time its kernels: it lacks timestamp-query.", "unsupported_parameter")
        await self.gpu.feed(position, [0] * n, [])
        return await self.gpu.profile(name, n, 1 if self.gpu.variant.software else 20)

    def close(self) -> None:
        self.gpu.close()

    def _check(self) -> None:
        if self.gpu.lost:
            raise WispError(f"The GPU was lost ({self.gpu.lost}). Load the model again.", "device_lost", SERVER_ERROR)


class CpuRunner:
    """numpy, in this thread: slower, and there everywhere."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lists = ["sample"]
        self._free, self._masked = self.lists, self.lists
        self._sampling = Sampling()
        self._resampled = 0
        self._raw: dict[str, Any] = {}  # weight -> its bytes as they are in the file
        self._cpu: Any = None
        self._position = self._left = 0
        self._owed = False  # whether the last token chosen has not gone through the layers, in steps
        self._flying: deque[tuple[int, int]] = deque()  # of each step: tokens, resampled

    async def load(self, data: Any, placements: Sequence[Placement]) -> None:
        import numpy as np

        for p in placements:
            if p.weight.name not in self._raw:
                size = p.weight.rows * p.row_bytes if p.weight.rows > 1 else 4 * p.weight.cols
                self._raw[p.weight.name] = np.zeros(size, np.uint8)
            raw = self._raw[p.weight.name]
            at = p.row0 * p.row_bytes if p.weight.rows > 1 else p.row0
            piece = data.slice(p.src, p.src + p.rows * p.row_bytes).to_bytes()
            raw[at : at + len(piece)] = np.frombuffer(piece, np.uint8)

    async def ready(self) -> None:
        from py_engine import cpu

        weights = {}
        for weight in self.plan.weights.values():
            weights[weight.name] = cpu.dequantize(weight, self._raw.pop(weight.name))
            await asyncio.sleep(0)
        self._cpu = cpu.Cpu(self.plan, weights)

    async def configure(self, sampling: Sampling, answer: int, shifted: int, constrained: bool) -> None:
        vocab = self.plan.n_vocab
        self.lists = self._free = sampling.lists()
        self._masked = sampling.lists(constrained)
        self._cpu.write("bias", sampling.biases(vocab))
        self._cpu.write("breakers", sampling.breaker_bits(vocab))
        self._cpu.write("sampling", sampling.pack(answer, shifted))
        self._sampling = sampling

    async def feed(self, position: int, ids: list[int], lists: list[str]) -> None:
        if self._owed:
            self._run(["decode"])
        self._owed = False
        self._cpu.feed(position, ids, lists)
        await asyncio.sleep(0)

    def start(self, position: int, count: int) -> None:
        self._position, self._left = position, count

    async def next(self) -> Batch:
        if not self._left:
            return Batch([])
        if self._position > int(self._cpu.buffers["state"][0]):
            self._run(["decode", *self.lists])
        return await self._chosen(1)

    async def _chosen(self, count: int) -> Batch:
        """The tokens at the positions that are next to be handed out."""
        await asyncio.sleep(0)  # messages, such as an abort, come in between tokens
        n, first = self._sampling.logprobs, self._position
        self._position += count
        self._left -= count
        ids = [int(i) for i in self._cpu.buffers["tokens"][first : self._position]]
        if n < 0:
            return Batch(ids)
        rows = self._cpu.buffers["logprobs"]
        wanted = b"".join(rows[at % len(rows)].tobytes() for at in range(first, self._position))
        return Batch(ids, read_logprobs(memoryview(wanted), count, n, self.plan.n_vocab))

    def _run(self, lists: Sequence[str]) -> None:
        for name in lists:
            self._cpu.run(name)

    def begin(self, position: int, count: int) -> None:
        self.start(position, count)
        self._flying.clear()

    def mask(self, allowed: Any | None) -> None:
        if allowed is not None:
            words = allowed.to_py() if hasattr(allowed, "to_py") else allowed
            self._cpu.write("mask", memoryview(words).cast("B")[: 4 * -(-self.plan.n_vocab // 32)])
        self.lists = self._free if allowed is None else self._masked

    def step(self, count: int, eager: bool = False) -> int:
        for _ in range(count):
            self._run(["decode", *self.lists] if self._owed else self.lists)
            self._owed = True
        self._flying.append((count, int(self._cpu.buffers["state"][2])))
        return count

    async def take(self) -> tuple[Batch, bool]:
        count, resampled = self._flying.popleft()
        again, self._resampled = resampled != self._resampled, resampled
        return await self._chosen(count), again

    async def rewind(self, position: int, count: int) -> None:
        self._flying.clear()
        self._position, self._left, self._owed = position, count, True
        self._cpu.buffers["state"][:2] = position - 1, 1

    def most_ahead(self) -> int:
        return 1

    async def stop(self) -> None:
        self._left, self._owed = 0, False

    async def logits(self, n: int) -> Any:
        return await self.rows("every.logits", n, self.plan.n_vocab)

    async def rows(self, name: str, n: int, width: int) -> Any:
        return self._cpu.buffers[name][:n, :width].copy()

    def counts(self) -> Counts:
        return Counts()

    def close(self) -> None:
        self._cpu = None
        self._raw = {}


async def step_ms(runner: Runner, steps: int = 3) -> float:
    """Milliseconds of one decode step, the mean of a few, after one that pays for first-time costs; of an encoder,
    those of a token in a small batch.
    """
    if not runner.plan.generates:
        return await _encode_ms(runner)
    await runner.feed(0, [0], ["prefill", "last", *runner.lists])
    runner.start(1, steps + 2)
    for _ in range(2):
        await runner.next()
    begun = time.perf_counter()
    for _ in range(steps):
        await runner.next()
    await runner.stop()
    return 1000 * (time.perf_counter() - begun) / steps


async def _encode_ms(runner: Runner) -> float:
    n = min(16, runner.plan.batch)
    begun = 0.0
    for _ in range(2):  # the first pays for first-time costs
        begun = time.perf_counter()
        await runner.feed(0, [0] * n, ["prefill", "embed", "last"])
        await runner.rows("pooled", 1, 1)
    return 1000 * (time.perf_counter() - begun) / n
