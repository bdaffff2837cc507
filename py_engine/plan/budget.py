"""The memory that a model needs, known from its header alone, and what to change if the device has too little.

WebGPU reports the largest buffer and the largest binding, not the amount of memory. What exceeds those limits is
refused before the download. Anything else shows when the memory is allocated, which also precedes the download.
"""

from __future__ import annotations

from typing import Any

from py_engine.errors import WispError
from py_engine.plan import panels
from py_engine.plan.cache import GROUP
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Plan

Q4_K_M_BITS = 4.8  # bits per weight of Q4_K_M, which most models are published in
MIN_SAVING = 1.3  # suggest Q4_K_M if the weights are this many times larger

Q8_0_RATIOS = {"f32": 9 / 32, "f16": 9 / 16}  # size of a q8_0 cache / size of a cache of that type


def pools(plan: Plan, *, on_cpu: bool) -> dict[str, int]:
    """Bytes of weights, kv, activations and state.

    The CPU stores some types in more bytes than a GPU does.
    """
    memory = plan.memory()
    if not on_cpu:
        return memory
    return {**memory, "weights": sum(panels.weight_bytes(w.type, w.rows, w.cols) for w in plan.weights.values())}


def estimate(plan: Plan, device: Device | None) -> dict[str, Any]:
    """Plain JSON: bytes of every pool and their total, and the context length.

    With a device also its limits, whether every buffer is within them ("fits"), and if not, "advice".
    """
    memory = pools(plan, on_cpu=device is None)
    out: dict[str, Any] = {**memory, "total": sum(memory.values()), "context_length": plan.n_ctx}
    if device is not None:
        error = limit_error(plan, device)
        out |= {"max_buffer": device.max_buffer, "max_binding": device.max_binding, "fits": error is None}
        out["advice"] = str(error) if error else None
    return out


def limit_error(plan: Plan, device: Device) -> WispError | None:
    """The error if a layer's cache, or its activations in a model that is not causal, exceed a buffer or a binding."""
    limit = min(device.max_buffer, device.max_binding)
    pool, what = ("kv", "the keys of a layer") if plan.causal else ("activations", "the activations of a layer")
    largest = max(
        (b for b in plan.buffers.values() if b.pool == pool and len(b.shape) == 2), key=lambda b: b.nbytes, default=None
    )
    if largest is None or largest.nbytes <= limit:
        return None
    row_bytes = largest.nbytes / largest.shape[0]
    fitting = int(limit // row_bytes) // 64 * 64  # tokens
    q8_0_row_bytes = largest.shape[1] * (1 + 4 / GROUP)
    message = (
        f"A context of {plan.n_ctx} tokens needs {_size(largest.nbytes)} in one buffer for {what}; this "
        f"device allows {_size(limit)}. "
    )
    if fitting < 64:
        return WispError(message + "Choose a smaller model.", "model_too_large")
    message += f"A context of {fitting} tokens would fit"
    if plan.causal and largest.dtype != "u32" and limit // q8_0_row_bytes >= plan.n_ctx:
        message += f', or all {plan.n_ctx} with kvType "q8_0"'
    return WispError(message + ".", "context_too_long", param="contextLength")


def out_of_memory(plan: Plan) -> WispError:
    """The error if allocation failed: the memory requested, and the savings that each change would bring."""
    memory = plan.memory()
    parts = f"{_size(memory['weights'])} of weights, {_size(memory['kv'])} for a context of {plan.n_ctx} tokens"
    savings = []
    if memory["kv"] >= 1 << 20:
        savings.append(f"a context of {plan.n_ctx // 2} tokens saves {_size(memory['kv'] // 2)}")
        kv_buffers = [b for b in plan.buffers.values() if b.pool == "kv" and len(b.shape) == 2]
        ratios = [Q8_0_RATIOS[b.dtype] for b in kv_buffers if b.dtype in Q8_0_RATIOS]
        if ratios and not any(".staged" in name for name in plan.buffers):
            savings.append(f'kvType "q8_0" saves {_size(int(memory["kv"] * (1 - min(ratios))))}')
    count = sum(w.rows * w.cols for w in plan.weights.values())
    as_q4_k_m = int(count * Q4_K_M_BITS / 8)
    if memory["weights"] > MIN_SAVING * as_q4_k_m:
        savings.append(f"the same model in Q4_K_M saves about {_size(memory['weights'] - as_q4_k_m)}")
    else:
        savings.append("a smaller model needs less")
    return WispError(
        f"The GPU has not enough memory for this model: it needs {_size(sum(memory.values()))} ({parts}, "
        f"{_size(memory['activations'])} of activations). To make it fit: {'; '.join(savings)}; or close other "
        "programs that use the GPU.",
        "out_of_memory",
    )


def _size(count: int) -> str:
    if count >= 1 << 30:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.0f} MiB" if count >= 10 << 20 else f"{count / 2**20:.1f} MiB"
