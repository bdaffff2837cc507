"""Lowering of attention to dispatches: rotation, the KV cache, and scores. Shapes as in ops.py."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import gcd

from py_engine.plan import attention_tiles, tiles
from py_engine.plan.cache import GROUP, Cache
from py_engine.plan.encoder_decoder import Part
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.products import Epilogue
from py_engine.plan.relative_bias import RelativeBias
from py_engine.plan.rope import Rope
from py_engine.plan.shared_constants import THREADS

ACROSS = 8  # values of a norm over all heads that a thread adds at most, if there are enough threads
SINGLE = 2  # PER_HEAD of a norm with a single weight for each query head
ALONE = {"queries": 1, "keys": 2}  # the only heads that are normalised


@dataclass(frozen=True)
class HeadNorm:
    """The norm of queries and keys: per head, or across all heads at once.

    `weight` and `bias`: one query head's, then one key head's; or those of all query heads, then of all key heads; or a
    single weight for each query head.
    """

    weight: Weight | Buffer
    bias: Weight | None = None
    _: KW_ONLY
    across_heads: bool = False
    layer_norm: bool = False  # subtract the mean; else an RMS norm
    norm_values: bool = False  # also apply an RMS norm without weights to each value head
    after_rotation: bool = False  # the weights apply to what RoPE returns; else to what it reads
    single: bool = False  # each query head has a single weight, and keys have none
    alone: str = ""  # "queries" or "keys": the others are not normalised
    eps: float = 0.0  # 0: that of the norm of the layer's input

    @property
    def cols(self) -> int:
        """Number of weights; 0 for a buffer of constants, which all heads share."""
        return self.weight.cols if isinstance(self.weight, Weight) else 0


@dataclass(frozen=True)
class AttentionOptions:
    """How scores are computed from queries and keys."""

    scale: float
    window: int = 0  # a token attends to itself and the window - 1 tokens before it; 0: to the whole context
    _: KW_ONLY
    soft_cap: float = 0.0  # scores become cap * tanh(score / cap); 0: no cap
    sinks: Weight | None = None  # (n_head): an attention sink's score per head; it takes part in the softmax only
    causal: bool = True  # else the batch is the whole sequence, and a window reaches half its size to either side
    slopes: Buffer | None = None  # (n_head): ALiBi, scores fall by slope * distance
    whole_media: bool = False  # a token of a picture attends to all of the picture
    chunked: bool = False  # the window is of chunks that do not overlap: a token attends to its own up to itself

    relative: RelativeBias | None = None  # T5's
    part: Part | None = None  # the rows of the cache that are read, of an encoder-decoder model
    value_from: int = 0  # where keys and values are the same rows, the first of the columns that are a value
    index_mask: Buffer | None = None  # (n, words): bits of the positions that a token attends to (plan/indexer.py)
    anchor: int = 0  # as in Rope: a token stands at its sequence's anchor and does not see itself
    # The first position that tokens see, in attention of one token or a small batch; a token before it sees itself
    # alone. Not with a window.
    first: int = 0
    mutual: bool = False  # of a small batch: a token also sees the later ones of its sequence in the batch

    def __post_init__(self) -> None:
        assert not (self.first and self.window), "kernels differ in what a window leaves visible of `first`"
        assert not (self.mutual and (self.anchor or self.part or self.chunked)), "kernels know one end of what is seen"

    @property
    def window_params(self) -> dict[str, int | str]:
        """The #params that say which positions a token sees."""
        chunked: dict[str, int | str] = {"CHUNKED": 1} if self.window and self.chunked else {}
        anchor: dict[str, int | str] = {"ANCHOR": self.anchor} if self.anchor else {}
        first: dict[str, int | str] = {"FROM": self.first} if self.first else {}
        mutual: dict[str, int | str] = {"MUTUAL": 1} if self.mutual else {}
        return {"WINDOW": self.window} | chunked | anchor | first | mutual | (self.part.params if self.part else {})

    @property
    def mask_params(self) -> dict[str, int]:
        """The #params of a mask of positions."""
        return {"INDEXED": self.index_mask.shape[1]} if self.index_mask else {}

    @property
    def mask_bindings(self) -> dict[str, Buffer]:
        """The bindings of a mask of positions."""
        return {"index_mask": self.index_mask} if self.index_mask else {}


@dataclass(frozen=True)
class Expanded:
    """Keys and values that were made of a cache of latents, for the heads from `head0` on (plan/latent_attention.py).

    `rows` (positions, heads, nope + value): the first `nope` dimensions of a key, then a value. The cache's rows, of
    `row` columns, begin with the rest of the key.
    """

    rows: Buffer
    nope: int
    value: int
    row: int
    head0: int


@dataclass(frozen=True)
class Call:
    """Attention of queries `q` over a cache, into `y` (n, n_head * dimensions of a value)."""

    q: Buffer
    cache: Cache
    y: Buffer
    heads: tuple[int, int, int]  # (n_head, n_head_kv, head_dim)
    options: AttentionOptions

    expanded: Expanded | None = None
    share: int = 1  # workgroups that share a key/value head, where the heads of its group are too many for one

    @property
    def group(self) -> int:
        """Query heads of a workgroup, which share a key/value head."""
        return self.heads[0] // self.heads[1] // self.share

    @property
    def params(self) -> dict[str, int | float | str]:
        """The #params that all attention kernels have."""
        return {
            "HEAD_DIM": self.heads[2],
            "G": self.group,
            **({"SHARE": self.share} if self.share > 1 else {}),
            **self.options.window_params,
            "SOFT_CAP": float(self.options.soft_cap),
            **self.cache.layout,
        }


def qkv_epilogue(heads: tuple[int, int, int], cache: Cache, rope: Rope) -> Epilogue:
    """What becomes of stacked queries, keys and values. `heads`: (n_head, n_head_kv, head_dim)."""
    n_head, n_head_kv, head_dim = heads
    return Epilogue(
        "qkv",
        {"HEAD_DIM": head_dim} | rope.params | cache.layout,
        {"q_rows": n_head * head_dim, "kv_rows": n_head_kv * head_dim, "rope_scale": rope.scale},
        {"rope_freqs": rope.freqs} | cache.write_bindings,
    )


def rope_append(ops: OpList, rows: Buffer, epilogue: Epilogue, low_rank: Epilogue | None = None) -> None:
    """Rotate stacked q, k and v rows in place; append keys and values to the cache.

    `low_rank`: what adapters add to the rows before (low_rank.py).
    """
    added = {"LOW_RANK": 1, **low_rank.params} if low_rank else {}
    count = int(epilogue.consts["q_rows"] + 2 * epilogue.consts["kv_rows"])
    ops.add(
        "rope_append",
        dict(epilogue.params) | ops.state_params | added,
        dict(epilogue.consts) | {"y_stride": rows.shape[1]} | (dict(low_rank.consts) if low_rank else {}),
        {"state": ops.state, "y": rows} | dict(epilogue.bindings) | (dict(low_rank.bindings) if low_rank else {}),
        -(-count // (4 * THREADS)),
        PerToken(),
    )


def norm_rope_append(ops: OpList, rows: Buffer, q: Buffer, norm: HeadNorm, eps: float, epilogue: Epilogue) -> None:
    """Normalise and rotate stacked q, k and v rows: queries into `q`, keys and values into the cache."""
    head_dim = int(epilogue.params["HEAD_DIM"])
    heads = int(epilogue.consts["q_rows"] + 2 * epilogue.consts["kv_rows"]) // head_dim
    threads = 16
    while 4 * threads < head_dim:
        threads *= 2
    several = 1  # heads of a workgroup
    if norm.across_heads:  # each workgroup adds the squares of all heads
        if not ops.small_batch:  # tokens are enough workgroups
            several = gcd(int(epilogue.consts["q_rows"]), int(epilogue.consts["kv_rows"])) // head_dim
        while 2 * threads <= ops.device.max_threads and ACROSS * threads < epilogue.consts["q_rows"]:
            threads *= 2
    flags = {
        "ACROSS_HEADS": int(norm.across_heads),
        "PER_HEAD": SINGLE if norm.single else int(norm.cols > 2 * head_dim),
        "MEAN": int(norm.layer_norm),
        "NORM_VALUES": int(norm.norm_values),
        "BIAS": int(norm.bias is not None),
        "AFTER": int(norm.after_rotation and not norm.single),  # a single weight commutes with the rotation
    } | ({"ALONE": ALONE[norm.alone]} if norm.alone else {})
    flags |= {"HEADS_EACH": several} if several > 1 else {}
    eps, consts = norm.eps or eps, dict(epilogue.consts)
    if norm.after_rotation:  # the norm undoes the scale of the rotation, but for its eps
        eps, consts["rope_scale"] = eps / consts["rope_scale"] ** 2, 1.0
    ops.add(
        "norm_rope_append",
        dict(epilogue.params) | ops.state_params | {"WG": threads} | flags,
        consts | {"x_stride": rows.shape[1], "y_stride": q.shape[1], "eps": eps},
        {"state": ops.state, "x": rows, "norm": norm.weight, "y": q}
        | dict(epilogue.bindings)
        | ({"bias": norm.bias} if norm.bias else {}),
        heads // several,
        PerToken(),
    )


@dataclass(frozen=True)
class Temperature:
    """A factor of queries that grows with their position: 1 + scale * log(1 + floor((position + first) / length))."""

    length: int
    scale: float
    first: int = 0


def scale_queries(ops: OpList, q: Buffer, cols: int, temperature: Temperature) -> None:
    """Multiply the first `cols` columns of q by the temperature of each token's position."""
    ops.add(
        "scale_queries",
        {"COLS": cols} | ops.state_params,
        {"scale": temperature.scale, "length": temperature.length, "first": temperature.first, "stride": q.shape[1]},
        {"state": ops.state, "y": q},
        -(-cols // THREADS),
        PerToken(),
    )


def quantize_cache(ops: OpList, cache: Cache, cols: int) -> None:
    """Quantize the batch's staged keys and values, of `cols` values a row, into their q8_0 cache."""
    ops.add(
        "kv_quantize",
        {"COLS": cols} | cache.paging | ops.state_params,
        {"groups": cols // GROUP},
        {"state": ops.state} | cache.staged_bindings | cache.read_bindings,
        -(-2 * cols // GROUP // THREADS),
        PerToken(),
    )


def prefill(ops: OpList, call: Call) -> None:
    """Attention of many tokens of one sequence, in tiles of tokens x positions."""
    assert not call.options.first, "the kernels for batches see all positions"
    assert not call.options.mutual, "the kernels for batches hide later positions"
    _, n_head_kv, head_dim = call.heads
    causal, sinks, slopes, relative = (getattr(call.options, n) for n in ("causal", "sinks", "slopes", "relative"))
    expanded, value = call.expanded, call.expanded.value if call.expanded else head_dim
    plain = slopes is None and relative is None and call.options.index_mask is None
    heads = tiles.AttentionHeads(head_dim, call.group, value, ops.plan.page)
    kernel, tile = tiles.attention(ops.device, ops.batch, heads, matrix=plain)
    if kernel == "attention" and ops.precise:
        tile = attention_tiles.attention(ops.device, head_dim, value, call.group, ops.plan.page, precise=True)
    if kernel == "attention_matrix":
        tile |= {"VDIM": -(-value // tile["SIDE"]) * tile["SIDE"]}
    mask = {"CAUSAL": int(causal), "WHOLE_MEDIA": int(call.options.whole_media)} | (
        {"ALIBI": int(slopes is not None)} if kernel == "attention" else {}
    )
    ops.add(
        kernel,
        call.params
        | tile
        | {"VALUE_DIM": value}
        | ({"NOPE": expanded.nope, "ROW": expanded.row} if expanded else {})
        | {"SINKS": int(sinks is not None), "Y16": int(call.y.dtype == "f16"), "Q16": int(call.q.dtype == "f16")}
        | ({"RELATIVE": relative.kind} if relative else {})
        | call.options.mask_params
        | mask,
        {"scale": call.options.scale, "q_stride": call.q.shape[1], "y_stride": call.y.shape[1]}
        | {"n_head_kv": n_head_kv, "head0": expanded.head0 if expanded else 0},
        {"state": ops.state, "q": call.q, "y": call.y}
        | ({"k_cache": call.cache.k, "expanded": expanded.rows} if expanded else call.cache.read_bindings)
        | ({"sinks": sinks} if sinks else {})
        | ({"slopes": slopes} if slopes else {})
        | (relative.bindings if relative else {})
        | call.options.mask_bindings,
        n_head_kv * call.share,
        PerToken(tile["TQ"]),
    )


@dataclass(frozen=True)
class RelativeHeads:
    """The heads of attention to the last `window` rows, with a key for each distance. Queries and keys are scaled."""

    count: int
    head_dim: int
    window: int
    soft_cap: float
    q_scale: float
    k_scale: float


def relative(ops: OpList, x: Buffer, keys: Buffer, factor: Weight, heads: RelativeHeads) -> Buffer:
    """Attention of rows of queries, keys and values: (n, heads * head_dim).

    `keys` (window, heads * head_dim) of the distances; `factor` (head_dim) of the queries.
    """
    y = ops.rows("attn", heads.count * heads.head_dim, ops.input_dtype)
    params = {"HEADS": heads.count, "HEAD_DIM": heads.head_dim, "WINDOW": heads.window}
    strides = {"x_stride": x.shape[1], "relative_stride": keys.shape[1], "y_stride": y.shape[1]}
    ops.add(
        "relative_attention",
        params | {"SOFT_CAP": heads.soft_cap, "Y16": int(y.dtype == "f16")},
        {"q_scale": heads.q_scale, "k_scale": heads.k_scale} | strides,
        {"state": ops.state, "x": x, "relative": keys, "factor": factor, "y": y},
        PerToken(THREADS),
        heads.count,
    )
    return y


RELATIVE_ROWS = 4  # queries of a workgroup of relative_attention_all.wgsl


@dataclass(frozen=True)
class HeadsOfBlocks:
    """Heads of attention within blocks of rows: `block` of them see each other, a multiple of RELATIVE_ROWS; 0: all do.

    `scale`: of their scores.
    """

    count: int
    dim: int
    scale: float
    block: int = 0


def relative_to_all(ops: OpList, x: Buffer, keys: Buffer, biases: Weight | Buffer, heads: HeadsOfBlocks) -> Buffer:
    """Attention of rows of queries, keys and values to all rows: (n, heads * head_dim).

    `keys` (2 block - 1, heads * head_dim): of the distances block - 1 to -(block - 1). `biases` (2 * heads * head_dim):
    added to queries, the first half for products with the rows' keys, the second for those with the distances' keys.
    """
    y = ops.rows("attn", heads.count * heads.dim, ops.input_dtype)
    ops.add(
        "relative_attention_all",
        {"HEADS": heads.count, "HEAD_DIM": heads.dim, "BLOCK": heads.block, "ROWS": RELATIVE_ROWS, "WG": THREADS}
        | {"Y16": int(y.dtype == "f16")},
        {"scale": heads.scale, "x_stride": x.shape[1], "relative_stride": keys.shape[1], "y_stride": y.shape[1]},
        {"state": ops.state, "x": x, "relative": keys, "biases": biases, "y": y},
        PerToken(RELATIVE_ROWS),
        heads.count,
    )
    return y
