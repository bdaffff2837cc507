"""What becomes of a record's weights on the GPU: which bytes stay as they are, and which repack dispatches the others
need. upload.js does it. Nothing passes through Python's heap.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import js
from pyodide.ffi import create_proxy, to_js

from py_engine.files.records import MAX_RECORD
from py_engine.gpu import repack
from py_engine.gpu.memory import Memory
from py_engine.gpu.pipelines import PipelineCache
from py_engine.gpu.repack import Repack
from py_engine.plan import quants
from py_engine.plan.placement import Placement

if TYPE_CHECKING:
    from py_engine.files.source import CachedRecords

SLOTS = 6  # records that are being read or wait for the GPU
SUMS = "checksums"  # the plane of a stream's


class Upload:
    """One model's weights."""

    def __init__(self, gpu: Memory, pipelines: PipelineCache) -> None:
        self._gpu, self._cache = gpu, pipelines
        self._js = js.wispUpload.new(gpu.device, MAX_RECORD, SLOTS)
        self._pipelines: dict[str, int] = {}
        self._planes: dict[str, tuple[int, int, int]] = {}  # plane -> what upload.js calls its buffer, offset, bytes
        known: dict[int, int] = {}
        for name, (buffer, offset, size) in gpu.places.items():
            if id(buffer) not in known:
                known[id(buffer)] = int(self._js.addBuffer(buffer))
            self._planes[name] = known[id(buffer)], offset, size

    async def start(self) -> None:
        """Make ready: the repack pipelines, the grids that planes begin with."""
        gpu = self._gpu
        checks = repack.checksum_shader(gpu.variant)
        shaders = {checks.label: checks}
        for weight in gpu.plan.weights.values():
            if shader := repack.shader_for(weight, gpu.variant):
                shaders[shader.label] = shader
            for _, part in weight.split(gpu.variant.max_binding):
                for name, plane in part.layout.planes.items():
                    if plane.table:
                        gpu.write(f"{part.name}.{name}", quants.grid(part.type))
        pipelines = await asyncio.gather(*(self._cache.get(shader) for shader in shaders.values()))
        for label, pipeline in zip(shaders, pipelines, strict=True):
            self._pipelines[label] = int(self._js.addPipeline(pipeline))

    async def take(self, data: Any, placements: Sequence[Placement]) -> None:
        """Take weights out of one record, a JavaScript ArrayBuffer of at most MAX_RECORD bytes, which may go when this
        returns.
        """
        if placements:
            await self._js.take(data, *self._work(placements))

    async def stream(
        self, kept: CachedRecords, placements: Callable[[int], Sequence[Placement]], tell: Callable[[int], None]
    ) -> tuple[set[int], float]:
        """Take weights out of records as they come from the disk. `placements` of each, by its number in `kept`; `tell`
        is told now and then how many were read.

        Gives the numbers of those whose bytes could not be read or are damaged (what they have brought is wrong until
        take() brings it anew), and the milliseconds of reading, of several at a time.
        """
        told = create_proxy(tell)
        here = self._gpu.variant.software  # which would take the checksums more slowly
        streaming = self._js.stream(kept.open, len(kept.records), here, told)
        self._planes[SUMS] = int(streaming.sums), 0, 8 * len(kept.records)
        try:
            for i, record in enumerate(kept.records):
                checks = (
                    [repack.checksum(record.length, 2 * i, SUMS, self._gpu.variant)]
                    if kept.checked and not here
                    else []
                )
                self._js.add(*self._work(placements(i), checks))
                await asyncio.sleep(0)  # what was read meanwhile is taken on its way
            result = await streaming.done
            return {int(i) for i in result.failed}, float(result.read_ms)
        finally:
            told.destroy()

    def _work(self, placements: Sequence[Placement], checks: Sequence[Repack] = ()) -> tuple[Any, Any, Any]:
        """What upload.js is to do with a record: copies, jobs and their params."""
        copies, jobs, params = array("d"), array("d"), bytearray()
        for check in checks:
            self._add(check, check.plane, jobs, params)
        for place in placements:
            repacks = repack.repacks(place, self._gpu.variant)
            for job in repacks:
                self._add(job, f"{place.weight.name}.{job.plane}", jobs, params)
            if not repacks:
                copies.extend(self._copy(place))
        return to_js(memoryview(copies)), to_js(memoryview(jobs)), to_js(memoryview(params))

    def _copy(self, place: Placement) -> tuple[float, ...]:
        """Rows that lie there as they do in the file."""
        buffer, offset, _ = self._planes[f"{place.weight.name}.w_qs"]
        at = place.row0 * (1 if place.weight.rows == 1 else place.row_bytes)
        return place.src, buffer, offset + at, -(-place.rows * place.row_bytes // 4) * 4

    def _add(self, job: Repack, plane: str, jobs: array[float], params: bytearray) -> None:
        packed = job.shader.pack(job.consts)
        jobs.extend((self._pipelines[job.shader.label], *self._planes[plane], len(params), len(packed), *job.grid))
        params += packed + bytes(-len(packed) % quants.ALIGN)

    @property
    def written_ms(self) -> float:
        """Milliseconds that streams spent on handing records to the GPU."""
        return float(self._js.written_ms)

    async def end(self) -> None:
        """Wait until the weights are in place, and let the staging memory go."""
        await self._js.end()

    def close(self) -> None:
        """Let the staging memory go; a stream ends."""
        self._js.close()
