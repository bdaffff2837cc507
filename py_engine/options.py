"""How a model is to be loaded."""

from __future__ import annotations

from dataclasses import dataclass, field

PARALLEL = 4  # requests that run side by side by default


@dataclass(frozen=True)
class LoadOptions:
    """Options of Engine.load() and Engine.estimate()."""

    context_length: int | None = None  # tokens; None: the default, or the model's limit where that is less
    backend: str = "auto"  # "webgpu", "cpu", or "auto": WebGPU unless its adapter is a software one and numpy is faster
    kv_type: str = "f16"  # of the KV cache: "f16", "f32" or "q8_0"
    parallel: int = PARALLEL  # requests that run side by side, MAX_SEQUENCES at most
    speculation: bool = True  # draft the next tokens where that pays
    tune: bool | None = None  # choose kernels by measuring them, once per device and model; None: on a real GPU
    variant: dict[str, bool | int] = field(default_factory=dict)  # fields of kernels.Device to force
