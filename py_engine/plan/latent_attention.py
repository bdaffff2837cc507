"""Ops of latent attention (MLA, DeepSeek-AI 2024). Shapes as in ops.py.

The cache holds a row for all heads: the rotated key, then the latent, from which each head projects its key and value.

A small batch absorbs the projections: a query is multiplied with its head's key matrix before the scores, and the sum
of latents with its value matrix after them. So scores and sums are over rows of the cache, read once for all heads.
A prompt's batch has enough queries to expand the latents of all positions to keys and values, which are shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.plan import attention, matmul_tiles
from py_engine.plan.attention import AttentionOptions, Expanded
from py_engine.plan.cache import Cache, PageGroup, make_row_cache
from py_engine.plan.op_list import OpList, pad
from py_engine.plan.plan import Buffer, PerToken, Plan, Weight
from py_engine.plan.rope import Rope

WG = 64  # threads of a workgroup
APPENDING_THREADS = 256  # of a workgroup of latent_append.wgsl
EXPANDED_TYPE = "f16"  # of expanded keys and values, and of the matrix that makes them
EXPANDED_BYTES = 128 << 20  # of keys and values at a time, about
TOKENS = 4  # that share a head's rows


@dataclass(frozen=True)
class LatentShape:
    """Dimensions of latent attention. A query head has `nope` dimensions, then `rope` rotated ones."""

    heads: int
    rank: int  # of the latent
    nope: int
    rope: int
    value: int  # dimensions of a value head

    @property
    def row(self) -> int:
        """Columns of the cache, and of a query head after absorption."""
        return self.rope + self.rank


@dataclass(frozen=True)
class HeadMatrices:
    """A matrix (rows, cols) of each of some heads in one weight: from row `first` on, `step` rows apart."""

    heads: int
    weight: Weight
    rows: int
    cols: int
    first: int = 0
    step: int = 0


@dataclass(frozen=True)
class Columns:
    """Columns in rows of a buffer from column `first` on; those of each head are `step` columns apart."""

    buffer: Buffer
    first: int = 0
    step: int = 0


def make_latent_cache(plan: Plan, layer: int, shape: LatentShape, kind: str, group: PageGroup) -> Cache:
    """Create a layer's cache of latents, f32 or f16. `k` and `v` are the same buffer."""
    return make_row_cache(plan, f"latent.{layer}", shape.row, kind, group)


@dataclass(frozen=True)
class Appended:
    """What a token's row of the cache is made of, and the queries that are rotated with it."""

    q: Buffer  # (n, heads * (nope + rope))
    kv: Columns  # (n, rank + rope): the latent, then the key
    norm: Weight  # of the latent
    eps: float  # of this norm
    rope: Rope


def append(ops: OpList, given: Appended, cache: Cache, shape: LatentShape, y: Buffer, *, whole: bool) -> None:
    """Rotate the query heads into y; append the rotated key and the normed latent to the cache.

    y: if `whole`, complete heads, (n, heads * (nope + rope)); else (n, heads * row), where the rest is for the absorbed
    queries. Both may have the same shape.
    """
    q, kv, rope = given.q, given.kv, given.rope
    consts = {"q_stride": q.shape[1], "y_stride": y.shape[1]}
    consts |= {"kv_stride": kv.buffer.shape[1], "kv_first": kv.first}
    rows = {"q": q, "kv": kv.buffer, "y": y, "k_cache": cache.k}
    ops.add(
        "latent_append",
        {
            "HEADS": shape.heads,
            "NOPE": shape.nope,
            "ROPE": shape.rope,
            "RANK": shape.rank,
            "WG": APPENDING_THREADS,
            "WHOLE": int(whole),
            "NEOX": int(rope.pairs),
        }
        | cache.layout
        | ops.state_params,
        consts | {"rope_scale": rope.scale, "eps": given.eps},
        {"state": ops.state, "norm": given.norm, "rope_freqs": rope.freqs} | rows,
        shape.heads + 1,
        PerToken(),
    )


def products(
    ops: OpList, x: Columns, matrices: HeadMatrices, y: Columns, *, transposed: bool = False, attended: bool = True
) -> None:
    """y = every head's matrix times x; `transposed`: its transpose. `attended`: x or y is attention's, in vectors."""
    if matrices.rows % 4 or matrices.first % 4 or matrices.step % 4 or (attended and matrices.cols % 4):
        raise WispError("Heads must be multiples of 4 wide.", "unsupported_architecture")
    groups = -(-matrices.cols // 32)
    params = {"QUANT": matrices.weight.layout.fragment, "ROWS": matrices.rows, "COLS": matrices.cols, "WG": WG}
    params |= {"HEADS": matrices.heads} | (ops.state_params if not transposed else {})
    consts = {
        **{"x_stride": x.buffer.shape[1], "x_first": x.first, "x_head": x.step},
        **{"y_stride": y.buffer.shape[1], "y_first": y.first, "y_head": y.step},
        **{"w_first": matrices.first, "w_head": matrices.step or matrices.rows},
    }
    bindings = {"state": ops.state, "x": x.buffer, "w": matrices.weight, "y": y.buffer}
    if transposed:
        ops.add("head_products_transposed", params, consts, bindings, -(-groups // WG), matrices.heads, PerToken())
        return
    tokens, lanes = 1 if ops.small_batch else TOKENS, 8
    while lanes > groups:
        lanes //= 2
    kinds = {"X16": int(x.buffer.dtype == "f16"), "Y16": int(y.buffer.dtype == "f16")}
    ops.add(
        "head_products",
        params | {"TM": tokens, "TK": lanes} | kinds,
        consts,
        bindings,
        -(-matrices.rows * lanes // WG),
        matrices.heads,
        PerToken(tokens),
    )


def expands(ops: OpList) -> bool:
    """Whether attention expands latents: for batches of prompts, where the device multiplies in f16."""
    return ops.device.f16 and not ops.small_batch


@dataclass(frozen=True)
class Projections:
    """Every head's matrices of keys and of values. `joined`: a key's have a row for each of its dimensions.

    Else, for each of the latent's.
    """

    keys: HeadMatrices
    values: HeadMatrices
    joined: bool


def expanded_attention(
    ops: OpList, q: Buffer, cache: Cache, projections: Projections, shape: LatentShape, options: AttentionOptions
) -> Buffer:
    """Attention of whole query heads over the cache's latents, expanded: (n, heads * value).

    As many heads at a time as EXPANDED_BYTES hold keys and values of the context.
    """
    y = ops.rows("values", shape.heads * shape.value, ops.input_dtype)
    each = shape.nope + shape.value
    count = max(1, min(shape.heads, EXPANDED_BYTES // (2 * each * ops.plan.n_ctx)))
    for head0 in range(0, shape.heads, count):
        heads = min(count, shape.heads - head0)
        rows = _expand(ops, cache, projections, shape, head0, heads)
        expanded = Expanded(rows, shape.nope, shape.value, shape.row, head0)
        dims = heads, heads, shape.nope + shape.rope
        attention.prefill(ops, attention.Call(q, cache, y, dims, options, expanded))
    return y


def _expand(ops: OpList, cache: Cache, projections: Projections, shape: LatentShape, head0: int, heads: int) -> Buffer:
    """The keys (but for what is rotated) and values of all positions: (positions, heads * (nope + value)), f16."""
    cols = heads * (shape.nope + shape.value)
    matrix = ops.buffer(f"{ops.name}.expansion.{cols}", (cols, pad(shape.rank)), EXPANDED_TYPE)
    for values, of in enumerate((projections.keys, projections.values)):
        groups = -(-of.cols // 32)
        transposed = not values and not projections.joined
        step = of.step or of.rows
        ops.add(
            "latent_expansion",
            {"QUANT": of.weight.layout.fragment, "VALUES": values, "TRANSPOSED": int(transposed), "WG": WG}
            | {"NOPE": shape.nope, "VALUE": shape.value, "RANK": shape.rank},
            {"heads": heads, "w_first": of.first + head0 * step, "w_head": step},
            {"w": of.weight, "y": matrix},
            -(-of.rows * groups // WG),
            heads,
        )
    y = ops.buffer(f"{ops.name}.expanded.{cols}", (ops.plan.n_ctx, cols), EXPANDED_TYPE)
    kernel, tile = matmul_tiles.matmul_of_halves(ops.device, ops.batch)
    ops.add(
        kernel,
        {
            "QUANT": EXPANDED_TYPE,
            "COLS": shape.rank,
            "BIAS": 0,
            "GROUPED": 0,
            "EPILOGUE": "store",
            "HALVES": int(ops.device.f16),
        }
        | {"X16": int(cache.kind == "f16"), "CACHED": 1, "ROW": shape.row, "FIRST": shape.rope}
        | cache.paging
        | tile,
        {"rows": cols, "row0": 0, "y_stride": cols},
        {"state": ops.state, "x": cache.k, "w_qs": matrix, "y": y},
        -(-cols // tile["TN"]),
        -(-ops.plan.n_ctx // tile["TM"]),
    )
    return y
