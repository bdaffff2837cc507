"""A plan's GPU memory: weights in a few large buffers, growable caches, activations that share buffers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import js
from pyodide.ffi import JsException, create_proxy, to_js

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.plan import budget, quants
from py_engine.plan.kernels import Device
from py_engine.plan.pages import TABLES, PageGroup, first_tables, table_offset
from py_engine.plan.plan import Buffer, Plan

ARENA = 1 << 30  # bytes of a weight buffer at most
AT_ONCE = 8  # caches that are allocated before other work on the device may run
STORAGE, UNIFORM, COPY_SRC, COPY_DST = 0x80, 0x40, 0x4, 0x8


def obj(**fields: Any) -> Any:
    """A JavaScript object."""
    return to_js(fields, dict_converter=js.Object.fromEntries)


class Memory:
    """One plan's buffers on a device."""

    def __init__(self, device: Any, variant: Device, plan: Plan) -> None:
        self.device, self.variant, self.plan = device, variant, plan
        self._write_buffer = device.queue.writeBuffer  # looked up once: each look-up crosses into JavaScript
        self.buffers: list[Any] = []  # every GPUBuffer, to destroy on close
        self.places: dict[str, tuple[Any, int, int]] = {}  # buffer or weight plane -> (GPUBuffer, offset, bytes)
        self._scratch: Any = None  # holds a page of one cache while it is copied
        self._pages: Any = None

    async def guarded(self, work: Any) -> None:
        """Run `work` and raise the device's errors as a WispError."""
        scopes = ("out-of-memory", "validation", "internal")
        for scope in scopes:
            self.device.pushErrorScope(scope)
        failed: JsException | None = None
        try:
            work()
        except JsException as thrown:
            failed = thrown
        popped = [self.device.popErrorScope() for _ in scopes]  # before other work pushes a scope
        errors = [await error for error in popped]
        if errors[2] or (failed and failed.name == "RangeError"):  # thrown where a buffer cannot be mapped
            raise budget.out_of_memory(self.plan)
        if failed:
            raise failed
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
        self.write_first_tables()

    def write_first_tables(self) -> None:
        """Write block tables with which any one sequence can run."""
        plan = self.plan
        self.write("state", first_tables(plan.page_groups, plan.n_ctx, plan.page), TABLES)

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
        """Write bytes, or a JavaScript typed array, to a buffer of the plan from byte `at` on.

        A memoryview is read where it is, which saves a copy of large data.
        """
        buffer, offset, _ = self.places[name]
        if isinstance(data, memoryview):
            proxy = create_proxy(data)
            view = proxy.getBuffer("u8")
            self._write_buffer(buffer, offset + at, view.data)
            view.release()
            proxy.destroy()
            return
        content = to_js(memoryview(data)) if isinstance(data, bytes) else data
        self._write_buffer(buffer, offset + at, content)

    def set_pages(self, group: int, seq: int, first: int, pages: Sequence[int]) -> None:
        """Write entries of a sequence's block table, from entry `first` on."""
        entry = table_offset(self.plan.n_ctx, self.plan.page, group, seq) + first
        self.write("state", array("I", pages).tobytes(), TABLES + 4 * entry)

    def set_tokens(self, seq: int, position: int, ids: list[int]) -> None:
        """Write tokens of a sequence."""
        self.write("tokens", array("I", ids).tobytes(), 4 * (seq * (self.plan.n_ctx + 1) + position))

    def copy_page(self, group: int, source: int, to: int) -> None:
        """Copy a page in every cache of a group."""
        if self._scratch is None:
            most = max(size for _, sizes in self._page_sizes() for size in sizes)
            self._scratch = self.buffer(most, 0, "page copy")
        self.pages().copy(group, source, to, self._scratch)

    def pages(self) -> Any:
        """What copies the caches' pages, and moves them to the host and back: a Pages of pages.js."""
        if self._pages is None:
            groups = [
                [
                    obj(buffer=self.places[name][0], size=size, stored=name in group.stored)
                    for name, size in zip(group.caches, sizes, strict=True)
                ]
                for group, sizes in self._page_sizes()
            ]
            self._pages = js.wispPages.new(self.device, to_js(groups))
        return self._pages

    def _page_sizes(self) -> list[tuple[PageGroup, list[int]]]:
        """The groups, and the bytes of a page in each cache."""
        return [(group, self.plan.page_sizes(group, group.caches)) for group in self.plan.page_groups]

    async def allocate_caches(self, pages: Sequence[int]) -> dict[str, Any]:
        """Allocate caches of so many pages, by group, for replace_caches(): name -> buffer. WispError out_of_memory.

        The browser takes a millisecond for each. What sequences submit meanwhile runs between a few of them.
        """
        caches = self._grown(pages)
        allocated: dict[str, Any] = {}

        def allocate(some: list[Buffer]) -> None:
            for b in some:
                allocated[b.name] = self.buffer(b.nbytes, STORAGE, b.name)

        try:
            if max(b.nbytes for b in caches) > self.variant.max_binding:
                raise budget.out_of_memory(self.plan)
            for at in range(0, len(caches), AT_ONCE):
                await self.guarded(partial(allocate, caches[at : at + AT_ONCE]))
        except BaseException:
            self.free(allocated.values())
            raise
        return allocated

    def replace_caches(self, pages: Sequence[int], larger: dict[str, Any]) -> list[tuple[Any, Any, int]]:
        """Replace the caches by those of allocate_caches(pages), and copy the contents. Old bind groups become invalid.

        Returns each old buffer, its new one, and that one's bytes.
        """
        caches = self._grown(pages)
        old = [self.places[b.name] for b in caches]
        encoder = self.device.createCommandEncoder()
        for b, (buffer, _, size) in zip(caches, old, strict=True):
            encoder.copyBufferToBuffer(buffer, 0, larger[b.name], 0, size)
            self.places[b.name] = larger[b.name], 0, b.nbytes
        self.device.queue.submit(to_js([encoder.finish()]))
        self.free(buffer for buffer, _, _ in old)
        self._pages = None
        for group, count in zip(self.plan.page_groups, pages, strict=True):
            if count > group.pages:
                self.plan.set_pages(group, count)
        return [(buffer, larger[b.name], b.nbytes) for b, (buffer, _, _) in zip(caches, old, strict=True)]

    def _grown(self, pages: Sequence[int]) -> list[Buffer]:
        """The caches of the groups that get more pages, as they will be."""
        groups = zip(self.plan.page_groups, pages, strict=True)
        return [b for group, count in groups if count > group.pages for b in self.plan.with_pages(group, count)]

    def free(self, buffers: Iterable[Any]) -> None:
        """Destroy buffers. What was submitted may still use them."""
        freed = set()
        for buffer in buffers:
            buffer.destroy()
            freed.add(id(buffer))
        self.buffers = [buffer for buffer in self.buffers if id(buffer) not in freed]
