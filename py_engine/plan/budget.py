"""What a model will take of the device, known from its header alone; and what to change where that is too much.

WebGPU tells the largest buffer and the largest binding, not how much memory there is. So what can be known is refused
before anything is downloaded, and the rest is found when the memory is allocated, which comes before the download too.
"""

from __future__ import annotations

from typing import Any

from py_engine.errors import WispError
from py_engine.plan.cache import GROUP
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Plan

SMALLER = 4.8  # bits a weight, of Q4_K_M, which most models can be had in
WORTH_NAMING = 1.3  # times that: below, another quantisation gains little


def pools(plan: Plan, *, on_cpu: bool) -> dict[str, int]:
    """Bytes of weights, kv and activations; numpy keeps every weight in float32, whatever the file has."""
    memory = plan.memory()
    return {**memory, "weights": 4 * sum(w.rows * w.cols for w in plan.weights.values())} if on_cpu else memory


def estimate(plan: Plan, device: Device | None) -> dict[str, Any]:
    """Plain JSON: bytes of weights, kv, activations and their total; the context; on a GPU its limits and whether every
    buffer stays within them, else what would.
    """
    memory = pools(plan, on_cpu=device is None)
    out: dict[str, Any] = {**memory, "total": sum(memory.values()), "context_length": plan.n_ctx}
    if device is not None:
        error = refusal(plan, device)
        out |= {"max_buffer": device.max_buffer, "max_binding": device.max_binding, "fits": error is None}
        out["advice"] = str(error) if error else None
    return out


def refusal(plan: Plan, device: Device) -> WispError | None:
    """The error where the cache of one layer, or what an encoder computes in one, is larger than a buffer, or a
    binding, may be.
    """
    limit = min(device.max_buffer, device.max_binding)
    pool, what = ("kv", "the keys of a layer") if plan.generates else ("activations", "what a layer computes")
    largest = max(
        (b for b in plan.buffers.values() if b.pool == pool and len(b.shape) == 2), key=lambda b: b.nbytes, default=None
    )
    if largest is None or largest.nbytes <= limit:
        return None
    row = largest.nbytes / largest.shape[0]
    fits = int(limit // row) // 64 * 64
    bytes_row = largest.shape[1] * (1 + 4 / GROUP)  # in q8_0
    message = (
        f"A context of {plan.n_ctx} tokens needs {_size(largest.nbytes)} in one piece for {what}; this "
        f"device gives {_size(limit)}. "
    )
    if fits < 64:
        return WispError(message + "Choose a smaller model.", "model_too_large")
    message += f"A context of {fits} tokens would fit"
    if plan.generates and largest.dtype != "u32" and limit // bytes_row >= plan.n_ctx:
        message += f', or all {plan.n_ctx} with kvType "q8_0"'
    return WispError(message + ".", "context_too_long", param="contextLength")


def out_of_memory(plan: Plan) -> WispError:
    """The error where the device had no room: what was asked for, and which change gains how much."""
    memory = plan.memory()
    parts = f"{_size(memory['weights'])} of weights, {_size(memory['kv'])} for a context of {plan.n_ctx} tokens"
    gains = []
    if memory["kv"] >= 1 << 20:
        gains.append(f"a context of {plan.n_ctx // 2} tokens saves {_size(memory['kv'] // 2)}")
        kept = {"f32": 9 / 32, "f16": 9 / 16}
        ratios = [kept[b.dtype] for b in plan.buffers.values() if b.pool == "kv" and b.dtype in kept]
        if ratios and not any(b.name.endswith(".staged") for b in plan.buffers.values()):
            gains.append(f'kvType "q8_0" saves {_size(int(memory["kv"] * (1 - min(ratios))))}')
    count = sum(w.rows * w.cols for w in plan.weights.values())
    smaller = int(count * SMALLER / 8)
    if memory["weights"] > WORTH_NAMING * smaller:
        gains.append(f"the same model in Q4_K_M saves about {_size(memory['weights'] - smaller)}")
    else:
        gains.append("a smaller model needs less")
    return WispError(
        f"The GPU has no room for this model: {_size(sum(memory.values()))} were asked for ({parts}, "
        f"{_size(memory['activations'])} of working memory). To make it fit: {'; '.join(gains)}; or close what else "
        "uses the GPU.",
        "out_of_memory",
    )


def _size(count: int) -> str:
    if count >= 1 << 30:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.0f} MiB" if count >= 10 << 20 else f"{count / 2**20:.1f} MiB"
