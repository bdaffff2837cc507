"""Loads a model's weights to the GPU, in small records, without compiling the model's kernels (saves time)."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import js

from py_engine import loader, planner
from py_engine.errors import WispError
from py_engine.files import parts, records, shards
from py_engine.files.gguf_header import read_header
from py_engine.gpu import adapter as adapters
from py_engine.gpu.gpu import Gpu
from py_engine.gpu.memory import obj
from py_engine.gpu.runner import GpuRunner
from tests.support.page.patches import patched

INTERRUPTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "cancel": lambda gpu, task: task.cancel(),
    "lose the device": lambda gpu, task: gpu.device.destroy(),
}


async def contents(gpu: Gpu) -> str:
    """SHA-256 of all weights on the GPU."""
    digest = hashlib.sha256()
    for name in sorted(gpu.places):
        buffer, offset, size = gpu.places[name]
        if "." in name and buffer.label.startswith("weights"):
            size = -(-size // 4) * 4
            copy = gpu.device.createBuffer(obj(size=size, usage=9))
            encoder = gpu.device.createCommandEncoder()
            encoder.copyBufferToBuffer(buffer, offset, copy, 0, size)
            gpu.device.queue.submit(js.Array.of(encoder.finish()))
            await copy.mapAsync(1)
            digest.update(copy.getMappedRange().to_bytes())
            copy.destroy()
    return digest.hexdigest()


async def load(
    url: Any, size: int, early: bool = False, interruption: str | None = None, software: bool = False
) -> dict[str, Any]:
    """Load weights in records of `size` bytes; return their SHA-256, the progress and statistics, or the error's code.

    `early`: begin the download before the device exists. `software`: check records on the CPU, as for a software GPU.
    """
    planned = partial(records.plan_records, max_bytes=size)
    with patched(loader, plan_records=planned), patched(parts, plan_records=planned):
        return await _loaded(url, early, interruption, software)


async def _loaded(url: Any, early: bool, interruption: str | None, software: bool) -> dict[str, Any]:
    out: dict[str, Any] = {"progress": []}
    source = await shards.open_source(url, lambda *_: None)
    gpu: Gpu | None = None
    try:
        whole = parts.Parts.of(source, await read_header(source.read, source.size))
        if early:
            whole.prefetch()
            await asyncio.sleep(0.05)
        adapter = await adapters.request_adapter()
        device = replace(await adapters.device_of(adapter), software=software)
        plan = planner.make_plan(whole.header, device, planner.PlanOptions(64, 16, "f16"))
        gpu = await Gpu.open(adapter, device, plan)
        await gpu.upload_start()

        def on_progress(stage: str, done: int, size: int) -> None:
            out["progress"].append(done)

        loading = loader.Loader(whole, plan, adapter, device, "webgpu", on_progress, None)
        if interruption:
            interrupt = INTERRUPTIONS[interruption]
            asyncio.get_event_loop().call_later(0, interrupt, gpu, asyncio.current_task())
        await loading._weights({"webgpu": GpuRunner(gpu)})
        out |= {"weights": await contents(gpu), "size": source.size, "written": loading.timings["upload_write_ms"]}
    except WispError as error:
        out["error"] = error.as_dict()["error"]["code"]
    except asyncio.CancelledError:
        out["error"] = "cancelled"
    finally:
        if gpu is not None:
            gpu.close()
        source.close()
    return out | {"stats": source.stats}


async def load_file_of_this_computer(url: str, size: int) -> dict[str, Any]:
    """Load the same bytes as a File."""
    return await load(js.File.new(js.Array.of(await (await js.fetch(url)).arrayBuffer()), "mine.gguf"), size)
