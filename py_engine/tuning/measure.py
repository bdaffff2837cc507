"""Measures tuning.py's candidates on the GPU, and keeps what was chosen in IndexedDB.

On a device of its own, which is gone before the model's is opened: a kernel that hangs or loses its device costs the
measurement and nothing else. A choice that is kept is taken without opening any.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Awaitable, Iterable
from contextlib import suppress
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
from py_engine.tuning import choices as tuning
from py_engine.tuning.workloads import Work

SOURCE = (1 << 20) - 4092  # bytes of random data that buffers are filled with; rows of a matrix shall not repeat soon
COMPARED = 4096  # numbers of an output, about
ROUND_NS, WARM_NS = 4e6, 3e7  # of GPU time: of a round, whose least counts; before the first
LEAST_NS = 5e4  # that a work is taken to last: browsers round their clocks to 100 microseconds
ROUNDS = 2
FAR = 1.2  # times the best: no candidate any more

T = TypeVar("T")


async def tuned(
    adapter: Any,
    device: Device,
    header: Header,
    way: dict[str, Any],
    forced: Iterable[str],
    plan: Plan,
) -> tuple[Device, dict[str, Any]]:
    """(the device with what is best for the model, Engine.stats()'s "kernels"). `way`: how it is to be loaded, plain
    JSON; `plan`: made for the device as it is.
    """
    begun = time.perf_counter()
    info = adapter.info
    about: dict[str, Any] = {
        name: str(getattr(info, name)) for name in ("vendor", "architecture", "description", "device")
    }
    about |= {"browser": str(js.navigator.userAgent), **way}
    forced = sorted(forced)
    key = tuning.key(about, header, device, forced, tuning.kernels_hash())
    found = await _kept(key, device)
    if found is None:
        try:
            chosen, reports = await _measured(device, plan, forced)
        except (JsException, WispError, ValueError) as error:
            return device, {"source": "default", "why": f"Measuring failed: {error}", **tuning.shown(device, [])}
        with suppress(JsException):  # no storage: measured again next time
            await js.wispShards.putChoice(key, tuning.serialized(chosen, reports))
        source = "measured"
    else:
        (chosen, reports), source = found, "cache"
    ms = round(1000 * (time.perf_counter() - begun), 1)
    return chosen, {"source": source, "key": key, "ms": ms, **tuning.shown(chosen, reports)}


async def _kept(key: str, device: Device) -> tuple[Device, list[dict[str, Any]]] | None:
    try:
        text = await js.wispShards.getChoice(key)
    except JsException:
        return None
    try:
        return tuning.deserialized(device, text) if isinstance(text, str) else None
    except (ValueError, KeyError, TypeError):
        return None


async def _measured(device: Device, plan: Plan, forced: list[str]) -> tuple[Device, list[dict[str, Any]]]:
    adapter = await request_adapter()
    if adapter is None:
        raise WispError("There is no second adapter.", "internal_error", SERVER_ERROR)
    bench = GpuBench(await request_device(adapter))
    try:
        chosen = await tuning.tune(plan, device, bench, forced)
        if bench.lost:
            raise WispError(f"The GPU was lost: {bench.lost}", "internal_error", SERVER_ERROR)
        return chosen
    finally:
        bench.close()


class GpuBench:
    """A device and random data that every trial sees the same of."""

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

    async def trial(self, device: Device, work: Work) -> Trial:
        """The work compiled for a variant. WispError where the device refuses it."""
        plan, outputs = work.planned(device)
        trial = Trial(self, device, plan, work, outputs)
        try:
            await _plainly(trial.guarded(trial.allocate))
            await _plainly(trial.compile(None, ["test"]))
        except BaseException:
            trial.close()
            raise
        return trial

    def _on_lost(self, info: Any) -> None:
        self.lost = str(info.message)

    def buffer(self, size: int) -> Any:
        """A buffer that lives as long as the bench."""
        size = -(-size // 16) * 16
        made = self.device.createBuffer(obj(size=size, usage=STORAGE | COPY_DST | COPY_SRC, label="throwaway"))
        self._made.append(made)
        return made

    def shared(self, b: Buffer) -> Any:
        """The buffer of all trials that have one of that name and size."""
        if (b.name, b.nbytes) not in self._shared:
            made = self._shared[b.name, b.nbytes] = self.buffer(b.nbytes)
            if b.pool == "kv":
                words = b.nbytes * 8 // 9 // 4 * 4  # q8_0: bytes, then their steps
                self.fill(made, "f16" if b.dtype == "f16" else "bytes" if b.dtype == "u32" else "f32", b.nbytes)
                if b.dtype == "u32":
                    self.fill(made, "f32", b.nbytes - words, words)
        return self._shared[b.name, b.nbytes]

    def pool(self, kind: str, size: int) -> Any:
        """A buffer of at least so many bytes of a kind."""
        if kind not in self._pools or self._pools[kind][1] < size:
            self._pools[kind] = self.buffer(size), size
            self.fill(self._pools[kind][0], kind, size)
        return self._pools[kind][0]

    def fill(self, buffer: Any, kind: str, size: int, at: int = 0) -> None:
        """Random data, as often as it takes."""
        if kind not in self._sources:
            self._sources[kind] = self.buffer(SOURCE)
            self.device.queue.writeBuffer(self._sources[kind], 0, to_js(memoryview(_data(kind, self._random))))
        encoder = self.device.createCommandEncoder()
        for done in range(0, size, SOURCE):
            encoder.copyBufferToBuffer(self._sources[kind], 0, buffer, at + done, min(SOURCE, size - done))
        self.device.queue.submit(to_js([encoder.finish()]))

    def close(self) -> None:
        """Give everything back, the device too."""
        for buffer in self._made:
            buffer.destroy()
        self.device.destroy()


class Trial(Gpu):
    """A work in the bench's memory."""

    def __init__(self, bench: GpuBench, variant: Device, plan: Plan, work: Work, outputs: list[Buffer]) -> None:
        super().__init__(bench.device, variant, plan)
        self.bench, self.work, self._outputs = bench, work, outputs

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

    async def outputs(self) -> list[list[float]]:
        """Some of the numbers of every output, the same ones each time."""
        return await _plainly(self._compute())

    async def _compute(self) -> list[list[float]]:
        for b in self.plan.buffers.values():
            if b.pool == "activations":
                self.bench.fill(self.places[b.name][0], "f32", b.nbytes)
        self.replay.feed(0, self.work.pos, js.Uint32Array.new(self.work.checked), to_js(["test"]))
        found = []
        for b in self._outputs:
            size = 4 * self.work.checked * b.shape[-1]
            data = js.Float32Array.new(await self.replay.download(self.places[b.name][0], 0, size)).to_py().tolist()
            found.append(data[:: max(1, len(data) // COMPARED) | 1])
        return found

    async def microseconds(self, best: float) -> float:
        """The least of some rounds, of one copy of what the work is, at each of its positions together; roughly where
        that is far from `best`.
        """
        total, copies = 0.0, 1000 * self.work.copies
        for position in self.work.positions:
            self.write("state", struct.pack("<2I", position, self.work.n))
            once = await _plainly(self._ns(1))
            if not self.bench.warm:
                self.bench.warm = True
                await _plainly(self._ns(_times(WARM_NS, once)))
            repeats, least = _times(ROUND_NS, once), float("inf")
            for _ in range(ROUNDS if once < 5 * ROUND_NS else 1):
                least = min(least, await _plainly(self._ns(repeats)))
                if total + least / copies > FAR * best:
                    return total + least / copies
            total += least / copies
        return total

    async def _ns(self, repeats: int) -> float:
        return float(await self.replay.timeLists(to_js(["test"]), self.work.n, repeats))

    def close(self) -> None:
        for buffer in self.buffers:
            buffer.destroy()
        self.buffers = []


def _times(ns: float, once: float) -> int:
    return max(1, int(ns / max(LEAST_NS, once)))


async def _plainly(work: Awaitable[T]) -> T:
    """What a device has against it, as a WispError."""
    try:
        return await work
    except JsException as error:
        raise WispError(f"The GPU refused: {error}", "internal_error", SERVER_ERROR) from None


def _kind(weight: Weight, plane: str) -> str:
    """Which random bytes are finite, moderate numbers in a plane."""
    if weight.layout.plain:
        return weight.type.name.lower()
    if plane == "w_qs":
        return "bytes"
    return "exponents" if weight.type.name == "MXFP4" else "scales"


def _data(kind: str, source: random.Random) -> bytes:
    if kind in ("f32", "f16", "bf16"):
        floats = [source.uniform(-1, 1) for _ in range(4099)]
        count = len(floats)
        if kind == "f16":
            some = struct.pack(f"<{count}e", *floats)
        else:
            some = struct.pack(f"<{count}f", *floats)
        if kind == "bf16":
            some = b"".join(some[i + 2 : i + 4] for i in range(0, len(some), 4))
        return (some * (SOURCE // len(some) + 1))[:SOURCE]
    data = source.randbytes(SOURCE)
    if kind == "scales":  # as f16, each pair is below 1/128
        return data.translate(bytes(b & 0x9F for b in range(256)))
    if kind == "exponents":
        return data.translate(bytes(118 + b % 8 for b in range(256)))
    return data
