"""Runs cases on the device: everything is uploaded at once, dispatched in one submit and read back once.

upload() needs no pipelines, so it does all it can while they are compiled: data, bind groups, the buffer to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import js
import numpy as np
from pyodide.ffi import to_js

from py_engine.cpu.call import Array
from py_engine.errors import SERVER_ERROR, WispError
from py_engine.gpu.memory import COPY_DST, COPY_SRC, STORAGE, UNIFORM, obj
from py_engine.gpu.pipelines import PipelineCache
from py_engine.plan.kernels import Shader
from py_engine.plan.plan import Op, PerToken
from py_engine.plan.quants import ALIGN
from py_engine.proof.cases import Case
from py_engine.proof.random_data import SparseBytes

MAP_READ = 0x1


class _Arena:
    """Arrays end to end, each once, at aligned offsets."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[tuple[int, Any]] = []
        self._offsets: dict[int, int] = {}

    def add(self, values: Any) -> int:
        """The offset of an array's bytes."""
        if id(values) not in self._offsets:
            self._offsets[id(values)] = self.size
            self._parts.append((self.size, values))
            self.size += -(-len(memoryview(values).cast("B")) // ALIGN) * ALIGN
        return self._offsets[id(values)]

    def bytes(self) -> Any:
        """All bytes, as a JavaScript array."""
        whole = np.zeros(max(ALIGN, self.size), np.uint8)
        for at, values in self._parts:
            data = np.frombuffer(values, np.uint8)
            whole[at : at + len(data)] = data
        return to_js(whole.data)


def _size(values: Array) -> int:
    """The bytes of an array's buffer."""
    return max(16, -(-values.nbytes // 4) * 4)


def _sparse_planes(case: Case) -> list[SparseBytes]:
    return [v for found in case.planes.values() for v in found.values() if isinstance(v, SparseBytes)]


async def _check(scopes: list[Any]) -> None:
    for error in [await scope for scope in scopes]:
        if error:
            raise WispError(f"The GPU rejected a command: {error.message}", "internal_error", SERVER_ERROR)


@dataclass(frozen=True)
class _Dispatch:
    """One op of a case, ready but for its pipeline."""

    shader: Shader
    group: Any  # GPUBindGroup
    grid: tuple[int, ...]


class DeviceRun:
    """Cases on one device."""

    def __init__(self, device: Any, pipelines: PipelineCache, cases: Sequence[Case]) -> None:
        self.cases = cases
        self._device, self._pipelines = device, pipelines
        self._constants, self._params = _Arena(), _Arena()
        self._made: list[Any] = []
        self._sparse: dict[int, Any] = {}  # id of SparseBytes -> GPUBuffer
        self._structs: dict[bytes, bytes] = {}  # equal Params share their memory

    async def upload(self) -> None:
        """Create the buffers and fill them. WispError if the device rejects that."""
        if not self.cases:
            return
        self._open_scopes()
        try:
            self._prepare()
        finally:
            checked = self._close_scopes()
        await checked

    async def run(self) -> list[dict[str, Array]]:
        """Each case's written buffers after upload(), with the pipelines. WispError if the device rejects the work."""
        if not self.cases:
            return []
        try:
            for shader in {s.label: s for case in self.cases for s in case.shaders}.values():
                await self._pipelines.get(shader)  # those of uploads may still be compiled
            self._open_scopes()
            try:
                self._submit()
                # Begins now: the scopes take a round trip, too.
                mapped = asyncio.ensure_future(self._staging.mapAsync(MAP_READ))
            finally:
                checked = self._close_scopes()
            await asyncio.wait([checked, mapped])
            await checked
            await mapped
            raw = np.frombuffer(js.Uint8Array.new(self._staging.getMappedRange()).to_bytes(), np.uint8)
        finally:
            self.free()
        return [
            {name: raw[at : at + case.data[name].nbytes].view(case.data[name].dtype) for name, at in found.items()}
            for case, found in zip(self.cases, self._places, strict=True)
        ]

    def free(self) -> None:
        """Destroy the buffers."""
        for buffer in self._made:
            buffer.destroy()
        self._made = []

    def _open_scopes(self) -> None:
        self._device.pushErrorScope("validation")
        self._device.pushErrorScope("out-of-memory")

    def _close_scopes(self) -> asyncio.Future[None]:
        """A future of the check whether the device has rejected anything since _open_scopes()."""
        return asyncio.ensure_future(_check([self._device.popErrorScope() for _ in range(2)]))

    def _prepare(self) -> None:
        for case in self.cases:
            for op, shader in zip(case.ops, case.shaders, strict=True):
                for values, _ in case.contents(op, shader).values():
                    for _, part in values.parts if isinstance(values, SparseBytes) else [(0, values)]:
                        self._constants.add(part)
                if "p" in shader.bindings:
                    self._params.add(self._struct(op, shader))
        self._constant = self._buffer(self._constants.bytes(), STORAGE)
        self._uniform = self._buffer(self._params.bytes(), UNIFORM)
        self._written = [{name: self._empty(_size(case.data[name])) for name in case.written()} for case in self.cases]
        self._fill()
        self._dispatches = [
            self._dispatch(case, op, shader, own)
            for case, own in zip(self.cases, self._written, strict=True)
            for op, shader in zip(case.ops, case.shaders, strict=True)
        ]
        size, self._places = 0, list[dict[str, int]]()  # offsets in _staging of every case's written buffers
        for case, own in zip(self.cases, self._written, strict=True):
            self._places.append({})
            for name in own:
                self._places[-1][name] = size
                size += -(-_size(case.data[name]) // 16) * 16
        self._staging = self._device.createBuffer(obj(size=max(16, size), usage=MAP_READ | COPY_DST))
        self._made.append(self._staging)

    def _fill(self) -> None:
        """Copy what written buffers hold before the case, and the parts of experts' matrices."""
        encoder = self._device.createCommandEncoder()
        copy = encoder.copyBufferToBuffer  # looked up once: each look-up crosses into JavaScript
        for case, own in zip(self.cases, self._written, strict=True):
            for name, buffer in own.items():
                before = case.data[name]
                copy(self._constant, self._constants.add(before), buffer, 0, _size(before))
        for values in {id(v): v for case in self.cases for v in _sparse_planes(case)}.values():
            buffer = self._sparse[id(values)] = self._empty(values.nbytes)
            for at, part in values.parts:
                copy(self._constant, self._constants.add(part), buffer, at, len(part))
        self._device.queue.submit(to_js([encoder.finish()]))

    def _dispatch(self, case: Case, op: Op, shader: Shader, own: dict[str, Any]) -> _Dispatch:
        contents, entries = case.contents(op, shader), []
        for i, name in enumerate(shader.bindings):
            if name == "p":
                struct = self._struct(op, shader)
                place = {"buffer": self._uniform, "offset": self._params.add(struct), "size": len(struct)}
            else:
                values, buffer = contents[name]
                if isinstance(values, SparseBytes):
                    place = {"buffer": self._sparse[id(values)]}
                elif buffer in own:
                    place = {"buffer": own[buffer]}
                else:
                    size = -(-values.nbytes // 4) * 4
                    place = {"buffer": self._constant, "offset": self._constants.add(values), "size": size}
            entries.append({"binding": i, "resource": place})
        group = self._device.createBindGroup(obj(layout=self._pipelines.layout(shader), entries=entries))
        grid = tuple(g.count(case.batch.n) if isinstance(g, PerToken) else g for g in op.grid)
        return _Dispatch(shader, group, grid)

    def _submit(self) -> None:
        encoder = self._device.createCommandEncoder()
        compute = encoder.beginComputePass()
        set_pipeline, bind, run = compute.setPipeline, compute.setBindGroup, compute.dispatchWorkgroups
        for dispatch in self._dispatches:
            set_pipeline(self._pipelines[dispatch.shader])
            bind(0, dispatch.group)
            run(*dispatch.grid)
        compute.end()
        copy = encoder.copyBufferToBuffer
        for case, own, place in zip(self.cases, self._written, self._places, strict=True):
            for name, buffer in own.items():
                copy(buffer, 0, self._staging, place[name], _size(case.data[name]))
        self._device.queue.submit(to_js([encoder.finish()]))

    def _struct(self, op: Op, shader: Shader) -> bytes:
        data = shader.pack(op.consts)
        return self._structs.setdefault(data, data)

    def _buffer(self, data: Any, usage: int) -> Any:
        buffer = self._empty(int(data.length), usage)
        self._device.queue.writeBuffer(buffer, 0, data)
        return buffer

    def _empty(self, size: int, usage: int = STORAGE) -> Any:
        buffer = self._device.createBuffer(obj(size=max(16, size), usage=usage | COPY_DST | COPY_SRC, label="proof"))
        self._made.append(buffer)
        return buffer
