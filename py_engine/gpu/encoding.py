"""Runs of encoders on the GPU: pictures and sound in, embeddings out."""

from __future__ import annotations

import time
from typing import Any

from pyodide.ffi import to_js

from py_engine.gpu.gpu import Gpu
from py_engine.gpu.step_times import StepTimes
from py_engine.plan.encoder import EncoderInputs, EncoderPlan


class Encoding:
    """Runs encoders whose lists are compiled, several at once, and measures their times."""

    def __init__(self, gpu: Gpu, times: StepTimes) -> None:
        self._gpu, self._times = gpu, times
        self._running = 0
        self._ended = 0.0  # when the newest results came

    async def run(self, encoder: EncoderPlan, inputs: EncoderInputs) -> Any:
        """Return the embeddings of the inputs."""
        for name, at, data in inputs.writes:
            self._gpu.write(name, data, at)
        for stage in encoder.stages:
            self._gpu.replay.runRows(inputs.rows[stage.rows], to_js([stage.list]))
        kind, begun = (encoder.output, inputs.tokens), time.perf_counter()
        self._running += 1
        expected_ms = self._times.shortest(kind) * self._running
        try:
            found = await self._gpu.pooled(encoder.output, inputs.tokens, encoder.width, [], expected_ms)
        finally:
            self._running -= 1
        before, self._ended = self._ended, time.perf_counter()
        self._times.add(kind, 1000 * (self._ended - max(begun, before)), queued=begun < before)
        return found
