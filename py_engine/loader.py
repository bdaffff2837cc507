"""Loads a plan's weights into a runner. Chooses the faster executor if both can run the plan."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

from py_engine.cpu.device import BrowserDevice, too_large
from py_engine.cpu.lowering import supports
from py_engine.cpu.runner import CpuRunner
from py_engine.cpu.wasm_runner import WasmRunner
from py_engine.errors import WispError
from py_engine.files.parts import Parts
from py_engine.files.records import PieceIndex, Record, plan_records
from py_engine.plan import budget, quants
from py_engine.plan.kernels import Device
from py_engine.plan.placement import Placements
from py_engine.plan.plan import Plan
from py_engine.proof.modules import import_modules
from py_engine.proof.variants import shaders_of
from py_engine.runners import Runner, warm_up
from py_engine.tasks import begin, quietly

if TYPE_CHECKING:
    from py_engine.files.source import Source
    from py_engine.gpu.gpu import Gpu
    from py_engine.gpu.runner import GpuRunner
    from py_engine.proof.proven import Proven
    from py_engine.proof.prover import Prover

OnProgress = Callable[[str, int, int], None]  # (stage, done, total)
LoadPackage = Callable[[str], Awaitable[Any]]


def cpu_limit_error(plan: Plan) -> WispError | None:
    """The error if the plan exceeds the memory of WebAssembly in this browser."""
    size, limit = _bytes_on_cpu(plan), BrowserDevice.max_bytes()
    return too_large(size, limit) if size > limit else None


def _bytes_on_cpu(plan: Plan) -> int:
    return sum(budget.pools(plan, on_cpu=True).values())


@dataclass(frozen=True)
class StreamedFile:
    """One file whose records are streamed to the GPU. `done`: bytes of the model that are uploaded already."""

    source: Source
    plan: list[Record]
    index: PieceIndex
    placements: Placements
    done: int


@dataclass
class Loader:
    """The state of one load. `adapter` and `device` are None for the CPU backend.

    `proven`: what is known of the device's kernels; the others are proven. `prove_first`: before the upload begins.
    """

    parts: Parts
    plan: Plan
    adapter: Any
    device: Device | None
    backend: str
    report: OnProgress
    load_package: LoadPackage | None
    proven: Proven | None = None
    prove_first: bool = False
    threads: int | None = None  # on the CPU; None: all
    prover: Prover | None = None
    timings: dict[str, float] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    _expanding: asyncio.Task[None] | None = field(default=None, init=False)

    async def run(self) -> tuple[str, Runner]:
        """Load the model: ("webgpu" or "cpu", its runner). Raises WispError, with nothing left allocated."""
        runners: dict[str, Runner] = {}
        compiling: asyncio.Future[None] | None = None
        try:
            if self.device is not None:
                gpu = await self._open_gpu(self.device)
                runners["webgpu"] = gpu
                starting = begin(gpu.gpu.upload_start())
                compiling = quietly(asyncio.ensure_future(self._compile(gpu)))
                await starting
                if self.prove_first:
                    await compiling
            else:
                runners["cpu"] = await self._open_cpu()
            await self._weights(runners)
            if compiling:
                await compiling
            ((name, runner),) = runners.items()
        except BaseException as error:
            for task in (compiling, self._expanding):
                if task:
                    task.cancel()
            cause = await self._cause(runners, error)
            for runner in runners.values():
                runner.close()
            raise cause from None
        if self.prover is not None:
            self.prover.model_in_use()
        if name == "cpu" and self.backend == "auto":
            self.notices.append("No GPU here: running on the CPU, which is slower.")
        return name, runner

    async def _package(self, name: str) -> None:
        if self.load_package:
            await self.load_package(name)

    async def _open_cpu(self) -> Runner:
        """The CPU engine; numpy for a plan with ops that the engine lacks."""
        if not supports(self.plan):
            await self._package("numpy")
            return CpuRunner(self.plan)
        runner = WasmRunner(self.plan, await BrowserDevice.open(_bytes_on_cpu(self.plan)), self.threads)
        try:
            await runner.open()
        except BaseException:
            runner.close()
            raise
        return runner

    async def _open_gpu(self, device: Device) -> GpuRunner:
        from py_engine.gpu.gpu import Gpu
        from py_engine.gpu.runner import GpuRunner

        if any(quants.needs_numpy(w.type) for w in self.plan.weights.values()):
            await self._package("numpy")
        started = time.perf_counter()
        opening = begin(Gpu.open(self.adapter, device, self.plan))
        self._expanding = quietly(begin(self._expand_kernels(device, opening)))
        gpu = await opening
        self.timings["open_gpu_ms"] = 1000 * (time.perf_counter() - started)
        if self.proven is not None:
            from py_engine.proof.prover import Prover

            self.prover = Prover(gpu, self.proven, self.load_package)
            gpu.prover = self.prover
        return GpuRunner(gpu)

    async def _expand_kernels(self, device: Device, opening: asyncio.Task[Gpu]) -> None:
        """Make the texts of kernels while the device is opened, and import what the proof of unknown ones needs.

        Once it is open this stops: the compiler makes the rest, beside the upload.
        """
        await asyncio.sleep(0)
        unknown = False
        for name in [name for name in self.plan.lists if name not in self.plan.lazy]:
            if opening.done():
                break
            shaders = shaders_of(self.plan, device, [name])
            unknown |= self.proven is not None and not all(self.proven.knows(shader) for shader in shaders)
            await asyncio.sleep(0)
        if unknown:
            with suppress(Exception):  # the proof imports them again
                await import_modules(self.load_package)

    async def _cause(self, runners: dict[str, Runner], error: BaseException) -> BaseException:
        """WispError device_lost if the loss of the device has ended the load, else `error`."""
        if "webgpu" not in runners:
            return error
        return await cast("GpuRunner", runners["webgpu"]).gpu.cause(error)

    async def _compile(self, gpu: GpuRunner) -> None:
        started = time.perf_counter()
        await gpu.compile(lambda done, total: self.report("compile", done, total))
        compiled = time.perf_counter()
        if gpu.on_gpu:
            await warm_up(gpu)
        self.timings["compile_ms"] = 1000 * (compiled - started)
        self.timings["warm_up_ms"] = 1000 * (time.perf_counter() - compiled)

    async def _weights(self, runners: dict[str, Runner]) -> None:
        started = time.perf_counter()
        limits = {"webgpu": self.device.max_binding if self.device else 0, "cpu": 1 << 62}
        placements = {name: Placements(self.parts.header, self.plan, limits[name]) for name in runners}
        only_gpu = runners.keys() == {"webgpu"}  # numpy cannot stream
        gpu = cast("GpuRunner", runners["webgpu"]) if only_gpu else None
        done, spent = 0, 0.0
        for source, header in zip(self.parts.sources, self.parts.headers, strict=True):
            index, plan = PieceIndex(header), plan_records(header, source.size)
            load = StreamedFile(source, plan, index, placements["webgpu"], done) if gpu else None
            uploaded = await self._stream(gpu, load) if gpu and load else set()
            done += sum(record.length for record in uploaded)
            async for record, data in source.records(plan, uploaded):
                record_started = time.perf_counter()
                for name, runner in runners.items():
                    await runner.load(data, placements[name].of(index.pieces(record)))
                del data
                spent += time.perf_counter() - record_started
                done += record.length
                self.report("upload", done, self.parts.size)
        spent += gpu.written_ms / 1000 if gpu else 0.0
        last = time.perf_counter()
        for runner in runners.values():
            await runner.ready()
        end = time.perf_counter()
        self.timings["upload_ms"] = 1000 * (end - started)
        self.timings["upload_read_ms"] = 1000 * (last - started - spent)  # waiting for records
        self.timings["upload_write_ms"] = 1000 * spent  # handing them to the GPU
        self.timings["upload_end_ms"] = 1000 * (end - last)  # waiting for the GPU at the end

    async def _stream(self, gpu: GpuRunner, file: StreamedFile) -> set[Record]:
        """Upload a file's records from the disk to the GPU, which checks them. Returns the records that arrived."""
        cached = file.source.cached_records(file.plan)
        records = cached.records
        ends = list(accumulate((record.length for record in records), initial=file.done))
        failed, read_ms = await gpu.stream(
            cached,
            lambda i: file.placements.of(file.index.pieces(records[i])),
            lambda n: self.report("upload", ends[n], self.parts.size),
        )
        uploaded = {record for i, record in enumerate(records) if i not in failed}
        file.source.mark_uploaded(uploaded, read_ms)
        self.report("upload", file.done + sum(record.length for record in uploaded), self.parts.size)
        return uploaded
