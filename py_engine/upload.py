"""Weights on their way to the GPU: records into staging memory that stays mapped, from there into their places.

A record is copied once by this thread. Types that lie in memory as they do in the file are then copied on by the GPU;
the others go through the buffer `raw` and a repack kernel. There are a few staging buffers, so that the GPU may be some
records behind; who uploads waits for a free one, so that it is not more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

import js
from pyodide.ffi import JsException, to_js

from py_engine import quants, repack
from py_engine.errors import SERVER_ERROR, WispError
from py_engine.placement import Placement
from py_engine.plan import Weight
from py_engine.records import MAX_RECORD
from py_engine.repack import Repack

if TYPE_CHECKING:
    from py_engine.gpu import Gpu

SLOTS = 3
MAP_WRITE, COPY_SRC, COPY_DST, UNIFORM, STORAGE = 0x2, 0x4, 0x8, 0x40, 0x80
WRITE = 2  # GPUMapMode
PAD = 256  # behind a record in `raw`, where a kernel may look


class Upload:
    """One model's weights."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._device = gpu, gpu.device
        self._raw: Any = None
        self._slots: list[Any] = []
        self._free: asyncio.Queue[Any] = asyncio.Queue()
        self._waits: set[asyncio.Future[None]] = set()
        self._failed: BaseException | None = None

    async def start(self) -> None:
        """Make ready: the buffers, the repack pipelines, the grids that planes begin with."""
        gpu = self._gpu
        for weight in gpu.plan.weights.values():
            if shader := repack.shader_for(weight, gpu.variant):
                await gpu._pipeline(shader)
            for _, part in weight.split(gpu.variant.max_binding):
                for name, plane in part.layout.planes.items():
                    if plane.table:
                        gpu.write(f"{part.name}.{name}", quants.grid(part.type))
        self._raw = self._buffer(MAX_RECORD + PAD, STORAGE | COPY_DST, "raw")
        for _ in range(SLOTS):
            slot = self._buffer(MAX_RECORD, MAP_WRITE | COPY_SRC, "staging", mappedAtCreation=True)
            self._slots.append(slot)
            self._free.put_nowait(slot)

    def _buffer(self, size: int, usage: int, label: str, **more: Any) -> Any:
        from py_engine.gpu import obj

        return self._device.createBuffer(obj(size=size, usage=usage, label=label, **more))

    async def take(self, data: Any, placements: Sequence[Placement]) -> None:
        """Take weights out of one record, a JavaScript ArrayBuffer of at most MAX_RECORD bytes, which may go when this
        returns. Nothing passes through Python's heap.
        """
        if not placements:
            return
        slot = await self._slot()
        size = int(data.byteLength)
        js.Uint8Array.new(slot.getMappedRange()).set(js.Uint8Array.new(data))
        slot.unmap()
        encoder = self._device.createCommandEncoder()
        jobs: list[tuple[Weight, Repack]] = []
        for place in placements:
            repacks = repack.repacks(place, self._gpu.variant)
            jobs += [(place.weight, r) for r in repacks]
            if not repacks:
                self._copy(encoder, slot, data, place)
        used = None
        if jobs:
            encoder.copyBufferToBuffer(slot, 0, self._raw, 0, -(-size // 4) * 4)
            used = self._repack(encoder, jobs)
        self._device.queue.submit(to_js([encoder.finish()]))
        if used is not None:
            used.destroy()
        wait = asyncio.ensure_future(self._again(slot, slot.mapAsync(WRITE)))
        self._waits.add(wait)
        wait.add_done_callback(self._waits.discard)

    async def _slot(self) -> Any:
        if self._failed is not None:
            raise self._failed
        slot = await self._free.get()
        if slot is None:
            assert self._failed is not None
            raise self._failed
        return slot

    async def _again(self, slot: Any, mapped: Awaitable[None]) -> None:
        try:
            await mapped
        except JsException as error:
            lost = self._gpu.lost or str(error)
            self._failed = WispError(f"The GPU was lost ({lost}). Load the model again.", "device_lost", SERVER_ERROR)
            self._free.put_nowait(None)
        else:
            self._free.put_nowait(slot)

    def _copy(self, encoder: Any, slot: Any, data: Any, place: Placement) -> None:
        """Rows to where they stay, as they are."""
        buffer, offset, _ = self._gpu.places[f"{place.weight.name}.w_qs"]
        size = -(-place.rows * place.row_bytes // 4) * 4
        at = offset + place.row0 * (1 if place.weight.rows == 1 else place.row_bytes)
        if place.src % 4:  # a file aligned to less than words
            self._device.queue.writeBuffer(buffer, at, data, place.src, size)
        else:
            encoder.copyBufferToBuffer(slot, place.src, buffer, at, size)

    def _repack(self, encoder: Any, jobs: list[tuple[Weight, Repack]]) -> Any:
        """The dispatches that bring `raw` into planes; gives the buffer of their parameters."""
        gpu = self._gpu
        packed = [job.shader.pack(job.consts) for _, job in jobs]
        step = -(-max(map(len, packed)) // quants.ALIGN) * quants.ALIGN
        params = self._buffer(step * len(packed), UNIFORM | COPY_DST, "repack params")
        whole = b"".join(one + bytes(step - len(one)) for one in packed)
        self._device.queue.writeBuffer(params, 0, to_js(memoryview(whole)))
        compute = encoder.beginComputePass()
        for i, (weight, job) in enumerate(jobs):
            bound = {"p": (params, i * step, len(packed[i])), "raw": (self._raw, 0, MAX_RECORD + PAD)}
            bound[job.binding] = gpu.places[f"{weight.name}.{job.plane}"]
            compute.setPipeline(gpu.pipelines[job.shader.label])
            compute.setBindGroup(0, gpu._group(job.shader, bound))
            compute.dispatchWorkgroups(*job.grid)
        compute.end()
        return params

    async def end(self) -> None:
        """Wait until the weights are in place, and let the staging memory go."""
        await self._device.queue.onSubmittedWorkDone()
        self.close()

    def close(self) -> None:
        """Let the staging memory go."""
        for wait in self._waits:
            wait.cancel()
        for buffer in (self._raw, *self._slots):
            if buffer is not None:
                buffer.destroy()
        self._raw, self._slots = None, []
