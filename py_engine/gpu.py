"""WebGPU: the device, memory from arenas, pipelines, and a plan's lists recorded for replay.js.

The two of them are the only users of `navigator.gpu`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from typing import Any

import js
from pyodide.ffi import create_once_callable, to_js

from py_engine import budget, kernels, quants
from py_engine.errors import SERVER_ERROR, WispError
from py_engine.kernels import Device
from py_engine.plan import Buffer, Op, PerToken, Plan
from py_engine.upload import Upload

LIMITS = (
    "maxBufferSize", "maxStorageBufferBindingSize", "maxStorageBuffersPerShaderStage", "maxComputeWorkgroupStorageSize",
    "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX",
)  # fmt: skip
MATRICES = "chromium-experimental-subgroup-matrix"
ARENA = 1 << 30  # bytes of one weight buffer, at most
STORAGE, UNIFORM, COPY_SRC, COPY_DST = 0x80, 0x40, 0x4, 0x8


def obj(**fields: Any) -> Any:
    """A JavaScript object."""
    return to_js(fields, dict_converter=js.Object.fromEntries)


async def request_adapter() -> Any | None:
    """The adapter, or None without WebGPU. A young browser's first answers can be null: asked for up to 2 s."""
    gpu = getattr(js.navigator, "gpu", None)
    if not gpu:
        return None
    for _ in range(8):
        adapter = await gpu.requestAdapter(obj(powerPreference="high-performance"))
        if adapter:
            return adapter
        await asyncio.sleep(0.25)
    return None


async def request_device(adapter: Any) -> Any:
    """A device with all that the adapter offers and kernels use; an adapter gives one."""
    features = [f for f in ("shader-f16", "subgroups", "timestamp-query", MATRICES) if adapter.features.has(f)]
    limits = obj(**{n: getattr(adapter.limits, n) for n in LIMITS})
    return await adapter.requestDevice(obj(requiredFeatures=features, requiredLimits=limits))


def describe(adapter: Any) -> dict[str, Any]:
    """What the adapter says of itself, as plain JSON."""
    info = adapter.info
    return {
        "vendor": info.vendor,
        "architecture": info.architecture,
        "description": info.description,
        "features": sorted(str(f) for f in adapter.features.values()),
        "limits": {n: getattr(adapter.limits, n) for n in LIMITS},
    }


def device_of(adapter: Any) -> Device:
    """The kernel variants that an adapter can run."""
    info, limits, features = adapter.info, adapter.limits, adapter.features
    words = f"{info.vendor} {info.architecture} {info.description} {info.device}".lower()
    software = bool(getattr(info, "isFallbackAdapter", False)) or any(
        w in words for w in ("swiftshader", "llvmpipe", "lavapipe", "software")
    )
    return Device(
        f16=features.has("shader-f16"),
        subgroup=int(info.subgroupMinSize) if features.has("subgroups") else 0,
        max_binding=int(limits.maxStorageBufferBindingSize),
        max_buffer=int(limits.maxBufferSize),
        max_workgroup_storage=int(limits.maxComputeWorkgroupStorageSize),
        max_threads=int(min(limits.maxComputeInvocationsPerWorkgroup, limits.maxComputeWorkgroupSizeX)),
        dot8=not software and js.navigator.gpu.wgslLanguageFeatures.has("packed_4x8_integer_dot_product"),
        matrix=_matrix_side(adapter),
        software=software,
    )


def _matrix_side(adapter: Any) -> int:
    """The side of square f16 matrices with f32 sums, where subgroups of one fixed size multiply such."""
    info = adapter.info
    if not adapter.features.has(MATRICES) or info.subgroupMinSize != info.subgroupMaxSize:
        return 0
    sides = {
        int(c.M)
        for c in info.subgroupMatrixConfigs
        if (c.componentType, c.resultComponentType) == ("f16", "f32") and c.M == c.N == c.K
    }
    return max(sides & {8, 16}, default=0)


class Gpu:
    """A device with one plan's memory and command lists."""

    def __init__(self, device: Any, variant: Device, plan: Plan) -> None:
        self.device, self.variant, self.plan = device, variant, plan
        self.lost: str | None = None
        self.buffers: list[Any] = []  # every GPUBuffer, to be destroyed
        self.places: dict[str, tuple[Any, int, int]] = {}  # buffer or weight plane -> (GPUBuffer, offset, bytes)
        self.pipelines: dict[str, Any] = {}
        self.recorded: set[str] = set()  # lists that can be run
        self.replay: Any = None
        self.uploading: Upload | None = None

    @classmethod
    async def open(cls, adapter: Any, variant: Device, plan: Plan) -> Gpu:
        """Request a device with all that the adapter offers, and allocate the plan; WispError out_of_memory."""
        device = await request_device(adapter)
        self = cls(device, variant, plan)
        device.lost.then(create_once_callable(self._on_lost))
        try:
            await self._guarded(self._allocate)
        except BaseException:
            self.close()
            raise
        return self

    def _on_lost(self, info: Any) -> None:
        self.lost = f"{info.reason}: {info.message}"

    async def _guarded(self, work: Any) -> None:
        """Run `work` and turn what the device has against it into a WispError."""
        scopes = ("out-of-memory", "validation", "internal")
        for scope in scopes:
            self.device.pushErrorScope(scope)
        work()
        popped = [self.device.popErrorScope() for _ in scopes]  # before anyone else's
        errors = [await error for error in popped]
        if errors[2]:
            raise budget.out_of_memory(self.plan)
        for error in errors[:2]:
            if error:
                raise WispError(f"The GPU refused a command: {error.message}", "internal_error", SERVER_ERROR)

    # -- memory -------------------------------------------------------------------------------------------------------

    def _buffer(self, size: int, usage: int, label: str) -> Any:
        if size > self.variant.max_buffer:
            raise WispError(
                f"{label} needs {size >> 20} MiB in one piece, of a device that gives {self.variant.max_buffer >> 20}. "
                "Choose a shorter context or a smaller model.",
                "model_too_large",
            )
        buffer = self.device.createBuffer(obj(size=size, usage=usage | COPY_DST | COPY_SRC, label=label))
        self.buffers.append(buffer)
        return buffer

    def _allocate(self) -> None:
        self._allocate_weights()
        slots, sizes = self.plan.slots()
        shared = [self._buffer(size, STORAGE, f"activations {i}") for i, size in enumerate(sizes)]
        for b in self.plan.buffers.values():
            if b.pool == "activations":
                if b.name in slots:
                    self.places[b.name] = shared[slots[b.name]], 0, b.nbytes
            else:
                self.places[b.name] = self._buffer(b.nbytes, STORAGE, b.name), 0, b.nbytes
        for name, data in self.plan.constants.items():
            self.write(name, data)

    async def make_room(self, sequences: int) -> None:
        """Larger caches, with what they hold now; WispError out_of_memory, and nothing has changed then."""
        caches = [b for b in self.plan.buffers.values() if b.pool == "kv"]
        larger: dict[str, Any] = {}
        held = len(self.buffers)

        def grow() -> None:
            for b in caches:
                larger[b.name] = self._buffer(b.nbytes * sequences, STORAGE, b.name)

        try:
            if max(b.nbytes for b in caches) * sequences > self.variant.max_binding:
                raise budget.out_of_memory(self.plan)
            await self._guarded(grow)
        except WispError:
            for buffer in self.buffers[held:]:
                buffer.destroy()
            del self.buffers[held:]
            raise
        encoder = self.device.createCommandEncoder()
        old = [self.places[b.name] for b in caches]
        for b, (buffer, _, size) in zip(caches, old, strict=True):
            encoder.copyBufferToBuffer(buffer, 0, larger[b.name], 0, size)
            self.places[b.name] = larger[b.name], 0, b.nbytes * sequences
        self.device.queue.submit(to_js([encoder.finish()]))
        for buffer, _, _ in old:
            buffer.destroy()
        gone = {id(buffer) for buffer, _, _ in old}
        self.buffers = [buffer for buffer in self.buffers if id(buffer) not in gone]
        self.plan.sequences = sequences
        names, self.recorded = self.recorded, set()
        self.replay.lists.clear()
        await self.compile(names=names)

    def _allocate_weights(self) -> None:
        """Planes into a few large buffers, each plane on an aligned offset."""
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
            buffer = self._buffer(offset + size, STORAGE, f"weights {i}")
            for name, offset, size in planes:
                self.places[name] = buffer, offset, size

    def write(self, name: str, data: Any, at: int = 0) -> None:
        """Put bytes, or a JavaScript typed array, into a buffer of the plan from its byte `at` on."""
        buffer, offset, _ = self.places[name]
        self.device.queue.writeBuffer(buffer, offset + at, to_js(memoryview(data)) if isinstance(data, bytes) else data)

    async def upload_start(self) -> Upload:
        """Who takes the weights in."""
        self.uploading = Upload(self)
        await self.uploading.start()
        return self.uploading

    # -- recording ----------------------------------------------------------------------------------------------------

    async def _pipeline(self, shader: kernels.Shader) -> Any:
        if shader.label not in self.pipelines:
            module = self.device.createShaderModule(obj(code=shader.code, label=shader.label))
            access = {"uniform": "uniform", "storage, read": "read-only-storage", "storage, read_write": "storage"}
            entries = [
                {"binding": i, "visibility": 4, "buffer": {"type": access[a]}}
                for i, a in enumerate(shader.bindings.values())
            ]
            layout = self.device.createBindGroupLayout(obj(entries=entries))
            descriptor = obj(
                label=shader.label,
                layout=self.device.createPipelineLayout(obj(bindGroupLayouts=[layout])),
                compute={"module": module, "entryPoint": "main"},
            )
            self.pipelines[shader.label] = self.device.createComputePipelineAsync(descriptor)
            try:
                self.pipelines[shader.label] = await self.pipelines[shader.label]
            except Exception as error:
                del self.pipelines[shader.label]
                raise WispError(
                    f"The kernel {shader.label} does not compile here: {error}", "internal_error", SERVER_ERROR
                ) from None
        return self.pipelines[shader.label]

    def _group(self, shader: kernels.Shader, bound: dict[str, tuple[Any, int, int]]) -> Any:
        entries = [
            {"binding": i, "resource": {"buffer": bound[n][0], "offset": bound[n][1], "size": bound[n][2]}}
            for i, n in enumerate(shader.bindings)
        ]
        layout = self.pipelines[shader.label].getBindGroupLayout(0)
        return self.device.createBindGroup(obj(layout=layout, entries=entries))

    async def compile(self, on_progress: Any = None, names: Iterable[str] | None = None) -> None:
        """Compile the pipelines of lists, all at once, and record them; None: of all but the lazy ones."""
        if names is None:
            names = [name for name in self.plan.lists if name not in self.plan.lazy]
        ops = {name: self.plan.lists[name] for name in names if name not in self.recorded}
        if not ops:
            return
        shaders = {id(op): kernels.expand(op.kernel, op.params, self.variant) for each in ops.values() for op in each}
        wanted = list({s.label: s for s in shaders.values()}.values())
        done = 0

        async def one(shader: kernels.Shader) -> None:
            nonlocal done
            await self._pipeline(shader)
            done += 1
            if on_progress:
                on_progress(done, len(wanted))

        await asyncio.gather(*(one(s) for s in wanted))
        await self._guarded(lambda: self._record(ops, shaders))
        self.recorded |= set(ops)

    def _record(self, lists: dict[str, list[Op]], shaders: dict[int, kernels.Shader]) -> None:
        params = self._params(
            {
                id(op): shaders[id(op)].pack(op.consts)
                for ops in lists.values()
                for op in ops
                if "p" in shaders[id(op)].bindings
            }
        )
        if self.replay is None:
            tokens, *others = (
                self.places.get(n, (None,))[0] for n in ("tokens", "state", "states", "logprobs", "drafting")
            )
            self.replay = js.wispReplay.new(self.device, tokens, self.plan.n_ctx + 1, *others)
        for name, ops in lists.items():
            for op in ops:
                shader = shaders[id(op)]
                bound = self._bound(op) | ({"p": params[id(op)]} if id(op) in params else {})
                tile, axis = 0, 0
                for i, g in enumerate(op.grid):
                    if isinstance(g, PerToken):
                        tile, axis = g.tile, i
                x, y, z = (0 if isinstance(g, PerToken) else g for g in op.grid)
                self.replay.add(name, self.pipelines[shader.label], self._group(shader, bound), x, y, z, tile, axis)

    def _params(self, packed: dict[int, bytes]) -> dict[int, tuple[Any, int, int]]:
        """All Params structs in one uniform buffer; equal ones once."""
        offsets: dict[bytes, int] = {}
        for data in packed.values():
            offsets.setdefault(data, len(offsets) * quants.ALIGN)
        whole = bytearray(max(1, len(offsets)) * quants.ALIGN)
        for data, at in offsets.items():
            whole[at : at + len(data)] = data
        buffer = self._buffer(len(whole), UNIFORM, "params")
        self.device.queue.writeBuffer(buffer, 0, to_js(memoryview(whole)))
        return {key: (buffer, offsets[data], len(data)) for key, data in packed.items()}

    def _bound(self, op: Op) -> dict[str, tuple[Any, int, int]]:
        bound = {}
        for name, b in op.bindings.items():
            if isinstance(b, Buffer):
                bound[name] = self.places[b.name]
            elif name == "w":
                bound |= {plane: self.places[f"{b.name}.{plane}"] for plane in b.layout.planes}
            else:
                bound[name] = self.places[f"{b.name}.w_qs"]
        return bound

    def feed(self, position: int, ids: list[int], lists: list[str], seq: int = 0) -> Any:
        """Put tokens of a sequence at their positions and run lists over them; a promise of the end of it."""
        self.replay.feed(seq, position, to_js(memoryview(struct.pack(f"<{len(ids)}I", *ids)).cast("I")), to_js(lists))
        return self.device.queue.onSubmittedWorkDone()

    def choose_with(self, lists: list[str]) -> None:
        """The lists that choose a token in replay.js's steps."""
        self.replay.samplers = to_js(lists)
        self.replay.withRows = "logprobs" in lists

    async def rows(self, name: str, n: int, cols: int) -> Any:
        """The first `n` rows of a float buffer without their padding, a Float32Array (n * cols,)."""
        buffer, offset, _ = self.places[name]
        width = self.plan.buffers[name].shape[1]
        padded = js.Float32Array.new(await self.replay.download(buffer, offset, 4 * n * width))
        out = js.Float32Array.new(n * cols)
        for i in range(n):
            out.set(padded.subarray(i * width, i * width + cols), i * cols)
        return out

    async def least_step_ms(self) -> float:
        """A floor under the milliseconds of a decode step, for the price of compiling one kernel: its largest product,
        as if the other weights were read at that speed and nothing else took time.
        """
        products = [op for op in self.plan.lists["decode"] if op.kernel == "matvec"]
        op = max(products, key=lambda op: op.bindings["w"].nbytes)
        shader = kernels.expand(op.kernel, op.params, self.variant)
        await self._pipeline(shader)
        params = self._params({0: shader.pack(op.consts)})[0]
        group = self._group(shader, self._bound(op) | {"p": params})
        self.device.queue.writeBuffer(self.places["state"][0], 0, to_js(memoryview(struct.pack("<2I", 0, 1))))
        times = []
        for _ in range(3):
            encoder = self.device.createCommandEncoder()
            compute = encoder.beginComputePass()
            compute.setPipeline(self.pipelines[shader.label])
            compute.setBindGroup(0, group)
            compute.dispatchWorkgroups(*op.grid)
            compute.end()
            begun = js.performance.now()
            self.device.queue.submit(to_js([encoder.finish()]))
            await self.device.queue.onSubmittedWorkDone()
            times.append(js.performance.now() - begun)
        read = sum(product.bindings["w"].nbytes for product in products)
        return min(times) * read / op.bindings["w"].nbytes

    async def time_lists(self, names: list[str], n: int, repeats: int) -> float:
        """Nanoseconds of lists in a row on a batch of n tokens, the mean of `repeats`."""
        return float(await self.replay.timeLists(to_js(names), n, repeats))

    async def profile(self, name: str, n: int, repeats: int) -> list[dict[str, Any]]:
        """[{kernel, ns}] of a list's dispatches on a batch of n tokens, each run `repeats` times."""
        times = await self.replay.profile(name, n, repeats)
        return [{"kernel": label_of(op), "ns": ns} for op, ns in zip(self.plan.lists[name], times.to_py(), strict=True)]

    def close(self) -> None:
        """Give everything back."""
        if self.uploading is not None:
            self.uploading.close()
        for buffer in self.buffers:
            buffer.destroy()
        self.buffers, self.places, self.pipelines, self.recorded = [], {}, {}, set()
        self.device.destroy()


def label_of(op: Op) -> str:
    """A short name for tables: kernel, type, columns and epilogue."""
    shown = [str(op.params[k]) for k in ("QUANT", "COLS", "EPILOGUE") if k in op.params]
    return " ".join([op.kernel, *shown, *([f"x {op.consts['rows']}"] if "rows" in op.consts else [])])


def concatenate(parts: list[Any]) -> Any:
    """Float32Arrays end to end."""
    out = js.Float32Array.new(sum(int(p.length) for p in parts))
    at = 0
    for part in parts:
        out.set(part, at)
        at += int(part.length)
    return out
