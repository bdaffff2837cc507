"""Compares what inspect() states with what a load allocates."""

from types import SimpleNamespace
from typing import Any, cast

import js

from bench.shapes import SHAPES, header
from py_engine.cpu.memory import Memory
from py_engine.engine import Engine
from py_engine.files.parts import Parts
from py_engine.gpu.gpu import Gpu
from py_engine.inspection import Capacity, inspect
from py_engine.load_plan import adapter_for, plan_for
from py_engine.options import LoadOptions
from tests.support.page.engines import open_model


async def stated_and_taken(url: str, backend: str, *, compiled: bool) -> dict[str, Any]:
    """What inspect() states of a model, and the bytes that a load allocates and keeps.

    Without `compiled`, a WebGPU load ends before its kernels are compiled, which takes long on a software GPU.
    """
    options = LoadOptions(backend=backend)
    source, header = await open_model(url)
    stated = await inspect(source, header, options, Capacity(1 << 32, estimated=False))
    try:
        before = int(js.allocatedBytes())
        if backend == "webgpu" and not compiled:
            adapter, device = await adapter_for(options)
            assert device is not None
            plan = await plan_for(Parts.of(source, header), device, options)
            gpu = await Gpu.open(adapter, device, plan)
            taken = int(js.allocatedBytes()) - before
            gpu.close()
        else:
            engine = await Engine.load(source, header, options)
            taken = int(js.allocatedBytes()) - before if backend == "webgpu" else _of_cpu(engine.runner)
            await engine.unload()
    finally:
        source.close()
    return {"stated": stated, "taken": taken}


async def of_shape(shape: str, type: str, backend: str) -> dict[str, Any]:
    """The same for a model of one of the bench's shapes, from its header alone: nothing is loaded.

    Of WebGPU, `js.allocatedBytes` counts the buffers' sizes; the page makes them small (ALLOCATE_LITTLE). The CPU
    engine's memory is laid out, but not taken.
    """
    options = LoadOptions(backend=backend)
    head = header(SHAPES[shape], type)
    source = cast("Any", SimpleNamespace(size=head.file_size))
    stated = await inspect(source, head, options, Capacity(1 << 40, estimated=False))
    adapter, device = await adapter_for(options)
    plan = await plan_for(Parts.of(source, head), device, options)
    if device is None:
        return {"stated": stated, "taken": Memory(plan, 0, threads=4).end}
    before = int(js.allocatedBytes())
    gpu = await Gpu.open(adapter, device, plan)
    taken = int(js.allocatedBytes()) - before
    gpu.close()
    return {"stated": stated, "taken": taken}


def _of_cpu(runner: Any) -> int:
    """Bytes of the weights and buffers in the CPU engine's memory; buffers at one address share it."""
    memory, plan = runner._memory, runner.plan
    sizes: dict[int, int] = {}
    for b in plan.buffers.values():
        at = memory.buffer(b.name)
        sizes[at] = max(sizes.get(at, 0), b.nbytes)
    return sum(memory.bytes_of(w) for w in plan.weights.values()) + sum(sizes.values())


async def verdicts(url: str, backend: str, capacities: list[tuple[int, bool]]) -> list[dict[str, Any]]:
    """What inspect() states of a model for each capacity (bytes, whether they are an estimate)."""
    source, header = await open_model(url)
    try:
        return [
            await inspect(source, header, LoadOptions(backend=backend), Capacity(size, estimated))
            for size, estimated in capacities
        ]
    finally:
        source.close()
