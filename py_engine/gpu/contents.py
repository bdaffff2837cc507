"""What a plan has on a GPU: weights, pages of the caches, and buffers whose contents the host reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyodide.ffi import to_js

from py_engine.gpu.gpu import Gpu, device_lost
from py_engine.gpu.preparation import Preparation
from py_engine.plan.placement import Placement
from py_engine.runners import Counts, Turn

if TYPE_CHECKING:
    from py_engine.files.source import CachedRecords


class GpuContents:
    """Writes and reads the memory of one plan. GpuRunner adds what computes."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.plan = gpu, gpu.plan
        self._preparation = Preparation(lambda lists: gpu.compile(names=lists), self._unproven)

    def _unproven(self, lists: set[str]) -> bool:
        return self.gpu.prover is not None and self.gpu.prover.unproven(lists)

    @property
    def lost(self) -> str | None:
        return self.gpu.lost

    async def load(self, data: Any, placements: Sequence[Placement]) -> None:
        self._check()
        assert self.gpu.uploading is not None
        await self.gpu.uploading.write(data, placements)

    async def stream(
        self,
        cached: CachedRecords,
        placements: Callable[[int], Sequence[Placement]],
        on_progress: Callable[[int], None],
    ) -> tuple[set[int], float]:
        """Upload records from a disk: see Upload.stream()."""
        self._check()
        assert self.gpu.uploading is not None
        uploading = self.gpu.uploading.stream(cached, placements, on_progress)
        found: tuple[set[int], float] = await self._awaited(uploading)
        return found

    @property
    def written_ms(self) -> float:
        """Milliseconds that streams have spent on handing records to the GPU, until ready()."""
        return self.gpu.uploading.written_ms if self.gpu.uploading is not None else 0.0

    async def ready(self) -> None:
        if self.gpu.uploading is not None:
            await self.gpu.uploading.end()
            self.gpu.uploading = None

    async def reserve_pages(self, pages: Sequence[int], turn: Turn) -> None:
        self._check()
        await self._awaited(self.gpu.reserve_pages(pages, turn))

    def set_pages(self, group: int, seq: int, first: int, pages: Sequence[int]) -> None:
        if not self.gpu.lost:
            self.gpu.set_pages(group, seq, first, pages)

    def copy_page(self, group: int, source: int, to: int) -> None:
        self._check()
        self.gpu.copy_page(group, source, to)

    async def read_pages(self, pages: Sequence[tuple[int, int]]) -> Any:
        self._check()
        return await self._awaited(self.gpu.pages().read(to_js(pages)))

    def write_pages(self, pages: Sequence[tuple[int, int, int]], data: Any) -> None:
        self._check()
        self.gpu.pages().write(to_js(pages), data)

    def set_tokens(self, seq: int, position: int, ids: list[int]) -> None:
        if not self.gpu.lost:
            self.gpu.set_tokens(seq, position, ids)

    async def finish(self) -> None:
        self._check()
        await self._awaited(self.gpu.device.queue.onSubmittedWorkDone())

    async def logits(self, n: int) -> Any:
        return await self.rows("all_logits.logits", n, self.plan.n_vocab)

    async def rows(self, name: str, n: int, width: int) -> Any:
        self._check()
        return await self._awaited(self.gpu.rows(name, n, width))

    def counts(self) -> Counts:
        counts = self.gpu.replay.counts
        return Counts(int(counts.submits), int(counts.dispatches), float(counts.encode_ms), float(counts.wait_ms))

    async def _awaited(self, work: Awaitable[Any]) -> Any:
        """The result of work on the device. WispError device_lost if the device was lost, or replaced meanwhile."""
        try:
            found = await work
        except Exception as error:
            raise await self.gpu.cause(error) from None
        if self.gpu.closed:  # its buffers are freed: later steps would not find them
            self._check()
        return found

    def _check(self) -> None:
        """Note that a request uses the device. WispError device_lost if the device was lost."""
        self._preparation.used()
        if self.gpu.lost:
            raise device_lost(self.gpu.lost)
