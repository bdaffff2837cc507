"""What a model would need of this device and how fast it could be, from its header alone. Nothing is loaded.

The weights, caches and buffers are those of the plan that a load would make. A step of decoding reads most of them
once, so its speed follows from what this device was measured to read and multiply.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.files.parts import Parts
from py_engine.load_plan import CPU, adapter_for, default_context, plan_for
from py_engine.loader import cpu_limit_error
from py_engine.options import LoadOptions
from py_engine.plan import budget
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE_STEP
from py_engine.plan.plan import Plan
from py_engine.plan.traffic import of_step

if TYPE_CHECKING:
    from py_engine.files.source import Source

SHORTEST = 512  # tokens: no shorter context is tried
POSITION = 1024  # at which the speed is stated: so many positions of the cache are read, too
UNSUPPORTED = {"unsupported_architecture", "unsupported_quantization", "missing_tensor", "bad_tensor_shape"}


@dataclass(frozen=True)
class Capacity:
    """Bytes for a model. `estimated`: the browser does not report the device's memory, so more may fit."""

    bytes: int
    estimated: bool


@dataclass(frozen=True)
class Candidate:
    """A plan with one context length, and why the device cannot run it."""

    plan: Plan
    memory: dict[str, int]
    error: WispError | None

    @property
    def total(self) -> int:
        """Bytes of all pools."""
        return sum(self.memory.values())


async def inspect(
    source: Source | list[Source],
    header: Header | list[Header],
    options: LoadOptions,
    capacity: Capacity,
) -> dict[str, Any]:
    """Plain JSON; docs/sdk.md describes it. Reads the header and RoPE's factors only."""
    parts = Parts.of(source, header)
    facts = _facts(parts.header)
    try:
        return facts | await _fit(parts, options, capacity)
    except WispError as error:
        if error.code not in UNSUPPORTED:
            raise
        return facts | {"verdict": "unsupported", "advice": error.message}


def _facts(header: Header) -> dict[str, Any]:
    """What the header says of the model, apart from this device."""
    sizes: Counter[str] = Counter()
    parameters = 0
    for tensor in header.tensors.values():
        sizes[tensor.type.name] += tensor.nbytes
        count = 1
        for n in tensor.shape:
            count *= n
        parameters += count
    trained = header.arch("context_length", None)
    return {
        "architecture": header.architecture,
        "parameters": parameters,
        "quantization": sizes.most_common(1)[0][0] if sizes else None,  # of most bytes
        "trained_context": trained if isinstance(trained, int) else None,
    }


async def _fit(parts: Parts, options: LoadOptions, capacity: Capacity) -> dict[str, Any]:
    adapter, device = await adapter_for(options)
    chosen = _candidate(await plan_for(parts, device, options), device)
    while not _fits(chosen, capacity) and (shorter := _shorter(chosen, options, parts.header, capacity)):
        chosen = _candidate(await plan_for(parts, device, replace(options, context_length=shorter)), device)
    verdict = "fits" if _fits(chosen, capacity) else "too_large"
    if verdict == "too_large" and chosen.error is None and capacity.estimated:
        verdict = "maybe"
    return {
        "backend": "cpu" if device is None else "webgpu",
        **chosen.memory,
        "total": chosen.total,
        "budget": capacity.bytes,
        "context_length": chosen.plan.n_ctx,
        "verdict": verdict,
        "advice": _advice(chosen, capacity, verdict),
        **await _speed(chosen.plan, adapter, device),
    }


def _candidate(plan: Plan, device: Device | None) -> Candidate:
    if device is not None:
        return Candidate(plan, budget.pools(plan, on_cpu=False), budget.limit_error(plan, device))
    return Candidate(plan, budget.pools(plan, on_cpu=True), cpu_limit_error(plan))


def _fits(candidate: Candidate, capacity: Capacity) -> bool:
    return candidate.error is None and candidate.total <= capacity.bytes


def _shorter(candidate: Candidate, options: LoadOptions, header: Header, capacity: Capacity) -> int | None:
    """Half of the context, where that could help; None: it could not, or the caller has asked for this length."""
    length = candidate.plan.n_ctx // 2
    hopeless = candidate.memory["weights"] > capacity.bytes
    if options.context_length or hopeless or length < min(SHORTEST, default_context(header)):
        return None
    return length


def _advice(candidate: Candidate, capacity: Capacity, verdict: str) -> str | None:
    if candidate.error is not None:
        return candidate.error.message
    if verdict == "too_large":
        return f"It needs {candidate.total / 2**20:.0f} MiB; all models together may take {capacity.bytes >> 20} MiB."
    if verdict == "maybe":
        return "It needs more than half of the memory that this browser reports. The load will tell."
    return None


async def _speed(plan: Plan, adapter: Any, device: Device | None) -> dict[str, Any]:
    """The bytes that a decode step reads, and the tokens a second that this device is expected to decode."""
    if not plan.causal:
        return {"bytes_per_token": None, "tokens_per_second": None}
    from py_engine.tuning.known_limits import known_limits

    position = min(POSITION, plan.n_ctx // 2)
    step = of_step(plan, DECODE_STEP, device or CPU, 1, position, panelled=device is None)
    limits = await known_limits(adapter, device)
    return {
        "bytes_per_token": sum(moved.bytes for _, moved in step),
        "tokens_per_second": 1e9 / limits.expected_ns(step) if limits else None,
    }
