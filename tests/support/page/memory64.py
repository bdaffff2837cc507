"""The CPU engine's 64-bit modules, with all of the plan beyond 4 GiB."""

from typing import Any

import js

from py_engine import loader
from py_engine.cpu.device import MAX_BYTES, BrowserDevice
from py_engine.engine import Engine
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.inspection import Capacity, inspect
from py_engine.options import LoadOptions
from py_engine.plan.sampling import Sampling
from tests.support.page.engines import open_model, raw

SAMPLING = Sampling(temperature=1.1, seed=3, top_p=0.95, logprobs=3)


class HighDevice(BrowserDevice):
    """A device for a large plan, whose first 4 GiB nobody uses: pages that nobody touches take no memory."""

    @classmethod
    async def open(cls, size: int = 0) -> BrowserDevice:
        device = await super().open(size + MAX_BYTES)
        device.base += 1 << 32
        return device


async def results(url: str, kv_type: str, prompt: list[int]) -> list[dict[str, Any]]:
    """What a model computes with a 32-bit module, and with a 64-bit one on one and two threads."""
    found = []
    for device, threads in ((BrowserDevice, 1), (HighDevice, 1), (HighDevice, 2)):
        loader.BrowserDevice = device  # type: ignore[misc]
        source, header = await open_model(url)
        try:
            options = LoadOptions(256, "cpu", kv_type, threads=threads)
            engine = await Engine.load(source, header, options)
        finally:
            loader.BrowserDevice = BrowserDevice  # type: ignore[misc]
            source.close()
        runner: Any = engine.runner
        logits, _ = await engine.evaluate(prompt)
        request = GenerationRequest(prompt, SAMPLING, AnswerLimits(12))
        answer = [row for batch in [b async for b in engine.generate(request)] for row in batch.logprobs or []]
        lowest = min(runner._memory.of(weight) for weight in engine.plan.weights.values())
        found.append({
            "logits": raw(logits), "answer": [[row.token, row.logprob] for row in answer], "high": lowest > 1 << 32,
            "threads": runner.threads, "limit": runner._device.limit,
        })  # fmt: skip
        await engine.unload()
    return found


async def verdicts(url: str, limit: int) -> list[str]:
    """What inspect() says of a model on the CPU in a browser without memory64, and with this limit in bytes."""
    found = []
    compute, known = js.wispCompute, BrowserDevice.max_bytes
    source, header = await open_model(url)
    try:
        for most in (None, limit):
            compute.memory64 = False
            if most is not None:
                BrowserDevice.max_bytes = classmethod(lambda cls: limit)  # type: ignore[method-assign, assignment]
            out = await inspect(source, header, LoadOptions(backend="cpu"), Capacity(1 << 40, estimated=False))
            found += [out["verdict"], out["advice"] or "", str(BrowserDevice.max_bytes())]
    finally:
        compute.memory64 = True
        BrowserDevice.max_bytes = known  # type: ignore[method-assign]
        source.close()
    return found
