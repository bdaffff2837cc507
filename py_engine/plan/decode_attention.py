"""Attention of one token, or of a small batch: the context is divided among workgroups, whose results are joined.

For one token, it does the work of the norm and rotation before it; the shorter the context, the more workgroups share a
key head.
The product after it may join the splits itself (merged_splits.py). Long contexts have a kernel of their own
(decode_tiles.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.plan import decode_tiles, tiles
from py_engine.plan.attention import Call, quantize_cache
from py_engine.plan.cache import GROUP
from py_engine.plan.decode_tiles import Tile
from py_engine.plan.kernels import Device
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, Contexts, Op, PerToken
from py_engine.plan.products import Epilogue

WHOLE_SCALES = 4 * GROUP  # dimensions of a head's key whose scales are whole vectors of the cache
MERGED_SPLITS = 4  # that lib/merged_splits.wgsl joins, in attention_combine.wgsl or in the product after it
STAGED_BINDINGS = 7  # of attention_decode.wgsl: the state, queries, two of the cache, two of staged rows, the results
MERGED_LATENTS = 16  # the same of latents: their splits are shorter, and fewer workgroups join them


def normalises(device: Device, call: Call, threads: int, slice_threads: int) -> bool:
    """Whether attention_decode.wgsl normalises and rotates one token's heads itself, which saves a dispatch.

    `threads`: of its workgroup. `slice_threads`: those that normalise a head.
    """
    options, head_dim = call.options, call.heads[2]
    biased = options.slopes or options.relative or options.index_mask
    if device.software or threads < slice_threads or options.part or biased:
        return False  # biases have bindings of their own, and a device may allow no more than eight
    if call.cache.kind == "q8_0" and head_dim % WHOLE_SCALES:
        return False
    sums = threads // max(1, device.subgroup)  # of a row, in parts
    memory = 4 * max(4 * threads, head_dim) + 4 * (head_dim + threads + sums)  # of a query head
    return call.group * memory + 4 * threads + 8 * head_dim <= device.max_workgroup_storage


def _merged_norm(ops: OpList, call: Call, threads: int) -> tuple[Epilogue, Op | None]:
    """What attention_decode.wgsl needs to do the work of the op before it, and that op. Nothing if it cannot.

    The op, which is removed, is the norm and rotation of one token's queries, and of its keys and values, which this
    attention reads. Layers that share an earlier one's cache have only queries. Tokens of a small batch may be one
    sequence's: then one would read keys that another workgroup of its dispatch stores.
    """
    before = ops.ops[-1] if ops.ops else None
    if ops.batch > 1 or before is None or before.kernel != "norm_rope_append" or before.bindings["y"] is not call.q:
        return Epilogue(""), None
    own = before.bindings["k_cache"] == call.cache.write_bindings["k_cache"]
    if not (own and normalises(ops.device, call, threads, int(before.params["WG"]))):
        return Epilogue(""), None
    ops.ops.pop()
    params = {name: value for name, value in before.params.items() if name != "WG"}
    consts = {name: before.consts[name] for name in ("q_rows", "kv_rows", "rope_scale", "eps")}
    bindings = {name: bound for name, bound in before.bindings.items() if name != "y"}
    params |= {"NORMS": 1 if consts["kv_rows"] else 2, "SLICE": before.params["WG"]}
    return Epilogue("norm", params, consts, bindings), before


@dataclass(frozen=True)
class _Splits:
    """How a context is divided among workgroups of `threads` threads for each position of a tile."""

    positions: int  # of a tile
    threads: int
    count: int
    parts: Buffer  # (tokens, heads, count, head_dim + 4): their partial results
    norm: Epilogue  # of _merged_norm()
    staged: bool  # the token's own keys and values are read as f32

    @property
    def params(self) -> dict[str, int]:
        """The #params of lib/attention_split.wgsl."""
        return {"TS": self.positions, "SPLIT": self.count}


def _binds_staged(device: Device, call: Call) -> bool:
    """Whether a device can bind a token's own keys and values as f32 beside the cache."""
    options = call.options
    biases = (
        bool(options.slopes) + bool(options.index_mask) + (len(options.relative.bindings) if options.relative else 0)
    )
    return STAGED_BINDINGS + biases <= device.max_storage_buffers


def decode(ops: OpList, call: Call, staged: bool) -> None:
    """Attention of a small batch: split the context over workgroups, then combine their partial results.

    `staged`: each token's own keys and values are read as f32. One token's are not in the cache yet, so the second
    dispatch quantizes them; those of a batch are, and are read like this only to round like one token's.
    """
    n_head, n_head_kv, head_dim = call.heads
    cache, sinks = call.cache, call.options.sinks
    if staged and not _binds_staged(ops.device, call):
        staged = False
        if ops.batch == 1:  # a batch's are in the cache already
            quantize_cache(ops, cache, n_head_kv * head_dim)
    positions, threads, count = tiles.attention_decode(ops.device, ops.plan.n_ctx, head_dim, call.group)
    norm, before = _merged_norm(ops, call, positions * threads)
    parts = ops.buffer(f"{ops.name}.parts.{n_head}x{head_dim}", (ops.batch, n_head, count, head_dim + 4))
    splits = _Splits(positions, threads, count, parts, norm, staged and not norm.params)
    shares = tiles.attention_shares(ops.device, head_dim, call.group, ops.batch, call.options.window)
    if call.options.part:  # the length of its context is not known on the host
        positions, shares = 0, shares[-1:]
    tile, above = decode_tiles.tile(ops.device, call, positions, ops.plan), 0
    for share, up_to in decode_tiles.left(shares) if tile else shares:
        contexts, limit = Contexts(positions, above, up_to), dict[str, int]()
        if tile and not up_to:
            contexts = decode_tiles.last_contexts(ops.batch, positions, above)
            limit = {"UP_TO": decode_tiles.ABOVE}
        _add_splits(ops, replace(call, share=call.share * share), splits, contexts, limit)
        above = up_to
    if tile:
        contexts = Contexts(positions, decode_tiles.ABOVE)
        if before:  # which shorter contexts do not need
            ops.ops.append(replace(before, contexts=replace(contexts, positions=0)))
        _add_tiles(ops, replace(call, share=tile.share), splits, tile, contexts)
    store = splits.staged and ops.batch == 1
    lanes = tiles.combine_lanes(ops.device, head_dim)
    merged = MERGED_LATENTS if head_dim > tiles.MAX_HEAD_DIM else MERGED_SPLITS
    cache_groups = 2 * n_head_kv * head_dim // GROUP
    quantizers = -(-cache_groups // (lanes * head_dim // 4)) if store else 0  # workgroups that fill the cache
    ops.add(
        "attention_combine",
        {"HEAD_DIM": head_dim, "LANES": lanes, "SINKS": int(sinks is not None), "MERGED": merged}
        | call.options.window_params
        | splits.params
        | {"FRESH": int(store)}
        | ({"COLS": n_head_kv * head_dim} | cache.paging if store else {})
        | ops.state_params,
        {"n_head": n_head, "y_stride": call.y.shape[1]},
        {"state": ops.state, "parts": parts, "y": call.y}
        | ({"sinks": sinks} if sinks else {})
        | (cache.staged_bindings | cache.read_bindings if store else {}),
        n_head + quantizers,
        1,
        PerToken(),
    )


def _add_tiles(ops: OpList, call: Call, splits: _Splits, tile: Tile, contexts: Contexts) -> None:
    """The partial results of each split of a long context."""
    ops.add(
        "attention_decode_tiles",
        call.params | splits.params | tile.params | ops.state_params | {"ABOVE": contexts.above},
        {"scale": call.options.scale, "n_head_kv": call.heads[1], "q_stride": call.q.shape[1]},
        {"state": ops.state, "q": call.q} | call.cache.read_bindings | {"parts": splits.parts},
        call.heads[1] * call.share,
        splits.count,
        PerToken(),
        contexts=contexts,
    )


def _add_splits(ops: OpList, call: Call, splits: _Splits, contexts: Contexts, limit: dict[str, int]) -> None:
    """The partial results of each split. `limit`: #param of the contexts that it has, if there are others."""
    slopes, relative, norm = call.options.slopes, call.options.relative, splits.norm
    loads = tiles.attention_loads(ops.device, call.cache.kind, call.heads[2], splits.positions, splits.threads)
    ops.add(
        "attention_decode",
        call.params
        | splits.params
        | {"PARTS": splits.threads, "FRESH": int(splits.staged), "ALIBI": int(slopes is not None)}
        | ({"RELATIVE": relative.kind} if relative else {})
        | call.options.mask_params
        | loads
        | ops.state_params
        | dict(norm.params)
        | limit,
        {"scale": call.options.scale, "n_head_kv": call.heads[1]}
        | (dict(norm.consts) or {"q_stride": call.q.shape[1]}),
        {"state": ops.state}
        | (dict(norm.bindings) or {"q": call.q})
        | call.cache.read_bindings
        | {"parts": splits.parts}
        | ({"slopes": slopes} if slopes else {})
        | (relative.bindings if relative else {})
        | call.options.mask_bindings
        | (call.cache.staged_bindings if splits.staged else {}),
        call.heads[1] * call.share,
        splits.count,
        PerToken(),
        contexts=contexts,
    )
