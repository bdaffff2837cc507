"""The WebGPU adapter and device, and the kernel variants they can run."""

from __future__ import annotations

from typing import Any

import js

from py_engine.gpu.memory import obj
from py_engine.plan.kernels import Device

LIMITS = (
    "maxBufferSize", "maxStorageBufferBindingSize", "maxStorageBuffersPerShaderStage", "maxComputeWorkgroupStorageSize",
    "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX",
)  # fmt: skip
MATRICES = "chromium-experimental-subgroup-matrix"
MATRICES_STORAGE = 32768  # bytes of workgroup memory for the tiles that multiply with matrices
MATRICES_SUBGROUPS = 8  # subgroups of a workgroup, for the same tiles


async def request_adapter(least_ms: int = 0) -> Any | None:
    """Request the adapter (adapter.js), for `least_ms` milliseconds at least; None without WebGPU."""
    return (await js.wispRequestAdapter(least_ms)) or None


async def request_device(adapter: Any) -> Any:
    """Request a device with every feature and limit that kernels use. An adapter yields one device only."""
    features = [f for f in ("shader-f16", "subgroups", "timestamp-query", MATRICES) if adapter.features.has(f)]
    limits = obj(**{n: getattr(adapter.limits, n) for n in LIMITS})
    return await adapter.requestDevice(obj(requiredFeatures=features, requiredLimits=limits))


def describe(adapter: Any) -> dict[str, Any]:
    """The adapter's info, features and limits, as plain JSON."""
    info = adapter.info
    return {
        "vendor": info.vendor,
        "architecture": info.architecture,
        "description": info.description,
        "features": sorted(str(f) for f in adapter.features.values()),
        "limits": {n: getattr(adapter.limits, n) for n in LIMITS},
    }


async def device_of(adapter: Any) -> Device:
    """The kernel variants that an adapter supports."""
    info, limits, features = adapter.info, adapter.limits, adapter.features
    words = f"{info.vendor} {info.architecture} {info.description} {info.device}".lower()
    software = bool(getattr(info, "isFallbackAdapter", False)) or any(
        w in words for w in ("swiftshader", "llvmpipe", "lavapipe", "software")
    )
    return Device(
        f16=features.has("shader-f16"),
        half_bits=not features.has("shader-f16") or await js.wispMakesHalfBits(),
        subgroup=int(info.subgroupMinSize) if features.has("subgroups") else 0,
        max_binding=int(limits.maxStorageBufferBindingSize),
        max_buffer=int(limits.maxBufferSize),
        max_workgroup_storage=int(limits.maxComputeWorkgroupStorageSize),
        max_storage_buffers=int(limits.maxStorageBuffersPerShaderStage),
        max_threads=_power_of_two(int(min(limits.maxComputeInvocationsPerWorkgroup, limits.maxComputeWorkgroupSizeX))),
        dot8=not software and js.navigator.gpu.wgslLanguageFeatures.has("packed_4x8_integer_dot_product"),
        int8="apple" not in words,  # its GPUs have no integer dot products: browsers make them of several operations
        matrix=_matrix_side(adapter),
        software=software,
    )


def _power_of_two(n: int) -> int:
    """The largest one that is not above n: sums halve the threads of a workgroup in turn."""
    return 1 << (n.bit_length() - 1)


def _matrix_side(adapter: Any) -> int:
    """The side of the square subgroup matrices with f16 inputs and f32 sums.

    0 without them, where subgroups have no fixed size, or where tiles do not fit into a workgroup.
    """
    info, limits = adapter.info, adapter.limits
    if limits.maxComputeWorkgroupStorageSize < MATRICES_STORAGE:
        return 0
    if limits.maxComputeInvocationsPerWorkgroup < MATRICES_SUBGROUPS * info.subgroupMaxSize:
        return 0
    if not adapter.features.has(MATRICES) or info.subgroupMinSize != info.subgroupMaxSize:
        return 0
    sides = {
        int(c.M)
        for c in info.subgroupMatrixConfigs
        if (c.componentType, c.resultComponentType) == ("f16", "f32") and c.M == c.N == c.K
    }
    return max(sides & {8, 16}, default=0)
