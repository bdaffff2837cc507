"""A lost GPU comes back: load the model again on a new device. The answers under way then continue (generation.py).

A GPU is lost when its driver is reset, when its process ends, or when a dispatch takes so long that the browser ends
it. One that is lost again and again, or that has too little memory, gets less work (options.step_down) until the
model is unloaded: only the user can know that the GPU is sound again.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol

from py_engine.errors import WispError
from py_engine.options import LoadOptions, run_on_cpu, step_down
from py_engine.runners import Runner

LESS_MAY_HELP = ("device_lost", "out_of_memory", "model_too_large", "no_webgpu")  # codes of errors of a load
LOSSES, WINDOW_S = 3, 60.0  # so many losses in so many seconds: the next load steps down

Reload = Callable[[LoadOptions], Awaitable[Any]]  # the same model, loaded once more: an Engine
Notify = Callable[[str], None]  # tell the user one sentence


class Replaceable(Protocol):
    """What a recovery needs of an Engine."""

    runner: Runner
    backend: str
    context_length: int

    def take_over(self, other: Any) -> None:
        """Go on with the runner of another engine of the same model."""


class Recovery:
    """Replaces the runner of `engine`, which was loaded with `options`, each time its GPU is lost."""

    def __init__(self, engine: Replaceable, options: LoadOptions, reload: Reload, notify: Notify) -> None:
        self._engine, self._options, self._reload, self._notify = engine, options, reload, notify
        self._losses: deque[float] = deque(maxlen=LOSSES)  # their times
        self._task: asyncio.Task[None] | None = None  # a replacement in progress

    async def run(self) -> None:
        """Wait until the engine has a device again. WispError: it gets none; the next request tries again."""
        ended = self._task is None or self._task.done()  # then _end() may not have run yet
        if ended and self._engine.runner.lost is not None:
            self._task = asyncio.ensure_future(self._replace(self._engine.runner.lost))
            self._task.add_done_callback(self._end)
        if self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self) -> None:
        """End a replacement in progress, so that nothing is allocated afterwards: the engine is being unloaded."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _end(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None
        if not task.cancelled():
            task.exception()  # whoever waits has it

    async def _replace(self, reason: str) -> None:
        now = time.monotonic()
        self._losses.append(now)
        self._engine.runner.close()
        steps: list[str] = []
        if len(self._losses) == LOSSES and now - self._losses[0] < WINDOW_S:
            self._losses.clear()
            steps += self._step_down()
        gc.collect()  # what earlier losses left in circles: WebAssembly's heap never shrinks
        while True:
            try:
                new = await self._reload(self._present_options())
                break
            except WispError as error:
                step = self._step_down(without_gpu=error.code == "no_webgpu") if error.code in LESS_MAY_HELP else []
                if not step:
                    raise
                steps += step
        self._engine.take_over(new)
        less = f" Until it is unloaded, {' and '.join(steps)}." if steps else ""
        what = "The GPU" if self._engine.backend == "webgpu" else "The CPU engine's worker"
        self._notify(f"{what} was lost ({reason}) and the model was loaded again; answers continue.{less}")

    def _present_options(self) -> LoadOptions:
        """The options, without a new choice between WebGPU and the CPU."""
        backend = self._engine.backend if self._options.backend == "auto" else self._options.backend
        return replace(self._options, backend=backend, context_length=self._engine.context_length)

    def _step_down(self, *, without_gpu: bool = False) -> list[str]:
        """Ask less of the GPU, or nothing; say how. Empty: the user allows nothing less."""
        # a diffusion model computes a sequence at once, without a KV cache: there is nothing to make smaller
        only_cpu = without_gpu or self._engine.runner.plan.diffusion is not None
        found = run_on_cpu(self._options) if only_cpu else step_down(self._options)
        if found is None:
            return []
        self._options, step = found
        return [step]
