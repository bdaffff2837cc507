"""A plan's GPU memory: weights in a few large buffers, growable caches, activations that share buffers."""

from __future__ import annotations

from typing import Any

import js
from pyodide.ffi import to_js

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.plan import budget, quants
from py_engine.plan.kernels import Device
from py_engine.plan.pages import TABLES, block_tables
from py_engine.plan.plan import Buffer, Plan

ARENA = 1 << 30  # bytes of a weight buffer at most
STORAGE, UNIFORM, COPY_SRC, COPY_DST = 0x80, 0x40, 0x4, 0x8


def obj(**fields: Any) -> Any:
    """A JavaScript object."""
    return to_js(fields, dict_converter=js.Object.fromEntries)


class Memory:
    """One plan's buffers on a device."""

    def __init__(self, device: Any, variant: Device, plan: Plan) -> None:
        self.device, self.variant, self.plan = device, variant, plan
        self.buffers: list[Any] = []  # every GPUBuffer, to destroy on close
        self.places: dict[str, tuple[Any, int, int]] = {}  # buffer or weight plane -> (GPUBuffer, offset, bytes)

    async def guarded(self, work: Any) -> None:
        """Run `work` and raise the device's errors as a WispError."""
        scopes = ("out-of-memory", "validation", "internal")
        for scope in scopes:
            self.device.pushErrorScope(scope)
        work()
        popped = [self.device.popErrorScope() for _ in scopes]  # before other work pushes a scope
        errors = [await error for error in popped]
        if errors[2]:
            raise budget.out_of_memory(self.plan)
        for error in errors[:2]:
            if error:
                raise WispError(f"The GPU rejected a command: {error.message}", "internal_error", SERVER_ERROR)

    def buffer(self, size: int, usage: int, label: str) -> Any:
        """Create a GPUBuffer of `size` bytes with copy usages. WispError model_too_large."""
        if size > self.variant.max_buffer:
            raise WispError(
                f"{label} needs a buffer of {size >> 20} MiB; this device allows {self.variant.max_buffer >> 20} MiB. "
                "Choose a shorter context or a smaller model.",
                "model_too_large",
            )
        buffer = self.device.createBuffer(obj(size=size, usage=usage | COPY_DST | COPY_SRC, label=label))
        self.buffers.append(buffer)
        return buffer

    def allocate(self) -> None:
        """Create every buffer of the plan."""
        self._allocate_weights()
        slots, sizes = self.plan.slots()
        shared = [self.buffer(size, STORAGE, f"activations {i}") for i, size in enumerate(sizes)]
        for b in self.plan.buffers.values():
            if b.pool == "activations":
                if b.name in slots:
                    self.places[b.name] = shared[slots[b.name]], 0, b.nbytes
            else:
                self.places[b.name] = self.buffer(b.nbytes, STORAGE, b.name), 0, b.nbytes
        for name, data in self.plan.constants.items():
            self.write(name, data)
        self.write_block_tables()

    def write_block_tables(self) -> None:
        """Give each sequence that the caches hold its own pages."""
        plan = self.plan
        self.write("state", block_tables(plan.page_groups, plan.n_ctx, plan.page, plan.sequences), TABLES)

    def _allocate_weights(self) -> None:
        """Place the planes in a few large buffers, at aligned offsets."""
        limit = min(self.variant.max_buffer, ARENA)
        arenas: list[list[tuple[str, int, int]]] = []
        used = limit
        for weight in self.plan.weights.values():
            for _, part in weight.split(self.variant.max_binding):
                for plane in part.layout.planes:
                    size = part.plane_bytes(plane)
                    if used + size > limit:
                        arenas.append([])
                        used = 0
                    arenas[-1].append((f"{part.name}.{plane}", used, size))
                    used += -(-size // quants.ALIGN) * quants.ALIGN
        for i, planes in enumerate(arenas):
            _, offset, size = planes[-1]
            buffer = self.buffer(offset + size, STORAGE, f"weights {i}")
            for name, offset, size in planes:
                self.places[name] = buffer, offset, size

    def write(self, name: str, data: Any, at: int = 0) -> None:
        """Write bytes, or a JavaScript typed array, to a buffer of the plan from byte `at` on."""
        buffer, offset, _ = self.places[name]
        self.device.queue.writeBuffer(buffer, offset + at, to_js(memoryview(data)) if isinstance(data, bytes) else data)

    def caches(self) -> list[Buffer]:
        """The buffers that have one part per sequence slot, in slot order."""
        return [b for b in self.plan.buffers.values() if b.pool == "kv"]

    async def enlarge_caches(self, sequences: int) -> None:
        """Replace the caches by ones for `sequences`, and copy the contents. Old bind groups become invalid.

        WispError out_of_memory, with nothing changed.
        """
        caches = self.caches()
        larger: dict[str, Any] = {}
        n_before = len(self.buffers)

        def grow() -> None:
            for b in caches:
                larger[b.name] = self.buffer(b.nbytes * sequences, STORAGE, b.name)

        try:
            if max(b.nbytes for b in caches) * sequences > self.variant.max_binding:
                raise budget.out_of_memory(self.plan)
            await self.guarded(grow)
        except WispError:
            for buffer in self.buffers[n_before:]:
                buffer.destroy()
            del self.buffers[n_before:]
            raise
        encoder = self.device.createCommandEncoder()
        old = [self.places[b.name] for b in caches]
        for b, (buffer, _, size) in zip(caches, old, strict=True):
            encoder.copyBufferToBuffer(buffer, 0, larger[b.name], 0, size)
            self.places[b.name] = larger[b.name], 0, b.nbytes * sequences
        self.device.queue.submit(to_js([encoder.finish()]))
        for buffer, _, _ in old:
            buffer.destroy()
        freed = {id(buffer) for buffer, _, _ in old}
        self.buffers = [buffer for buffer in self.buffers if id(buffer) not in freed]
        self.plan.sequences = sequences
        self.write_block_tables()

    async def copy_cache(self, source: int, to: int) -> None:
        """Copy a sequence's tokens and its part of the caches to another sequence.

        WispError out_of_memory, with nothing changed.
        """
        tokens = self.plan.buffers["tokens"]
        parts = [(b.name, b.nbytes) for b in self.caches()] + [(tokens.name, tokens.nbytes // tokens.shape[0])]

        def copy() -> None:
            staging = self.device.createBuffer(  # WebGPU cannot copy within a buffer
                obj(size=max(size for _, size in parts), usage=COPY_DST | COPY_SRC, label="sequence copy")
            )
            encoder = self.device.createCommandEncoder()
            for name, size in parts:
                buffer = self.places[name][0]
                encoder.copyBufferToBuffer(buffer, source * size, staging, 0, size)
                encoder.copyBufferToBuffer(staging, 0, buffer, to * size, size)
            self.device.queue.submit(to_js([encoder.finish()]))
            staging.destroy()

        await self.guarded(copy)
