"""The part of bench/proofs.py that runs in its page."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import js

from bench.shapes import MIX, SHAPES, header
from py_engine.gpu import repack
from py_engine.gpu.memory import obj
from py_engine.gpu.pipelines import PipelineCache
from py_engine.plan.kernels import Device, Shader
from py_engine.planner import PlanOptions, make_plan
from py_engine.proof.modules import import_modules
from py_engine.proof.variants import shaders_of

DEVICE = Device(
    f16=True, subgroup=32, max_binding=(2 << 30) - 4, max_buffer=(4 << 30) - 4, max_workgroup_storage=48 << 10,
    max_threads=1024, max_storage_buffers=16, dot8=True, matrix=16,
)  # fmt: skip
WAIT_S, ATTEMPTS = 0.25, 8  # a browser that has just begun may have no GPU yet


async def open_device() -> Any:
    """The page's GPUDevice, with all the storage buffers that it has."""
    adapter = await js.navigator.gpu.requestAdapter()
    for _ in range(0 if adapter else ATTEMPTS):
        await asyncio.sleep(WAIT_S)
        adapter = adapter or await js.navigator.gpu.requestAdapter()
    limits = {name: getattr(adapter.limits, name) for name in ("maxStorageBuffersPerShaderStage", "maxBufferSize")}
    return await adapter.requestDevice(obj(requiredLimits=limits))


def unknown(shader: Shader) -> bool:
    """Whether a kernel has been proven: none has."""
    return False


class FirstProof:
    """The proof of what a first load compiles, in parts."""

    def __init__(self, shape: str, device: Any) -> None:
        self._plan = make_plan(header(SHAPES[shape], MIX), DEVICE, PlanOptions(8192, 2048, "f16"))
        self._names = sorted(name for name in self._plan.lists if name not in self._plan.lazy)
        shaders_of(self._plan, DEVICE, self._names)  # a load has made their texts before
        repack.shaders(self._plan, DEVICE)
        self._device, self._made = device, list[Any]()
        gc.freeze()

    def make_cases(self) -> None:
        """Data, and numpy's results."""
        from py_engine.proof.cases import cases
        from py_engine.proof.upload_cases import upload_cases

        self._made.extend(upload_cases(self._plan, DEVICE, unknown))
        self._made.extend(cases(self._plan, DEVICE, self._names, unknown))

    def upload(self) -> None:
        """What else Prover.prepared() does."""
        from py_engine.proof.device_run import DeviceRun

        DeviceRun(self._device, PipelineCache(self._device), self._made)._prepare()
        for case in self._made:
            case.sizes  # noqa: B018


async def begin(shape: str) -> FirstProof:
    """Do what a load has done before the proof."""
    await import_modules(None)
    return FirstProof(shape, await open_device())
