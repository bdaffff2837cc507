"""A workbench for one op: random inputs, poisoned outputs, the same op on the GPU and with numpy."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGMLQuantizationType as Q
from gguf.quants import quantize
from playwright.sync_api import Page

from py_engine.cpu import executor as cpu
from py_engine.plan import kernels, quants
from py_engine.plan.kernels import Device
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, Op, PerToken, Plan, Weight
from py_engine.plan.shared import MAX_SMALL_BATCH
from tests.support.kernels.matrices import emulated

RUNNER = Path(__file__).parent / "runner.js"


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
    places: Sequence[tuple[int, int]] = ()  # (position, sequence) of each token of a small batch


class Bench:
    """One device variant on one page: `data` has numpy buffers by name, `raw` weights as GGUF bytes."""

    def __init__(self, page: Page, device: Device) -> None:
        self.page, self.device = page, device

    def begin(self, setup: Setup) -> Ops:
        """Create a plan with one list, and the state and tokens of its batch."""
        places, n, seq = setup.places, len(setup.places) or setup.n, setup.seq
        self.random = np.random.default_rng(setup.seed)
        self.plan = Plan(setup.batch, setup.n_ctx, setup.vocab)
        self.data: dict[str, np.ndarray] = {}
        self.raw: dict[str, np.ndarray] = {}
        ops = Ops(self.plan, "test", setup.batch, self.device, state_per_token=bool(places))
        self.n, self.sequences = n, MAX_SMALL_BATCH if places or seq else 1
        self.data["state"] = np.array([setup.pos, setup.n, 0, seq], np.uint32)
        unused = [(0xFFFFFF, 0xFFFFFF, 0, 0xFFFFFF)] * (MAX_SMALL_BATCH - len(places))
        self.data["states"] = np.array([(p, n, 0, s) for p, s in places] + unused, np.uint32)
        shape = MAX_SMALL_BATCH, setup.n_ctx + 1
        self.data["tokens"] = self.random.integers(0, setup.vocab, shape).astype(np.uint32)
        return ops

    def weight(self, name: str, type: Q, rows: int, cols: int, scale: float = 1.0) -> Weight:
        """A random matrix in the GGUF type."""
        values = self.random.standard_normal((rows, cols)).astype(np.float32) * scale
        self.raw[name] = np.ascontiguousarray(quantize(values, type)).view(np.uint8).reshape(-1)
        weight = Weight(name, type, rows, cols, ((name, 0, rows),))
        self.plan.weights[name] = weight
        return weight

    def vector(self, name: str, cols: int) -> Weight:
        """A random F32 vector."""
        return self.weight(name, Q.F32, 1, cols)

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        """A buffer's shape; caches have a part for every sequence."""
        return (self.sequences * buffer.shape[0], *buffer.shape[1:]) if buffer.pool == "kv" else buffer.shape

    def fill(self, buffer: Buffer, cols: int | None = None) -> np.ndarray:
        """Fill a buffer with random numbers, with zeros after `cols`."""
        values = self.random.standard_normal(self.shape(buffer)).astype(cpu.DTYPES[buffer.dtype])
        if cols is not None:
            values[..., cols:] = 0
        self.data[buffer.name] = values
        return values

    def run(self, ops: Ops) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Run every op: (GPU, numpy) buffers afterwards. Buffers that were not filled start as NaN on both sides."""

        for b in self.plan.buffers.values():
            if b.name not in self.data:
                kind = cpu.DTYPES[b.dtype]
                self.data[b.name] = np.full(self.shape(b), 0xFFFFFFFF if kind is np.uint32 else np.nan, kind)
        host = cpu.Cpu(self.plan, {w.name: cpu.dequantize(w, self.raw[w.name]) for w in self.plan.weights.values()})
        host.buffers = {k: v.copy() for k, v in self.data.items()}
        gpu = {k: v.copy() for k, v in self.data.items()}
        for op in ops.ops:
            self._dispatch(op, gpu)
            host.run_op(op, ops.state.name)
        return gpu, host.buffers

    def _dispatch(self, op: Op, data: dict[str, np.ndarray]) -> None:
        shader = kernels.expand(op.kernel, op.params, self.device)
        if self.device.matrix:
            shader = emulated(shader)
        contents: dict[str, tuple[np.ndarray, Buffer | None]] = {}
        for name, bound in op.bindings.items():
            if isinstance(bound, Buffer):
                contents[name] = data[bound.name], bound
            elif name == "w":
                contents |= {k: (v, None) for k, v in planes(bound, self.raw[bound.name]).items()}
            else:
                contents[name] = planes(bound, self.raw[bound.name])["w_qs"], None
        if set(shader.bindings) - {"p"} != set(contents):
            raise KeyError(f"{shader.label} binds {sorted(shader.bindings)}, the op gives {sorted(contents)}")
        grid = [g.count(self.n) if isinstance(g, PerToken) else g for g in op.grid]
        out = dispatch(self.page, shader, {k: v for k, (v, _) in contents.items()}, op.consts, grid)
        for name, got in out.items():
            values, buffer = contents[name]
            assert buffer is not None, f"{shader.label} writes to weight {name}"
            data[buffer.name] = got.view(values.dtype)[: values.size].reshape(values.shape)


def dispatch(
    page: Page, shader: kernels.Shader, contents: dict[str, np.ndarray], consts: dict[str, Any], grid: list[int]
) -> dict[str, np.ndarray]:
    """Run a shader: name -> bytes of its writable buffers afterwards."""

    def data(name: str) -> str:
        raw = contents[name].tobytes()
        return base64.b64encode(raw + bytes(-len(raw) % 4)).decode()  # WebGPU writes whole words

    buffers = [
        {"name": name, "access": access, "data": "" if access == "uniform" else data(name)}
        for name, access in shader.bindings.items()
    ]
    params = base64.b64encode(shader.pack(consts)).decode() if "p" in shader.bindings else ""
    job = {"code": shader.code, "params": params, "buffers": buffers, "grid": grid}
    out = page.evaluate("(job) => kernels.run(job)", job)
    return {k: np.frombuffer(base64.b64decode(v), np.uint8).copy() for k, v in out.items()}


def planes(weight: Weight, raw: np.ndarray) -> dict[str, np.ndarray]:
    """The planes that repack writes for a matrix's raw bytes: name -> uint8, padded to the plane's size."""
    layout = weight.layout
    out = {}
    for name, plane in layout.planes.items():
        if layout.plain:
            rows = raw.reshape(weight.rows, -1)
            records = np.pad(rows, ((0, 0), (0, weight.plane_row_bytes(name) - rows.shape[1])))
        else:
            blocks = raw.reshape(-1, layout.block_bytes)
            records = np.concatenate([blocks[:, at : at + size] for at, size in plane.ranges], axis=1)
            records = np.pad(records, ((0, 0), (0, plane.stride - records.shape[1])))
        table = np.frombuffer(quants.grid(weight.type) if plane.table else b"", np.uint8)
        out[name] = np.concatenate([table, records.reshape(-1)])
        out[name] = np.pad(out[name], (0, weight.plane_bytes(name) - out[name].size))
    return out


def variants(capabilities: dict[str, Any]) -> dict[str, Device]:
    """The device variants that an adapter supports: with and without shader-f16 and subgroups."""
    subgroup = capabilities["subgroupMinSize"] if "subgroups" in capabilities["features"] else 0
    limits = capabilities["limits"]
    base = Device(
        max_binding=limits["maxStorageBufferBindingSize"],
        max_workgroup_storage=limits["maxComputeWorkgroupStorageSize"],
    )
    found = {"f32": base, "f32 subgroups": replace(base, subgroup=subgroup)}
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
