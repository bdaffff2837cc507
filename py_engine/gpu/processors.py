"""Logits processors on a GPU: their kernels, and the records and tables of the sequences that have them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from py_engine.errors import WispError
from py_engine.gpu.memory import STORAGE, obj
from py_engine.gpu.pipelines import first_error
from py_engine.plan import kernels
from py_engine.plan.processors import RECORD, Processor, lists_of, record_buffer, refused, table_buffer

if TYPE_CHECKING:
    from py_engine.gpu.gpu import Gpu
    from py_engine.plan.plan import Buffer

MAX_PROCESSORS = 64  # functions of a loaded model that stay compiled: each has kernels
BEGINS = "const wisp_begins = true;"  # the line of the kernel before the caller's text


class GpuProcessors:
    """The processors of one plan."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._lock = gpu, asyncio.Lock()
        self._sequences: dict[int, Processor] = {}
        self._lists: dict[str, tuple[str, ...]] = {}  # of each function, by the first; the least recently used first

    async def add(self, processor: Processor) -> None:
        """Compile a processor, unless it was. WispError invalid_value with what the compiler says."""
        plan = self._gpu.plan
        async with self._lock:
            if processor.list in self._lists:
                self._lists[processor.list] = self._lists.pop(processor.list)
                return
            lists = lists_of(plan, processor)
            shaders = [kernels.expand(op.kernel, op.params, self._gpu.variant) for (op,) in lists.values()]
            try:
                await self._check(shaders)
                await self._allocate(record_buffer())
                if processor.table:
                    await self._allocate(table_buffer(plan.n_vocab))
                self._make_room()
            except WispError:
                for shader in shaders:
                    self._gpu.pipelines.forget(shader)
                raise
            plan.lists |= lists
            plan.lazy |= set(lists)
            self._lists[processor.list] = tuple(lists)

    def _make_room(self) -> None:
        """Forget the functions that no sequence has, the least recently used first, until there is a place."""
        used = {processor.list for processor in self._sequences.values()}
        for first, names in list(self._lists.items()):
            if len(self._lists) < MAX_PROCESSORS:
                return
            if first not in used and not any(self._gpu.compiling[name] for name in names):
                self._gpu.forget(self._lists.pop(first))
        if len(self._lists) >= MAX_PROCESSORS:
            what = f"Requests use {MAX_PROCESSORS} processors of this model now"
            raise refused(f"{what}; put what differs between requests into values or a table.")

    def set(self, seq: int, processor: Processor | None, answer: int) -> None:
        """Set a sequence's processor. `answer`: the position of the answer's first token."""
        before = self._sequences.pop(seq, None)
        if processor is None:
            if before is not None:
                self._gpu.write("processors", bytes(4), 4 * seq * RECORD)
            return
        self._gpu.write("processors", processor.record(answer), 4 * seq * RECORD)
        if processor.table and (before is None or before.table != processor.table):
            size = 4 * self._gpu.plan.n_vocab
            self._gpu.write("processor_tables", processor.table.ljust(size, b"\0"), seq * size)
        self._sequences[seq] = processor

    async def _allocate(self, buffer: Buffer) -> None:
        """Create a buffer for all sequences, filled with zeros."""
        gpu = self._gpu
        if buffer.name not in gpu.places:
            await gpu.guarded(lambda: gpu.places.update({buffer.name: (self._made(buffer), 0, buffer.nbytes)}))
            gpu.plan.buffers[buffer.name] = buffer

    def _made(self, buffer: Buffer) -> object:
        return self._gpu.buffer(buffer.nbytes, STORAGE, buffer.name)

    async def _check(self, shaders: Sequence[kernels.Shader]) -> None:
        """Raise the compiler's first error, with its place in the caller's text; then make the pipelines."""
        gpu, code = self._gpu, shaders[0].code
        gpu.device.pushErrorScope("validation")
        module = gpu.device.createShaderModule(obj(code=code, label="logits processor"))
        scope = gpu.device.popErrorScope()
        found = await first_error(module)
        await scope
        if found is not None:
            line = found[0] - (code.splitlines().index(BEGINS) + 1)
            raise refused(f"The processor's WGSL does not compile: line {line}: {found[1]}")
        for shader in shaders:
            try:
                await gpu.pipelines.attempt(shader)
            except Exception as error:  # too much workgroup memory, for example
                cause = await gpu.cause(error)
                if cause is not error:  # the GPU was lost
                    raise cause from None
                what = str(error).splitlines()[0]  # then comes where in WebGPU
                raise refused(f"This GPU makes no pipeline of the processor's WGSL: {what}") from None
