"""Weight upload: the copies of bytes that stay unchanged, and the repack dispatches for the others.

upload.js executes both, so no weight passes through Python's heap.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import js
from pyodide.ffi import create_proxy, to_js

from py_engine.files.records import MAX_RECORD
from py_engine.gpu import repack
from py_engine.gpu.memory import Memory, obj
from py_engine.gpu.repack import Repack
from py_engine.plan import quants
from py_engine.plan.kernels import Shader
from py_engine.plan.placement import Placement

if TYPE_CHECKING:
    from py_engine.files.source import CachedRecords

SLOTS = 6  # records that are read or uploaded at a time
SUMS = "checksums"  # the plane of a stream's checksums


class Copy(NamedTuple):
    """Bytes that stay unchanged. upload.js gets the fields' names from here; buffers are indices."""

    source: int  # byte in the record
    buffer: int
    target: int  # byte in the buffer
    size: int


class Dispatch(NamedTuple):
    """One repack or checksum dispatch. upload.js gets the fields' names from here; pipeline and buffer are indices."""

    pipeline: int
    buffer: int
    offset: int  # byte of the plane in the buffer
    size: int
    params: int  # byte of its Params in the record's uniforms
    params_size: int
    x: int
    y: int


class Upload:
    """The upload of one model's weights."""

    def __init__(self, gpu: Memory, pipeline_of: Callable[[Shader], Awaitable[Any]]) -> None:
        self._gpu, self._pipeline_of = gpu, pipeline_of
        fields = {"copyFields": Copy._fields, "dispatchFields": Dispatch._fields}
        self._js = js.wispUpload.new(gpu.device, obj(maxRecord=MAX_RECORD, slots=SLOTS, **fields))
        self._pipelines: dict[str, int] = {}  # label -> index
        self._planes: dict[str, tuple[int, int, int]] = {}  # plane -> (index of its buffer, offset, bytes)
        indices: dict[int, int] = {}
        for name, (buffer, offset, size) in gpu.places.items():
            if id(buffer) not in indices:
                indices[id(buffer)] = int(self._js.addBuffer(buffer))
            self._planes[name] = indices[id(buffer)], offset, size

    async def start(self, shaders: Sequence[Shader]) -> None:
        """Write the grids that planes begin with, and compile the pipelines of uploads."""
        gpu = self._gpu
        for weight in gpu.plan.weights.values():
            for _, part in weight.split(gpu.variant.max_binding):
                for name, plane in part.layout.planes.items():
                    if plane.table:
                        gpu.write(f"{part.name}.{name}", quants.grid(part.type))
        pipelines = await asyncio.gather(*(self._pipeline_of(shader) for shader in shaders))
        for shader, pipeline in zip(shaders, pipelines, strict=True):
            self._pipelines[shader.label] = int(self._js.addPipeline(pipeline))

    async def write(self, data: Any, placements: Sequence[Placement]) -> None:
        """Upload the weights of one record, a JavaScript ArrayBuffer of at most MAX_RECORD bytes.

        On return `data` may be freed; GPU work may still be pending.
        """
        if placements:
            await self._js.write(data, *self._commands(placements))

    async def stream(
        self,
        cached: CachedRecords,
        placements: Callable[[int], Sequence[Placement]],
        on_progress: Callable[[int], None],
    ) -> tuple[set[int], float]:
        """Upload the weights of records as they are read from a disk. `placements`: those of record i of `cached`.

        Calls `on_progress` with the number of records read, at intervals. Returns the indices of records that could
        not be read or are damaged, and the milliseconds of reading, summed over parallel reads. The weights of damaged
        records are wrong until write() uploads them again.
        """
        progress = create_proxy(on_progress)
        check_here = self._gpu.variant.software  # a software GPU computes checksums more slowly than the CPU
        streaming = self._js.stream(cached.open, len(cached.records), check_here, progress)
        self._planes[SUMS] = int(streaming.sums), 0, 8 * len(cached.records)
        try:
            for i, record in enumerate(cached.records):
                checks = (
                    [repack.checksum(record.length, 2 * i, SUMS, self._gpu.variant)]
                    if cached.checked and not check_here
                    else []
                )
                self._js.addCommands(*self._commands(placements(i), checks))
                await asyncio.sleep(0)  # upload.js uploads what was read meanwhile
            result = await streaming.done
            return {int(i) for i in result.failed}, float(result.read_ms)
        finally:
            progress.destroy()

    def _commands(self, placements: Sequence[Placement], checks: Sequence[Repack] = ()) -> tuple[Any, Any, Any]:
        """A record's copies, dispatches and their params, as typed arrays."""
        copies, dispatches, params = array("d"), array("d"), bytearray()
        for check in checks:
            self._dispatch(check, check.plane, dispatches, params)
        for place in placements:
            repacks = repack.repacks(place, self._gpu.variant)
            for job in repacks:
                self._dispatch(job, f"{place.weight.name}.{job.plane}", dispatches, params)
            if not repacks:
                copies.extend(self._copy(place))
        return to_js(memoryview(copies)), to_js(memoryview(dispatches)), to_js(memoryview(params))

    def _copy(self, place: Placement) -> Copy:
        """The copy of rows whose plane has the file's layout."""
        buffer, offset, _ = self._planes[f"{place.weight.name}.w_qs"]
        at = place.row0 * (1 if place.weight.rows == 1 else place.row_bytes)
        return Copy(place.src, buffer, offset + at, -(-place.rows * place.row_bytes // 4) * 4)

    def _dispatch(self, job: Repack, plane: str, dispatches: array[float], params: bytearray) -> None:
        packed = job.shader.pack(job.consts)
        pipeline = self._pipelines[job.shader.label]
        dispatches.extend(Dispatch(pipeline, *self._planes[plane], len(params), len(packed), *job.grid))
        params += packed + bytes(-len(packed) % quants.ALIGN)

    @property
    def written_ms(self) -> float:
        """Milliseconds that streams spent on handing records to the GPU."""
        return float(self._js.written_ms)

    async def end(self) -> None:
        """Wait until the GPU has written all weights, then free the staging memory."""
        await self._js.end()

    def close(self) -> None:
        """Free the staging memory. A stream that is running fails."""
        self._js.close()
