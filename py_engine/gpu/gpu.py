"""A plan on a GPU: its memory, its compiled pipelines, its lists recorded for replay.js."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from math import inf
from typing import Any

import js
from pyodide.ffi import JsException, JsProxy, create_once_callable, to_js

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.gpu import repack
from py_engine.gpu.adapter import request_device
from py_engine.gpu.memory import UNIFORM, Memory, obj
from py_engine.gpu.pipelines import PipelineCache
from py_engine.gpu.proofs import Prover, compiled
from py_engine.gpu.upload import Upload
from py_engine.plan import kernels, quants
from py_engine.plan.kernels import Device
from py_engine.plan.media import MediaBatch
from py_engine.plan.packing import PackedBatch
from py_engine.plan.pages import TABLES, records_at, shift_index
from py_engine.plan.plan import Buffer, Op, PerToken, Plan, planes_of
from py_engine.plan.shared_constants import LOGPROB_ROW_BYTES, LOGPROB_ROWS, MAX_SMALL_BATCH, MAX_STEPS, SHORT_BATCH
from py_engine.runners import Row, Turn
from py_engine.tasks import begin, quietly

REPORT_S = 1.0  # the longest time between a lost device's failure to answer and the report of its loss
MAP_READ, MAP_READ_MODE = 0x1, 0x1  # GPUBufferUsage.MAP_READ, GPUMapMode.READ
PROBE_MS = 8.0  # for so long, replay.js looks every 0.1 ms whether a token has arrived; then it waits
REPLAY_SHARED = {
    "maxSteps": MAX_STEPS,
    "maxSmallBatch": MAX_SMALL_BATCH,
    "shortBatch": SHORT_BATCH,
    "logprobRows": LOGPROB_ROWS,
    "logprobRowBytes": LOGPROB_ROW_BYTES,
    "stateFields": list(kernels.struct_fields("lib/state.wgsl", "State")),
    "draftingFields": list(kernels.struct_fields("lib/drafting.wgsl", "Drafting")),
}  # numbers and names that replay.js shares with the plan


class Gpu(Memory):
    """A device with one plan's memory and command lists."""

    def __init__(self, device: Any, variant: Device, plan: Plan) -> None:
        super().__init__(device, variant, plan)
        self.lost: str | None = None  # why
        self._reported = asyncio.Event()  # the loss
        self.closed = False
        self.pipelines = PipelineCache(device)
        self.recorded: set[str] = set()  # lists that may run
        self._added: set[str] = set()  # lists that replay.js has; some are still to be proven
        self.compiling: Counter[str] = Counter()  # lists of the calls of compile() in progress
        self._recording = asyncio.Lock()  # concurrent requests may compile the same lists
        self.replay: Any = None
        self.uploading: Upload | None = None
        self.prover: Prover | None = None  # proves the kernels of lists before these may run

    @classmethod
    async def open(cls, adapter: Any, variant: Device, plan: Plan) -> Gpu:
        """Request a device and allocate the plan's buffers. WispError out_of_memory."""
        try:
            device = await request_device(adapter)
        except JsException as error:  # the GPU process ended after the adapter was requested
            raise device_lost(str(error)) from None
        self = cls(device, variant, plan)
        device.lost.then(create_once_callable(self._on_lost))
        try:
            await self.guarded(self.allocate)
        except BaseException as error:
            cause = await self.cause(error)
            self.close()
            raise cause from None
        return self

    def _on_lost(self, info: Any) -> None:
        self.lost = str(info.message or info.reason)
        self._reported.set()

    async def cause(self, error: BaseException) -> BaseException:
        """WispError device_lost if `error` may come from the loss of the device and it is lost, else `error`."""
        if not isinstance(error, Exception) or (isinstance(error, WispError) and error.code != "internal_error"):
            return error
        if self.lost is None and not await self._answers():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._reported.wait(), REPORT_S)
        return device_lost(self.lost) if self.lost else error

    async def _answers(self) -> bool:
        """Whether the device still works. Promises may be rejected before its loss is reported."""
        buffer = self.device.createBuffer(obj(size=4, usage=MAP_READ))
        mapping = asyncio.ensure_future(buffer.mapAsync(MAP_READ_MODE))
        reported = asyncio.ensure_future(self._reported.wait())
        try:
            await asyncio.wait([mapping, reported], return_when=asyncio.FIRST_COMPLETED)
            return mapping.done() and mapping.exception() is None
        finally:
            reported.cancel()
            mapping.add_done_callback(lambda task: task.cancelled() or task.exception())
            buffer.destroy()

    def give_up(self, reason: str) -> None:
        """Treat the device as lost: the model is loaded again."""
        self.lost = self.lost or reason
        self._reported.set()

    async def reserve_pages(self, pages: Sequence[int], turn: Turn) -> None:
        """Enlarge the caches, and bind them again during `turn()`. WispError out_of_memory, with nothing changed.

        If there is no memory even for that, the device is given up: WispError device_lost.
        """
        larger = await self.allocate_caches(pages)
        try:
            await self._replace_caches(pages, larger, turn)
        finally:
            self.free(buffer for name, buffer in larger.items() if self.places.get(name, (None,))[0] is not buffer)

    async def _replace_caches(self, pages: Sequence[int], larger: dict[str, Any], turn: Turn) -> None:
        async with turn(), self._recording:
            if self.closed:
                raise device_lost(self.lost or "it was replaced")
            moved = self.replace_caches(pages, larger)
            try:
                if self.replay is not None:
                    await self.guarded(lambda: self.replay.bindAgain(to_js(moved)))
            except WispError as error:
                self.give_up(error.message)
                raise device_lost(error.message) from None

    async def upload_start(self) -> Upload:
        """Begin the upload of the weights, which waits for its pipelines: the device gets these before others."""
        shaders = [repack.checksum_shader(self.variant), *repack.shaders(self.plan, self.variant)]
        for shader in shaders:
            quietly(begin(self.pipelines.get(shader)))
        uploading: list[Upload] = []
        await self.guarded(lambda: uploading.append(Upload(self, self._pipeline)))
        (self.uploading,) = uploading
        await self.uploading.start(shaders)
        return self.uploading

    async def _pipeline(self, shader: kernels.Shader) -> Any:
        return await compiled(shader, self.pipelines, self.prover, self.cause)

    # -- recording ----------------------------------------------------------------------------------------------------

    def _bindings(self, shader: kernels.Shader, bound: dict[str, tuple[Any, int, int]]) -> Any:
        """The descriptor of a bind group."""
        entries = [
            {"binding": i, "resource": {"buffer": bound[n][0], "offset": bound[n][1], "size": bound[n][2]}}
            for i, n in enumerate(shader.bindings)
        ]
        return obj(layout=self.pipelines.layout(shader), entries=entries)

    async def compile(self, on_progress: Any = None, names: Iterable[str] | None = None) -> None:
        """Compile the pipelines of lists in parallel, and record the lists. None: all lists that are not lazy."""
        if names is None:
            names = [name for name in self.plan.lists if name not in self.plan.lazy]
        names = list(names)
        ops = {name: self.plan.lists[name] for name in names if name not in self.recorded}
        if not ops:
            return
        self.compiling.update(names)
        try:
            await self._compile(ops, on_progress)
        finally:
            self.compiling.subtract(names)

    async def _compile(self, ops: dict[str, list[Op]], on_progress: Any) -> None:
        pipelines: dict[str, asyncio.Task[None]] = {}
        done = total = 0

        async def one(shader: kernels.Shader) -> None:
            nonlocal done
            await self._pipeline(shader)
            done += 1
            if on_progress and total:
                on_progress(done, total)

        for op in chain.from_iterable(ops.values()):
            shader = self._shader(op)
            if shader.label not in pipelines:
                pipelines[shader.label] = asyncio.ensure_future(one(shader))
                await asyncio.sleep(0)  # the device compiles it while the next one's text is made
        total = len(pipelines)
        proof = self.prover.begin(name for name in ops if not name.startswith("process.")) if self.prover else None
        try:
            await asyncio.gather(*pipelines.values())
            if proof is not None:
                proof.run()
            await self._add(ops)  # while the proof's kernels run
            if proof is not None:
                await proof.end()
        finally:
            if proof is not None:
                proof.close()
        self.recorded |= set(ops) & self._added

    async def _add(self, lists: dict[str, list[Op]]) -> None:
        """Give replay.js those of the lists that it lacks."""
        async with self._recording:
            if self.closed:
                return
            rest = {name: ops for name, ops in lists.items() if name not in self._added}
            try:
                await self.guarded(lambda: self._record(rest))
            except BaseException:
                for name in rest:  # else the next attempt would add each command once more
                    if self.replay is not None:
                        self.replay.lists.delete(name)
                raise
            self._added |= set(rest)

    def forget(self, names: Iterable[str]) -> None:
        """Drop lists that nothing runs, and the pipelines of their own kernels."""
        for name in names:
            for op in self.plan.lists.pop(name):
                self.pipelines.forget(self._shader(op))
            self.plan.lazy.discard(name)
            self.recorded.discard(name)
            self._added.discard(name)
            if self.replay is not None:
                self.replay.lists.delete(name)

    def _record(self, lists: dict[str, list[Op]]) -> None:
        if self.replay is None:
            names = ("tokens", "state", "logprobs", "drafting")
            buffers = {name: self.places[name][0] for name in names if name in self.places}
            shared = obj(**REPLAY_SHARED, probeMs=0 if self.variant.software else PROBE_MS)
            self.replay = js.wispReplay.new(self.device, obj(**buffers), self.plan.n_ctx + 1, shared)
        bindings = self._all_bindings([op for ops in lists.values() for op in ops])
        for name, ops in lists.items():
            for op in ops:
                tile, axis = 0, 0
                for i, g in enumerate(op.grid):
                    if isinstance(g, PerToken):
                        tile, axis = g.tile, i
                x, y, z = (g.extra if isinstance(g, PerToken) else g for g in op.grid)
                grid = {"x": x, "y": y, "z": z, "tile": tile, "axis": axis}
                where = op.contexts
                contexts = {"positions": where.positions, "above": where.above}
                contexts |= {"upTo": where.up_to, "orUnknown": where.or_unknown}
                command = obj(pipeline=self.pipelines[self._shader(op)], bindings=bindings[id(op)], **grid, **contexts)
                self.replay.add(name, command)

    def _shader(self, op: Op) -> kernels.Shader:
        return kernels.expand(op.kernel, op.params, self.variant)

    def _all_bindings(self, ops: list[Op]) -> dict[int, Any]:
        """Write the parameters of ops; returns the descriptors of their bind groups, by id(op)."""
        shaders = {id(op): self._shader(op) for op in ops}
        params = self._params(
            {id(op): shaders[id(op)].pack(op.consts) for op in ops if "p" in shaders[id(op)].bindings}
        )
        own = {key: {"p": place} for key, place in params.items()}
        return {id(op): self._bindings(shaders[id(op)], self._bound(op) | own.get(id(op), {})) for op in ops}

    def _params(self, packed: dict[int, bytes]) -> dict[int, tuple[Any, int, int]]:
        """Write Params structs to one uniform buffer, each distinct one once: key -> (buffer, offset, bytes)."""
        offsets: dict[bytes, int] = {}
        for data in packed.values():
            offsets.setdefault(data, len(offsets) * quants.ALIGN)
        structs = bytearray(max(1, len(offsets)) * quants.ALIGN)
        for data, at in offsets.items():
            structs[at : at + len(data)] = data
        buffer = self.buffer(len(structs), UNIFORM, "params")
        self.device.queue.writeBuffer(buffer, 0, to_js(memoryview(structs)))
        return {key: (buffer, offsets[data], len(data)) for key, data in packed.items()}

    def _bound(self, op: Op) -> dict[str, tuple[Any, int, int]]:
        bound = {}
        for name, b in op.bindings.items():
            if isinstance(b, Buffer):
                bound[name] = self.places[b.name]
            else:
                bound |= {there: self.places[f"{b.name}.{plane}"] for there, plane in planes_of(name, b).items()}
        return bound

    def feed(
        self, position: int, ids: list[int], lists: Sequence[str], seq: int, read: bool = False,
        with_rows: bool = False, slices: int = 1,
    ) -> Iterable[Callable[[], None]]:  # fmt: skip
        """Write tokens of a sequence at their positions and run lists on them: see replay.js."""
        words = to_js(memoryview(struct.pack(f"<{len(ids)}I", *ids)).cast("I"))
        rest: Iterable[Callable[[], None]] = self.replay.feed(
            seq, position, words, to_js(list(lists)), read, with_rows, slices
        )
        return rest

    def set_shift(self, seq: int, shift: int) -> None:
        """Write the shift of a sequence's rotary positions."""
        at = TABLES + 4 * shift_index(self.plan.n_ctx, self.plan.page, seq)
        self.write("state", struct.pack("<i", shift), at)

    def set_media(self, media: MediaBatch) -> None:
        """Write the records and embeddings of a batch with media."""
        self.write("state", media.records.tobytes(), records_at(self.plan.n_ctx, self.plan.page))
        buffer, offset, _ = self.places["media"]
        width = self.plan.media_width
        for rows in media.rows:
            to = offset + 4 * width * rows.token
            values = rows.values  # of a projector that runs on the CPU: a numpy array
            given = values if isinstance(values, JsProxy) else to_js(memoryview(values.reshape(-1)))
            self.device.queue.writeBuffer(buffer, to, given, width * rows.first, width * rows.count)

    def decode(
        self,
        rows: Sequence[Row],
        steps: int,
        lists: Sequence[str],
        *,
        with_rows: bool,
        first: Sequence[str] | None = None,
    ) -> None:
        """Submit decode steps of rows. `first`: the lists of the first step; `with_rows`: read log-probabilities."""
        self.replay.decode(
            obj(
                sequences=[row.seq for row in rows],
                positions=[row.position for row in rows],
                steps=steps,
                lists=list(lists),
                first=list(first or lists),
                rows=with_rows,
            )
        )

    def feed_packed(self, batch: PackedBatch, lists: Sequence[str], seq: int) -> None:
        """Write a batch of a packed sequence and its segments, and run lists on it."""
        for at, words in batch.words(self.plan):
            self.write("state", words.tobytes(), at)
        self.replay.feed(seq, batch.position, to_js(memoryview(batch.ids)), to_js(list(lists)), False, False)

    def pooled(self, name: str, rows: int, width: int, lists: Sequence[str], *expected_ms: float) -> Any:
        """Run lists over rows of a float buffer; a promise of the rows without their padding, a Float32Array.

        `expected_ms`: until all submits are done, if that is known.
        """
        buffer, offset, _ = self.places[name]
        place = obj(buffer=buffer, offset=offset, pitch=self.plan.buffers[name].shape[1], width=width)
        return self.replay.pooled(rows, to_js(list(lists)), place, *expected_ms)

    async def rows(self, name: str, n: int, cols: int) -> Any:
        """Read the first `n` rows of a float buffer without their padding: a Float32Array (n * cols,)."""
        buffer, offset, _ = self.places[name]
        width = self.plan.buffers[name].shape[1]
        padded = js.Float32Array.new(await self.replay.download(buffer, offset, 4 * n * width))
        out = js.Float32Array.new(n * cols)
        for i in range(n):
            out.set(padded.subarray(i * width, i * width + cols), i * cols)
        return out

    async def vector(self, name: str) -> Any:
        """Read a float buffer of one dimension: a Float32Array."""
        buffer, offset, _ = self.places[name]
        return js.Float32Array.new(await self.replay.download(buffer, offset, 4 * self.plan.buffers[name].shape[0]))

    async def time_lists(self, names: list[str], n: int, repeats: int, end: float = inf) -> float:
        """Time lists run one after the other on a batch of n tokens: mean of `repeats`, in nanoseconds.

        `end`: the position after the last token.
        """
        return float(await self.replay.timeLists(to_js(names), n, repeats, end))

    async def profile(self, name: str, n: int, repeats: int, end: float = inf) -> list[float]:
        """Time each dispatch of a list on a batch of n tokens before `end`, run `repeats` times, in nanoseconds."""
        return [float(ns) for ns in (await self.replay.profile(name, n, repeats, end)).to_py()]

    def close(self) -> None:
        """Free every buffer and destroy the device."""
        self.closed = True
        if self.uploading is not None:
            self.uploading.close()
        for buffer in self.buffers:
            buffer.destroy()
        self.buffers, self.places, self.recorded = [], {}, set()
        self.pipelines.clear()
        self.device.destroy()


def device_lost(reason: str) -> WispError:
    """The error of work on a lost device."""
    return WispError(f"The GPU was lost ({reason}). Load the model again.", "device_lost", SERVER_ERROR)


def concatenate(parts: list[Any]) -> Any:
    """Concatenate Float32Arrays."""
    out = js.Float32Array.new(sum(int(p.length) for p in parts))
    at = 0
    for part in parts:
        out.set(part, at)
        at += int(part.length)
    return out
