"""Attention of few tokens late in a context, divided among more workgroups.

64 tokens of an 8B model are two tiles for each of eight key heads: most of a GPU is idle while each workgroup goes
through the whole context. The lists split_attention(short(PREFILL)) and split_attention(medium(PREFILL)), and without
subgroup matrices split_attention(PREFILL), divide the positions of a tile among several workgroups, and a second
dispatch joins their results. They round differently from other lists, so only requests that are sampled without a seed
use them (generate/prompt_parts.py).
"""

from __future__ import annotations

from dataclasses import replace

from py_engine.plan.kernels import Device, has_param
from py_engine.plan.plan import Buffer, Op, PerToken, Plan
from py_engine.plan.shared_constants import THREADS

KERNELS = ("attention", "attention_matrix")
LEAST_POSITIONS = 1024  # shorter contexts gain nothing
ROWS = 1024  # of the buffer of partial sums: tokens x splits


def splits(tokens: int) -> int:
    """Workgroups that a tile's positions are divided among, in batches of up to so many tokens."""
    return ROWS // tokens


def split(plan: Plan, ops: list[Op], tokens: int, device: Device, kernels: tuple[str, ...] = KERNELS) -> list[Op]:
    """A prompt's ops with split attention, for up to `tokens` tokens. The same ops if none can be split.

    `kernels`: those that are split.
    """
    if device.software:
        return ops
    limit = device.max_binding
    return [
        part
        for op in ops
        for part in (_parts(plan, op, tokens, limit) if op.kernel in kernels and _splittable(op) else [op])
    ]


def _splittable(op: Op) -> bool:
    """Whether attention is causal, over a cache, and has one workgroup for the query heads that share a key head."""
    return bool(op.params["CAUSAL"] and op.params["PAGE"]) and op.params.get("SHARE", 1) == 1


def _parts(plan: Plan, op: Op, tokens: int, limit: int) -> list[Op]:
    x, tiles, _ = op.grid
    heads, value = int(op.consts["n_head_kv"]) * int(op.params["G"]), int(op.params["VALUE_DIM"])
    count = splits(tokens)
    shape = (ROWS, heads * (value + 2))
    if 4 * shape[0] * shape[1] > limit:
        return [op]
    name = f"sums.{shape[1]}"
    sums = plan.buffers.setdefault(name, Buffer(name, shape))
    params = op.params | {"SPLIT": count}
    bindings = {name: bound for name, bound in op.bindings.items() if name not in ("y", "sinks")}
    y, sinks = op.bindings["y"], {"sinks": op.bindings["sinks"]} if op.params["SINKS"] else {}
    join = Op(
        "attention_merge",
        {key: given for key, given in params.items() if has_param("attention_merge", key)},
        {"heads": heads, "y_first": int(op.consts["head0"]) * int(op.params["G"]) * value}
        | {"y_stride": op.consts["y_stride"]},
        {"state": op.bindings["state"], "sums": sums, **sinks, "y": y},
        (-(-heads * value // THREADS), PerToken(), 1),
    )
    params |= {"SINKS": 0, "Y16": 0}
    return [replace(op, params=params, bindings=bindings | {"sums": sums}, grid=(x, tiles, count)), join]
