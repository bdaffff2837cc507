"""Runs cases on the device: everything is uploaded at once, dispatched in one submit and read back once.

upload() needs no pipelines, so it does all it can while they are compiled: data, bind groups, the buffer to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import accumulate
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
from py_engine.proof.case import Case
from py_engine.proof.random_data import SparseBytes

MAP_READ = 0x1


class _Arena:
    """Arrays end to end, at aligned offsets."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[tuple[int, Any]] = []
        self._offsets: dict[int, int] = {}

    def add(self, values: Any) -> int:
        """The offset of an array's bytes, which it has once."""
        if id(values) not in self._offsets:
            self._offsets[id(values)] = self.append(values)
        return self._offsets[id(values)]

    def append(self, values: Any) -> int:
        """The offset of a copy of an array's bytes."""
        at = self.size
        self._parts.append((at, values))
        self.size += -(-len(memoryview(values).cast("B")) // ALIGN) * ALIGN
        return at

    def bytes(self) -> Array:
        """All bytes."""
        whole = np.zeros(max(ALIGN, self.size), np.uint8)
        for at, values in self._parts:
            data = np.frombuffer(values, np.uint8)
            whole[at : at + len(data)] = data
        return whole


def _size(values: Array) -> int:
    """The bytes of an array's buffer."""
    return max(16, -(-values.nbytes // 4) * 4)


def _part(raw: Array, at: int, like: Array) -> Array:
    """The values from byte `at` on, of the type and size of an array."""
    found: Array = raw[at : at + like.nbytes].view(like.dtype)
    return found


def _sparse_planes(case: Case) -> list[SparseBytes]:
    return [v for found in case.planes.values() for v in found.values() if isinstance(v, SparseBytes)]


async def _check(scopes: list[Any]) -> None:
    for error in [await scope for scope in scopes]:
        if error:
            raise WispError(f"The GPU rejected a command: {error.message}", "internal_error", SERVER_ERROR)


class DeviceRun:
    """Cases on one device."""

    def __init__(self, device: Any, pipelines: PipelineCache, cases: Sequence[Case]) -> None:
        self.cases = cases
        self._device, self._pipelines = device, pipelines
        self._constants, self._params = _Arena(), _Arena()
        self._made: list[Any] = []
        self._sparse: dict[int, Any] = {}  # id of SparseBytes -> GPUBuffer
        self._structs: dict[bytes, bytes] = {}  # equal Params share their memory
        self._written: list[_Arena] = []  # see _arena()
        self._places: list[dict[str, tuple[int, int]]] = []  # of every case's written buffers: (arena, offset)

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
        begins = list(accumulate((arena.size for arena in self._written), initial=0))
        return [
            {name: _part(raw, begins[number] + at, case.data[name]) for name, (number, at) in found.items()}
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
            self._places.append(
                {name: (i, self._arena(i).append(case.data[name])) for i, name in enumerate(case.written())}
            )
            for op, shader in zip(case.ops, case.shaders, strict=True):
                for values, buffer in case.contents(op, shader).values():
                    if buffer not in self._places[-1]:
                        for _, part in values.parts if isinstance(values, SparseBytes) else [(0, values)]:
                            self._constants.add(part)
                if "p" in shader.bindings:
                    self._params.add(self._struct(op, shader))
        self._constant = self._uploaded(self._constants, STORAGE)
        self._uniform = self._uploaded(self._params, UNIFORM)
        self._fill()
        groups = [
            (self._pipelines.layout(shader), self._entries(case, op, shader, own))
            for case, own in zip(self.cases, self._places, strict=True)
            for op, shader in zip(case.ops, case.shaders, strict=True)
        ]
        self._groups = js.wispProof.bindGroups(self._device, to_js(groups))
        size = sum(arena.size for arena in self._written)
        self._staging = self._device.createBuffer(obj(size=max(16, size), usage=MAP_READ | COPY_DST))
        self._made.append(self._staging)

    def _arena(self, number: int) -> _Arena:
        """What the cases write first, second ...: a dispatch cannot read and write one GPUBuffer."""
        if number == len(self._written):
            self._written.append(_Arena())
        return self._written[number]

    def _fill(self) -> None:
        """Create what the cases write, with what it holds before, and experts' matrices with their parts."""
        self._buffers = [self._uploaded(arena, STORAGE) for arena in self._written]
        sparse = {id(values): values for case in self.cases for values in _sparse_planes(case)}
        if not sparse:
            return
        encoder = self._device.createCommandEncoder()
        copy = encoder.copyBufferToBuffer  # looked up once: each look-up crosses into JavaScript
        for key, values in sparse.items():
            usage = STORAGE | COPY_DST
            buffer = self._sparse[key] = self._device.createBuffer(obj(size=max(16, values.nbytes), usage=usage))
            self._made.append(buffer)
            for at, part in values.parts:
                copy(self._constant, self._constants.add(part), buffer, at, len(part))
        self._device.queue.submit(to_js([encoder.finish()]))

    def _entries(
        self, case: Case, op: Op, shader: Shader, own: dict[str, tuple[int, int]]
    ) -> list[tuple[Any, int, int]]:
        """(GPUBuffer, offset, bytes) of each binding."""
        contents, entries = case.contents(op, shader), list[tuple[Any, int, int]]()
        for name in shader.bindings:
            if name == "p":
                struct = self._struct(op, shader)
                entries.append((self._uniform, self._params.add(struct), len(struct)))
                continue
            values, buffer = contents[name]
            if isinstance(values, SparseBytes):
                entries.append((self._sparse[id(values)], 0, values.nbytes))
            elif buffer in own:
                number, at = own[buffer]
                entries.append((self._buffers[number], at, _size(values)))
            else:
                entries.append((self._constant, self._constants.add(values), -(-values.nbytes // 4) * 4))
        return entries

    def _submit(self) -> None:
        dispatches = [
            (self._pipelines[shader], *(g.count(case.batch.n) if isinstance(g, PerToken) else g for g in op.grid))
            for case in self.cases
            for op, shader in zip(case.ops, case.shaders, strict=True)
        ]
        written = [(buffer, arena.size) for buffer, arena in zip(self._buffers, self._written, strict=True)]
        js.wispProof.run(self._device, self._groups, to_js(dispatches), to_js(written), self._staging)

    def _struct(self, op: Op, shader: Shader) -> bytes:
        data = shader.pack(op.consts)
        return self._structs.setdefault(data, data)

    def _uploaded(self, arena: _Arena, usage: int) -> Any:
        buffer = js.wispProof.upload(self._device, arena.bytes().data, usage | COPY_DST | COPY_SRC)
        self._made.append(buffer)
        return buffer
