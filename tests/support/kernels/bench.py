"""A workbench for one op: random inputs, poisoned outputs, the same op on the GPU and with numpy."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from playwright.sync_api import Page

from py_engine.cpu import executor as cpu
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import kernels
from py_engine.plan.cache import GROUP, Cache, make_cache, page_group
from py_engine.plan.kernels import Device
from py_engine.plan.ops import Ops
from py_engine.plan.packing import NO_END, PackedPrompt, may_have_gaps, packed, packed_prompts
from py_engine.plan.pages import (
    MAX_GROUPS,
    PREFIX_WORDS,
    RECORD_WORDS,
    SEGMENT_WORDS,
    TABLES,
    pages_for,
    record_index,
    table_offset,
)
from py_engine.plan.plan import Buffer, Op, PerToken, Plan, Weight, planes_of
from py_engine.plan.shared_constants import MAX_SEQUENCES, MAX_SMALL_BATCH
from py_engine.proof.random_data import planes
from tests.support.kernels.matrices import emulated
from tests.support.kernels.transfer import run_job

RUNNER = Path(__file__).parent / "runner.js"
LEAST_BUFFERS = 10  # a shader's storage buffers on SwiftShader; lavapipe has 16
FREE_PAGES = 3  # of a cache, in no sequence's block table
_codes: WeakKeyDictionary[Page, dict[str, int]] = WeakKeyDictionary()  # page -> the shaders that it has, by their code


@dataclass(frozen=True)
class Setup:
    """One list's batch: `n` tokens at `pos` of sequence `seq`, or one token at each of `places`."""

    batch: int  # tokens that the list is planned for
    n: int
    pos: int = 0
    n_ctx: int = 64
    vocab: int = 64
    seed: int = 0
    seq: int = 0
    page: int = 32  # positions of a page of the caches
    places: Sequence[tuple[int, int]] = ()  # (position, sequence) of each token of a small batch
    segments: Sequence[int] = ()  # tokens of each segment of the packed sequence that the batch is part of
    records: Sequence[tuple[int, int, int, int, int]] = ()  # of each token of a batch with media
    prompts: Sequence[PackedPrompt] = ()  # of a packed batch with gaps, at the `pos` of the first one


class Bench:
    """One device variant on one page: `data` has numpy buffers by name, `raw` weights as GGUF bytes."""

    def __init__(self, page: Page, device: Device) -> None:
        self.page, self.device = page, device

    def begin(self, setup: Setup) -> Ops:
        """Create a plan with one list, and the state and tokens of its batch."""
        places, n, seq = setup.places, len(setup.places) or setup.n, setup.seq
        self.random = np.random.default_rng(setup.seed)
        self.plan = Plan(setup.batch, setup.n_ctx, setup.vocab, page=setup.page)
        self.data: dict[str, np.ndarray] = {}
        self.raw: dict[str, np.ndarray] = {}
        self.ops = ops = Ops(self.plan, "test", setup.batch, self.device, state_per_token=bool(places))
        self.n = n
        used = [(p, n, 0, s) for p, s in places or [(setup.pos, seq)]]
        unused = [(0xFFFFFF, 0xFFFFFF, 0, 0xFFFFFF)] * (MAX_SMALL_BATCH - len(used))
        states = np.array(used + unused, np.uint32)
        tables = self._block_tables(sorted({s for _, _, _, s in used}))
        ends = np.cumsum(setup.segments)
        segments: Any = [
            (end - n, end, i) for i, (n, end) in enumerate(zip(setup.segments, ends, strict=True)) for _ in range(n)
        ]
        segments = segments[setup.pos : setup.pos + n]
        filled = np.full(pages_for(setup.n_ctx, setup.page), NO_END, np.uint32)
        prefixes = np.zeros((setup.batch, PREFIX_WORDS), np.uint32)
        if setup.prompts:
            batch = packed_prompts(setup.prompts, setup.page)
            assert (setup.pos, n) == (batch.position, len(batch.ids))
            segments = np.array(batch.segments).reshape(n, SEGMENT_WORDS).tolist()
            filled[: len(batch.filled)] = batch.filled
            prefixes[:n] = np.array(batch.prefixes).reshape(n, PREFIX_WORDS)
        shifts = self.random.integers(0, 1 << 32, MAX_SEQUENCES, dtype=np.uint32)
        words = np.full((setup.batch, RECORD_WORDS if setup.records else SEGMENT_WORDS), 0xFFFFFF, np.uint32)
        words[:n] = setup.records or segments or words[:n]
        parts = states, tables, shifts, words, filled, prefixes
        self.data["state"] = np.concatenate([part.reshape(-1) for part in parts])
        self.packed = bool(segments)
        shape = MAX_SEQUENCES, setup.n_ctx + 1
        self.data["tokens"] = self.random.integers(0, setup.vocab, shape).astype(np.uint32)
        return ops

    def _block_tables(self, sequences: list[int]) -> np.ndarray:
        """Tables that scatter the sequences' pages over the caches: (groups, sequences, pages of a context)."""
        context = pages_for(self.plan.n_ctx, self.plan.page)
        self.pages = len(sequences) * context + FREE_PAGES
        tables = np.full((MAX_GROUPS, MAX_SEQUENCES, context), 0xFFFFFF, np.uint32)
        for table in tables:
            scattered = self.random.permutation(self.pages)[: len(sequences) * context]
            table[sequences] = scattered.reshape(-1, context)
        return tables

    def cache(self, cols: int, kind: str, window: int = 0) -> Cache:
        """The cache of layer 0, with contents: random, and NaN in pages of no sequence."""
        cache = make_cache(self.plan, 0, cols, kind, page_group(self.plan, window))
        for b in (cache.k, cache.v):
            if kind != "q8_0":
                self.fill(b)
                continue
            page = self.plan.page
            scales = self.random.standard_normal((self.pages, page * cols // GROUP)).astype(np.float32)
            data = self.random.integers(0, 1 << 32, (self.pages, page * cols // 4), dtype=np.uint32)
            scales[self.free_pages(cache.paging["TABLE"])] = np.nan
            self.data[b.name] = np.concatenate([data, scales.view(np.uint32)], axis=1).reshape(self.shape(b))
        return self.ops.staging(cache)

    def segments(self) -> np.ndarray:
        """The segments of a packed batch's tokens, (batch, SEGMENT_WORDS)."""
        first = TABLES // 4 + record_index(self.plan.n_ctx, self.plan.page)
        words: np.ndarray = self.data["state"][first : first + SEGMENT_WORDS * self.plan.batch]
        return words.reshape(-1, SEGMENT_WORDS)

    def free_pages(self, table: int = 0) -> np.ndarray:
        """The pages that no block table from word `table` on of the tables has."""
        size = table_offset(self.plan.n_ctx, self.plan.page, 1)
        used = self.data["state"][TABLES // 4 + table : TABLES // 4 + table + size]
        return np.setdiff1d(np.arange(self.pages), used)

    def cache_rows(self, positions: Sequence[int] | np.ndarray, seq: int = 0, cache: Cache | None = None) -> np.ndarray:
        """The rows of a cache that hold a sequence's positions."""
        page, at = self.plan.page, np.asarray(positions, np.int64)
        table = table_offset(self.plan.n_ctx, page, 0, seq) + (cache.paging["TABLE"] if cache else 0)
        return self.data["state"][TABLES // 4 + table + at // page].astype(np.int64) * page + at % page

    def weight(self, name: str, type: Q, rows: int, cols: int, scale: float = 1.0) -> Weight:
        """A random matrix in the GGUF type."""
        values = self.random.standard_normal((rows, cols)).astype(np.float32) * scale
        self.raw[name] = np.ascontiguousarray(quantize(values, GGMLQuantizationType(type))).view(np.uint8).reshape(-1)
        weight = Weight(name, type, rows, cols, ((name, 0, rows),))
        self.plan.weights[name] = weight
        return weight

    def vector(self, name: str, cols: int) -> Weight:
        """A random F32 vector."""
        return self.weight(name, Q.F32, 1, cols)

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        """A buffer's shape; caches have pages for every sequence, and free ones."""
        return (self.pages * self.plan.page, *buffer.shape[1:]) if buffer.pool == "kv" else buffer.shape

    def fill(self, buffer: Buffer, cols: int | None = None) -> np.ndarray:
        """Fill a buffer with random numbers, with zeros after `cols`."""
        values = self.random.standard_normal(self.shape(buffer)).astype(cpu.DTYPES[buffer.dtype])
        if cols is not None:
            values[..., cols:] = 0
        if buffer.pool == "kv":
            values.reshape(self.pages, -1)[self.free_pages()] = np.nan
        self.data[buffer.name] = values
        return values

    def run(self, ops: Ops) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Run every op: (GPU, numpy) buffers afterwards. Buffers that were not filled start as NaN on both sides."""
        host = self.host(ops)
        steps = [self._step(op) for op in ops.ops]
        weights = {k: v for _, found in steps for k, v in found.items()}
        gpu = {k: v.copy() for k, v in self.data.items()}
        for name, got in run_steps(self.page, gpu | weights, [step for step, _ in steps]).items():
            if name in weights:  # bound as read_write (#read_write)
                assert got.tobytes() == weights[name].tobytes(), f"a kernel writes to weight {name}"
                continue
            values = gpu[name]
            gpu[name] = got.view(values.dtype)[: values.size].reshape(values.shape)
        return gpu, host

    def host(self, ops: Ops) -> dict[str, np.ndarray]:
        """Run every op with numpy: the buffers afterwards."""
        if self.packed:
            self.plan.packs_prefixes = may_have_gaps(ops.ops)
            ops.ops[:] = packed(self.plan, ops.ops)
        for b in self.plan.buffers.values():
            if b.name not in self.data:
                kind = cpu.DTYPES[b.dtype]
                self.data[b.name] = np.full(self.shape(b), 0xFFFFFFFF if kind is np.uint32 else np.nan, kind)
        host = cpu.Cpu(self.plan, {w.name: cpu.dequantize(w, self.raw[w.name]) for w in self.plan.weights.values()})
        host.buffers = {k: v.copy() for k, v in self.data.items()}
        for op in ops.ops:
            host.run_op(op)
        return host.buffers

    def states(self, data: dict[str, np.ndarray]) -> np.ndarray:
        """The States of a small batch's tokens, (tokens, 4)."""
        return data["state"][: TABLES // 4].reshape(-1, 4)

    def _step(self, op: Op) -> tuple[Step, dict[str, np.ndarray]]:
        """An op's step, and the planes of its weights by the names that the step has for them."""
        shader = kernels.expand(op.kernel, op.params, self.device)
        if self.device.matrix:
            shader = emulated(shader)
        buffers: dict[str, str] = {}
        weights: dict[str, np.ndarray] = {}
        for name, bound in op.bindings.items():
            if isinstance(bound, Buffer):
                buffers[name] = bound.name
                continue
            data = planes(bound, self.raw[bound.name])
            for there, plane in planes_of(name, bound).items():
                buffers[there] = f"{plane} of {bound.name}"
                weights[f"{plane} of {bound.name}"] = data[plane]
        if set(shader.bindings) - {"p"} != set(buffers):
            raise KeyError(f"{shader.label} binds {sorted(shader.bindings)}, the op gives {sorted(buffers)}")
        grid = [g.count(self.n) if isinstance(g, PerToken) else g for g in op.grid]
        return Step(shader, buffers, op.consts, grid), weights


@dataclass(frozen=True)
class Step:
    """One dispatch: `buffers` has the name of the data for each binding."""

    shader: kernels.Shader
    buffers: dict[str, str]
    consts: dict[str, Any]
    grid: list[int]

    def job(self, code: int) -> dict[str, Any]:
        """The step as runner.js expects it, with the number of its shader's code."""
        bindings = [
            {"access": access, "buffer": self.buffers.get(name, name)} for name, access in self.shader.bindings.items()
        ]
        params = base64.b64encode(self.shader.pack(self.consts)).decode() if "p" in self.shader.bindings else ""
        return {"code": code, "params": params, "bindings": bindings, "grid": self.grid}


def run_steps(page: Page, data: dict[str, np.ndarray], steps: Sequence[Step]) -> dict[str, np.ndarray]:
    """Run dispatches one after another: name -> bytes of the written data afterwards."""
    used = sorted({name for step in steps for name in step.buffers.values()})
    padded = {name: (raw := data[name].tobytes()) + bytes(-len(raw) % 4) for name in used}  # WebGPU writes whole words
    known = _codes.setdefault(page, {})
    new = list(dict.fromkeys(step.shader.code for step in steps if step.shader.code not in known))
    known.update((code, number) for number, code in enumerate(new, len(known)))
    job = {
        "buffers": {name: len(raw) for name, raw in padded.items()},
        "codes": {known[code]: code for code in new},
        "steps": [step.job(known[step.shader.code]) for step in steps],
    }
    sizes, contents = run_job(page, job, b"".join(padded.values()))
    out = np.frombuffer(contents, np.uint8).copy()
    ends = itertools.accumulate(sizes.values())
    return {name: out[end - size : end] for (name, size), end in zip(sizes.items(), ends, strict=True)}


def dispatch(
    page: Page, shader: kernels.Shader, contents: dict[str, np.ndarray], consts: dict[str, Any], grid: list[int]
) -> dict[str, np.ndarray]:
    """Run a shader: name -> bytes of its writable buffers afterwards."""
    return run_steps(page, contents, [Step(shader, {name: name for name in contents}, consts, grid)])


def variants(capabilities: dict[str, Any]) -> dict[str, Device]:
    """The device variants that an adapter supports: with and without shader-f16 and subgroups.

    Those without shader-f16 bind as few buffers as SwiftShader, on any adapter. Those with it bind more.
    """
    subgroup = capabilities["subgroupMinSize"] if "subgroups" in capabilities["features"] else 0
    limits = capabilities["limits"]
    base = Device(
        max_binding=limits["maxStorageBufferBindingSize"],
        max_workgroup_storage=limits["maxComputeWorkgroupStorageSize"],
        max_storage_buffers=limits["maxStorageBuffersPerShaderStage"],
    )
    plain = replace(base, max_storage_buffers=min(base.max_storage_buffers, LEAST_BUFFERS))
    found = {"f32": plain, "f32 subgroups": replace(plain, subgroup=subgroup)}
    if "shader-f16" in capabilities["features"]:
        found |= {"f16": replace(base, f16=True), "f16 subgroups": replace(base, f16=True, subgroup=subgroup)}
    return found


def nmse(got: np.ndarray, want: np.ndarray) -> float:
    """Normalised mean squared error; NaN if there is any NaN."""
    want64 = want.astype(np.float64)
    return float(((got - want64) ** 2).mean() / max(1e-30, (want64**2).mean()))


def bench_of(name: str, kernel_pages: Callable[[str], tuple[Page, dict[str, Any]]]) -> Bench:
    """A bench for an "adapter: variant"."""
    adapter, variant = name.split(": ")
    page, capabilities = kernel_pages(adapter)
    return Bench(page, variants(capabilities)[variant])
