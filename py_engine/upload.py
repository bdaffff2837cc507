"""What becomes of a record's weights on the GPU: which bytes stay as they are, and which repack dispatches the others
need. upload.js does it. Nothing passes through Python's heap.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import js
from pyodide.ffi import to_js

from py_engine import quants, repack
from py_engine.placement import Placement
from py_engine.records import MAX_RECORD
from py_engine.repack import Repack

if TYPE_CHECKING:
    from py_engine.gpu import Gpu

SLOTS = 3  # records that the GPU may have before it


class Upload:
    """One model's weights."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._js = js.wispUpload.new(gpu.device, MAX_RECORD, SLOTS)
        self._pipelines: dict[str, int] = {}
        self._buffers: dict[str, int] = {}  # plane -> what upload.js calls its buffer
        known: dict[int, int] = {}
        for name, (buffer, _, _) in gpu.places.items():
            if id(buffer) not in known:
                known[id(buffer)] = int(self._js.addBuffer(buffer))
            self._buffers[name] = known[id(buffer)]

    async def start(self) -> None:
        """Make ready: the repack pipelines, the grids that planes begin with."""
        gpu = self._gpu
        for weight in gpu.plan.weights.values():
            shader = repack.shader_for(weight, gpu.variant)
            if shader and shader.label not in self._pipelines:
                self._pipelines[shader.label] = int(self._js.addPipeline(await gpu._pipeline(shader)))
            for _, part in weight.split(gpu.variant.max_binding):
                for name, plane in part.layout.planes.items():
                    if plane.table:
                        gpu.write(f"{part.name}.{name}", quants.grid(part.type))

    async def take(self, data: Any, placements: Sequence[Placement]) -> None:
        """Take weights out of one record, a JavaScript ArrayBuffer of at most MAX_RECORD bytes, which may go when this
        returns.
        """
        if not placements:
            return
        copies, jobs, params = array("d"), array("d"), bytearray()
        for place in placements:
            repacks = repack.repacks(place, self._gpu.variant)
            for job in repacks:
                self._add(job, f"{place.weight.name}.{job.plane}", jobs, params)
            if not repacks:
                copies.extend(self._copy(place))
        await self._js.take(data, *(to_js(memoryview(part)) for part in (copies, jobs, params)))

    def _copy(self, place: Placement) -> tuple[float, ...]:
        """Rows that lie there as they do in the file."""
        name = f"{place.weight.name}.w_qs"
        at = place.row0 * (1 if place.weight.rows == 1 else place.row_bytes)
        return place.src, self._buffers[name], self._gpu.places[name][1] + at, -(-place.rows * place.row_bytes // 4) * 4

    def _add(self, job: Repack, plane: str, jobs: array[float], params: bytearray) -> None:
        packed = job.shader.pack(job.consts)
        _, offset, size = self._gpu.places[plane]
        numbers = self._pipelines[job.shader.label], self._buffers[plane], offset, size
        jobs.extend((*numbers, len(params), len(packed), *job.grid))
        params += packed + bytes(-len(packed) % quants.ALIGN)

    async def end(self) -> None:
        """Wait until the weights are in place, and let the staging memory go."""
        await self._js.end()

    def close(self) -> None:
        """Let the staging memory go."""
        self._js.close()
