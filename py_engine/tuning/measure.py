"""Measure kernel candidates on the GPU, and cache the choices in IndexedDB.

It uses a device of its own, destroyed before the model's is opened: a kernel that hangs or loses the device costs only
the measurement. Cached choices need no device.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import js
from pyodide.ffi import JsException, create_once_callable, to_js

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.files.gguf_header import Header
from py_engine.gpu.adapter import request_adapter, request_device
from py_engine.gpu.gpu import Gpu
from py_engine.gpu.memory import COPY_DST, COPY_SRC, STORAGE, obj
from py_engine.plan import quants
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Buffer, Plan, Weight
from py_engine.tuning import cached_choices, tuner
from py_engine.tuning.cached_choices import Choices
from py_engine.tuning.workloads import Workload

RANDOM_BYTES = (1 << 20) - 4092  # of random data that fills buffers; an odd size, so that matrix rows do not repeat
COMPARED_VALUES = 4096  # of an output, approximately
WARM_UP_NS, ROUND_NS = 3e7, 4e6  # GPU time before the first round, and of a round; the fastest round counts
MIN_MEASURABLE_NS = 5e4  # shorter times are taken as this: browsers round their clocks to 100 microseconds
ROUNDS = 2
GIVE_UP_RATIO = 1.2  # a candidate this many times slower than the best is not measured further

LATER = "Not measured yet: kernels are measured when the model is idle, for its next load."
REST_LATER = "Time ran out: the rest is measured when the model is idle, for its next load."

T = TypeVar("T")


@dataclass(frozen=True)
class TuningTarget:
    """What kernels are chosen for. `forced`: fields of the device that must stay as they are."""

    adapter: Any
    device: Device
    header: Header
    plan: Plan  # made for the device as it is
    kv_type: str
    forced: Iterable[str]

    def key(self) -> str:
        """The key of its choices in the cache."""
        info = self.adapter.info
        about: dict[str, Any] = {
            name: str(getattr(info, name)) for name in ("vendor", "architecture", "description", "device")
        }
        about |= {"browser": str(js.navigator.userAgent), "n_ctx": self.plan.n_ctx, "kv_type": self.kv_type}
        return cached_choices.key(about, self.header, self.device, sorted(self.forced), cached_choices.kernels_hash())


async def choose_kernels(
    target: TuningTarget, measure: bool = True, seconds: float = tuner.TIME_BUDGET_S
) -> tuple[Device, dict[str, Any]]:
    """Choose kernels for a model: (the device with the choices, Engine.stats()'s "kernels").

    `measure`: whether to measure where no choice is cached, for so many seconds at most. Choices that were cut short
    are measured again where there is more time.
    """
    started, device, key = time.perf_counter(), target.device, target.key()
    found = await _cached(key, device)
    if found is not None and found.unfinished and found.seconds < seconds:
        found = None
    source = "cache"
    if found is None and not measure:
        return device, {"source": "default", "why": LATER, **cached_choices.as_stats(device, [])}
    if found is None:
        try:
            found = Choices(*await _measure(target, seconds), seconds)
        except (JsException, WispError, ValueError) as error:
            why = f"Measuring failed: {error}"
            return device, {"source": "default", "why": why, **cached_choices.as_stats(device, [])}
        with suppress(JsException):  # no storage: measure again next time
            await js.wispShards.putChoice(key, cached_choices.serialize(found))
        source = "measured"
    ms = round(1000 * (time.perf_counter() - started), 1)
    stats = {"source": source, "key": key, "ms": ms, **cached_choices.as_stats(found.device, found.reports)}
    if found.unfinished and found.seconds < tuner.IDLE_BUDGET_S:
        stats["why"] = REST_LATER
    return found.device, stats


async def _cached(key: str, device: Device) -> Choices | None:
    try:
        text = await js.wispShards.getChoice(key)
    except JsException:
        return None
    try:
        return cached_choices.deserialize(device, text) if isinstance(text, str) else None
    except (ArithmeticError, LookupError, TypeError, ValueError):  # damaged, or of another version
        return None


async def _measure(target: TuningTarget, seconds: float) -> tuple[Device, list[dict[str, Any]]]:
    adapter = await request_adapter()
    if adapter is None:
        raise WispError("The browser offers no second GPU adapter.", "internal_error", SERVER_ERROR)
    bench = GpuBench(await request_device(adapter))
    try:
        chosen = await tuner.tune(target.plan, target.device, bench, sorted(target.forced), seconds)
        if bench.lost:
            raise WispError(f"The GPU was lost: {bench.lost}", "internal_error", SERVER_ERROR)
        return chosen
    finally:
        bench.close()


class GpuBench:
    """A device, and random data that is the same for every trial."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.warm = False
        self.lost: str | None = None
        device.lost.then(create_once_callable(self._on_lost))
        self._random = random.Random(1)
        self._sources: dict[str, Any] = {}
        self._pools: dict[str, tuple[Any, int]] = {}  # kind -> (GPUBuffer, bytes), read by kernels
        self._shared: dict[tuple[str, int], Any] = {}
        self._made: list[Any] = []

    async def trial(self, device: Device, workload: Workload) -> Trial:
        """Compile the workload for a variant. WispError if the device rejects it."""
        plan, outputs = workload.planned(device)
        trial = Trial(self, device, plan, workload, outputs)
        try:
            await _gpu_errors_as_wisp(trial.guarded(trial.allocate))
            await _gpu_errors_as_wisp(trial.compile(None, ["test"]))
        except BaseException:
            trial.close()
            raise
        return trial

    def _on_lost(self, info: Any) -> None:
        self.lost = str(info.message)

    def buffer(self, size: int) -> Any:
        """Create a buffer that lives as long as the bench."""
        size = -(-size // 16) * 16
        made = self.device.createBuffer(obj(size=size, usage=STORAGE | COPY_DST | COPY_SRC, label="throwaway"))
        self._made.append(made)
        return made

    def shared(self, b: Buffer) -> Any:
        """The buffer that all trials with this name and size share."""
        if (b.name, b.nbytes) not in self._shared:
            made = self._shared[b.name, b.nbytes] = self.buffer(b.nbytes)
            if b.pool == "kv":
                words = b.nbytes * 8 // 9 // 4 * 4  # q8_0: bytes, then their scales
                self.fill(made, "f16" if b.dtype == "f16" else "bytes" if b.dtype == "u32" else "f32", b.nbytes)
                if b.dtype == "u32":
                    self.fill(made, "f32", b.nbytes - words, words)
        return self._shared[b.name, b.nbytes]

    def pool(self, kind: str, size: int) -> Any:
        """A buffer of at least `size` random bytes of a kind."""
        if kind not in self._pools or self._pools[kind][1] < size:
            self._pools[kind] = self.buffer(size), size
            self.fill(self._pools[kind][0], kind, size)
        return self._pools[kind][0]

    def fill(self, buffer: Any, kind: str, size: int, at: int = 0) -> None:
        """Fill a buffer with repeated random data."""
        if kind not in self._sources:
            self._sources[kind] = self.buffer(RANDOM_BYTES)
            self.device.queue.writeBuffer(self._sources[kind], 0, to_js(memoryview(_data(kind, self._random))))
        encoder = self.device.createCommandEncoder()
        for done in range(0, size, RANDOM_BYTES):
            encoder.copyBufferToBuffer(self._sources[kind], 0, buffer, at + done, min(RANDOM_BYTES, size - done))
        self.device.queue.submit(to_js([encoder.finish()]))

    def close(self) -> None:
        """Free everything, the device included."""
        for buffer in self._made:
            buffer.destroy()
        self.device.destroy()


class Trial(Gpu):
    """A workload in the bench's memory."""

    def __init__(self, bench: GpuBench, variant: Device, plan: Plan, workload: Workload, outputs: list[Buffer]) -> None:
        super().__init__(bench.device, variant, plan)
        self.bench, self.workload, self._outputs = bench, workload, outputs

    def allocate(self) -> None:
        at: dict[str, int] = {}
        for weight in self.plan.weights.values():
            for name in weight.layout.planes:
                kind, size = _kind(weight, name), weight.plane_bytes(name)
                self.places[f"{weight.name}.{name}"] = kind, at.get(kind, 0), size
                at[kind] = at.get(kind, 0) + -(-size // quants.ALIGN) * quants.ALIGN
        pools = {kind: self.bench.pool(kind, size) for kind, size in at.items()}
        self.places = {name: (pools[kind], offset, size) for name, (kind, offset, size) in self.places.items()}
        for b in self.plan.buffers.values():
            self.places[b.name] = self.bench.shared(b), 0, b.nbytes
        self.write_first_tables()

    async def outputs(self) -> list[list[float]]:
        """About COMPARED_VALUES values of every output, the same ones each time."""
        return await _gpu_errors_as_wisp(self._compute())

    async def _compute(self) -> list[list[float]]:
        for b in self.plan.buffers.values():
            if b.pool == "activations":
                self.bench.fill(self.places[b.name][0], "f16" if b.dtype == "f16" else "f32", b.nbytes)
        self.replay.feed(0, self.workload.pos, js.Uint32Array.new(self.workload.checked), to_js(["test"]))
        found = []
        for b in self._outputs:
            kind, width = ("e", 2) if b.dtype == "f16" else ("f", 4)
            count = self.workload.checked * b.shape[-1]  # even: rows are whole groups
            data = await self.replay.download(self.places[b.name][0], 0, width * count)
            values = struct.unpack(f"<{count}{kind}", data.to_bytes())
            found.append(list(values[:: max(1, len(values) // COMPARED_VALUES) | 1]))
        return found

    async def microseconds(self, best: float) -> float:
        """The fastest round's time of one copy, summed over the workload's positions; rough if far from `best`."""
        total, copies = 0.0, 1000 * self.workload.copies
        for position in self.workload.positions:
            self.write("state", struct.pack("<2I", position, self.workload.n))
            once = await _gpu_errors_as_wisp(self._ns(1))
            if not self.bench.warm:
                self.bench.warm = True
                await _gpu_errors_as_wisp(self._ns(_repeats(WARM_UP_NS, once)))
            repeats, fastest = _repeats(ROUND_NS, once), float("inf")
            for _ in range(ROUNDS if once < 5 * ROUND_NS else 1):
                fastest = min(fastest, await _gpu_errors_as_wisp(self._ns(repeats)))
                if total + fastest / copies > GIVE_UP_RATIO * best:
                    return total + fastest / copies
            total += fastest / copies
        return total

    async def _ns(self, repeats: int) -> float:
        return float(await self.replay.timeLists(to_js(["test"]), self.workload.n, repeats))

    def close(self) -> None:
        self.closed = True
        for buffer in self.buffers:
            buffer.destroy()
        self.buffers = []


def _repeats(ns: float, once: float) -> int:
    return max(1, int(ns / max(MIN_MEASURABLE_NS, once)))


async def _gpu_errors_as_wisp(work: Awaitable[T]) -> T:
    """Await GPU work; raise the device's exceptions as WispErrors."""
    try:
        return await work
    except JsException as error:
        raise WispError(f"The GPU reports: {error}", "internal_error", SERVER_ERROR) from None


def _kind(weight: Weight, plane: str) -> str:
    """The kind of random bytes that are finite, moderate values in a plane."""
    if weight.layout.plain:
        return weight.type.name.lower()
    if plane == "w_qs":
        return "bytes"
    return {"MXFP4": "exponents", "NVFP4": "small floats"}.get(weight.type.name, "scales")


def _data(kind: str, source: random.Random) -> bytes:
    if kind in ("f32", "f16", "bf16"):
        floats = [source.uniform(-1, 1) for _ in range(4099)]
        packed = struct.pack(f"<{len(floats)}{'e' if kind == 'f16' else 'f'}", *floats)
        if kind == "bf16":
            packed = b"".join(packed[i + 2 : i + 4] for i in range(0, len(packed), 4))
        return (packed * (RANDOM_BYTES // len(packed) + 1))[:RANDOM_BYTES]
    data = source.randbytes(RANDOM_BYTES)
    if kind == "scales":  # each pair of bytes, as f16, is below 1/128
        return data.translate(bytes(b & 0x9F for b in range(256)))
    if kind == "small floats":  # E4M3 between 1/4 and 4
        return data.translate(bytes(40 + b % 32 for b in range(256)))
    if kind == "exponents":
        return data.translate(bytes(118 + b % 8 for b in range(256)))
    return data
