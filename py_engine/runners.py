"""The two executors behind one face: feed a batch, generate tokens, read logits.

A runner's `feed` puts tokens at their positions and runs lists of the plan over them; `start`, `next` and `stop`
generate; `load` takes the weights that a record holds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.placement import Placement
from py_engine.plan import Plan

if TYPE_CHECKING:
    from py_engine.gpu import Gpu

BATCH_MS = 25.0  # what a submit of several steps should take: text still streams smoothly, an abort is quick
MOST_STEPS = 64


class Runner(Protocol):
    """What the engine needs of an executor."""

    plan: Plan

    def load(self, data: Any, placements: Sequence[Placement]) -> None:
        """Take the weights out of a record, a JavaScript ArrayBuffer."""

    async def ready(self) -> None:
        """Wait until every weight is in place."""

    def configure(self, sampling: bytes) -> None:
        """Set the sampling parameters, packed by sampling.pack."""

    async def feed(self, position: int, ids: list[int], lists: list[str]) -> None:
        """Run lists over tokens at `position`; returns when the batch before this one is done."""

    def start(self, position: int, count: int) -> None:
        """Generate up to `count` tokens, the first of which the last feed has sampled for `position`."""

    async def next(self) -> list[int]:
        """The next ids; empty at the end."""

    async def stop(self) -> None:
        """End generation."""

    async def logits(self, n: int) -> Any:
        """Rows of the list "every" after a feed, float32 (n, vocab)."""

    async def rows(self, name: str, n: int, width: int) -> Any:
        """The first rows of a buffer of the plan without their padding, float32 (n, width)."""

    def counts(self) -> dict[str, int]:
        """Submits and dispatches so far."""

    def close(self) -> None:
        """Give the memory back."""


class GpuRunner:
    """WebGPU, by way of replay.js."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.plan = gpu, gpu.plan
        self._done: Any = None
        self._step_ms = 0.0

    def load(self, data: Any, placements: Sequence[Placement]) -> None:
        self.gpu.upload(data, placements)

    async def ready(self) -> None:
        await self.gpu.upload_end()

    def configure(self, sampling: bytes) -> None:
        self.gpu.write("sampling", sampling)

    async def feed(self, position: int, ids: list[int], lists: list[str]) -> None:
        before, self._done = self._done, None
        self._check()
        self._done = self.gpu.feed(position, ids, lists)
        if before is not None:
            await before

    def start(self, position: int, count: int) -> None:
        self._done = None
        steps, ahead = self._pace()
        self.gpu.replay.start(position, count, steps, ahead)

    def _pace(self) -> tuple[int, int]:
        """(steps in a submit, submits ahead) from what a step took: full batches on a fast device, one on a slow."""
        if not self._step_ms:
            return 1, 2
        steps = max(1, min(MOST_STEPS, int(BATCH_MS / self._step_ms)))
        return steps, 3 if steps > 1 else 1 if self._step_ms > BATCH_MS else 2

    async def next(self) -> list[int]:
        replay = self.gpu.replay
        try:
            batch = await replay.next()
        except Exception:
            self._check()
            raise
        if batch is None:
            return []
        ids = [int(i) for i in batch.ids.to_py()]
        if replay.warm:
            ms = float(batch.ms) / len(ids)
            self._step_ms = ms if not self._step_ms else 0.7 * self._step_ms + 0.3 * ms
            replay.steps, replay.ahead = self._pace()
        return ids

    async def stop(self) -> None:
        if not self.gpu.lost:
            await self.gpu.replay.stop()

    async def logits(self, n: int) -> Any:
        return await self.rows("every.logits", n, self.plan.n_vocab)

    async def rows(self, name: str, n: int, width: int) -> Any:
        self._check()
        return await self.gpu.rows(name, n, width)

    def counts(self) -> dict[str, int]:
        counts = self.gpu.replay.counts
        return {"submits": int(counts.submits), "dispatches": int(counts.dispatches)}

    async def compile(self, on_progress: Callable[[int, int], None]) -> None:
        """Compile the kernels; nothing runs before."""
        await self.gpu.compile(on_progress)

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
        self._raw: dict[str, Any] = {}  # weight -> its bytes as they are in the file
        self._cpu: Any = None
        self._position = self._left = 0

    def load(self, data: Any, placements: Sequence[Placement]) -> None:
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

    def configure(self, sampling: bytes) -> None:
        self._cpu.write("sampling", sampling)

    async def feed(self, position: int, ids: list[int], lists: list[str]) -> None:
        self._cpu.feed(position, ids, lists)
        await asyncio.sleep(0)

    def start(self, position: int, count: int) -> None:
        self._position, self._left = position, count

    async def next(self) -> list[int]:
        if not self._left:
            return []
        if self._position > int(self._cpu.buffers["state"][0]):
            self._cpu.run("decode")
        await asyncio.sleep(0)  # messages, such as an abort, come in between tokens
        self._position += 1
        self._left -= 1
        return [int(self._cpu.buffers["tokens"][self._position - 1])]

    async def stop(self) -> None:
        self._left = 0

    async def logits(self, n: int) -> Any:
        return await self.rows("every.logits", n, self.plan.n_vocab)

    async def rows(self, name: str, n: int, width: int) -> Any:
        return self._cpu.buffers[name][:n, :width].copy()

    def counts(self) -> dict[str, int]:
        return {"submits": 0, "dispatches": 0}

    def close(self) -> None:
        self._cpu = None
        self._raw = {}


async def step_ms(runner: Runner, steps: int = 3) -> float:
    """Milliseconds of one decode step, the mean of a few, after one that pays for first-time costs; of an encoder,
    those of a token in a small batch.
    """
    if not runner.plan.generates:
        return await _encode_ms(runner)
    await runner.feed(0, [0], ["prefill", "last"])
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
