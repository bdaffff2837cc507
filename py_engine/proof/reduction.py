"""An op on fewer rows and heads, with the same #params: the same pipeline on little data.

A matrix has the rows of one workgroup and a few more, so that the last workgroup is not full; attention gets two
key/value heads. Experts stay as they are: their #params fix all sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from py_engine.plan.cache import GROUP
from py_engine.plan.op_list import pad
from py_engine.plan.plan import Op, PerToken, Weight
from py_engine.plan.shared_constants import THREADS

MORE = 3  # rows or tokens beyond a full workgroup
ROW0 = 7  # the first row of a part of a matrix
EMBEDDED_ROWS = 67  # of a table
# kernels that read single rows of a table: (kernel, the constant with its rows, its binding)
TABLES = (("nearest_code", "codes", "w"), ("route", "rows", "table"), ("pick_rows", "rows", "x"))
HEADS = 2
PRODUCTS = ("matvec", "matvec_small_batch", "matmul", "matmul_int8", "matmul_matrix")
ATTENTIONS = ("attention", "attention_matrix")


@dataclass(frozen=True)
class Reduced:
    """An op, and what its buffers and weights become: `widths` of their rows, `rows` of weights, by binding."""

    op: Op
    widths: dict[str, tuple[int, ...]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)


def reduced(op: Op, head_count: int = HEADS) -> Reduced:
    """The op on little data. `head_count`: key/value heads at most, of attention."""
    if op.kernel in PRODUCTS and not op.params.get("GROUPED"):
        return _product(op)
    if op.kernel in ATTENTIONS or op.kernel.startswith("attention_"):
        return _attention(op, head_count)
    if op.kernel in ("rope_append", "norm_rope_append"):
        return _rotation(op)
    if op.kernel in ("embed", "embed_ngrams"):
        return _embed(op)
    if op.kernel == "latent_expansion":
        return _expansion(op)
    if op.kernel in ("gather", "matmul_transposed"):
        return _table(op)
    for kernel, const, table in TABLES:
        if op.kernel == kernel and table in op.bindings:
            rows = min(int(op.consts[const]), EMBEDDED_ROWS)
            return Reduced(replace(op, consts={**op.consts, const: rows}), {}, {table: rows})
    return Reduced(op)


def tokens_of(op: Op) -> int:
    """Tokens of a batch that has more than one workgroup of them, where the kernel divides tokens."""
    if op.kernel in PRODUCTS and op.params.get("GROUPED"):  # two experts have more than a tile
        return -(-2 * (int(op.params["TM"]) + MORE) // int(op.params["USED"]))
    if op.kernel in PRODUCTS:
        return int(op.params.get("TM", 2)) + MORE
    if op.kernel in ATTENTIONS:
        return int(op.params["TQ"]) + MORE
    if op.kernel == "add_low_rank":
        return int(op.params["TM"]) + MORE
    if op.kernel == "relative_attention":
        return int(op.params["WINDOW"]) + MORE
    if op.kernel == "relative_attention_all":
        return int(op.params["WG"]) + MORE
    return 11 if op.params.get("PACKED") else 5


def heads_of(op: Op) -> int:
    """Key/value heads to which an attention op can be reduced."""
    if op.params.get("COLS"):  # attention_combine.wgsl stores whole rows of a q8_0 cache
        return int(op.params["COLS"]) // int(op.params["HEAD_DIM"])
    whole_groups = op.params.get("KV") != "q8_0" or HEADS * int(op.params["HEAD_DIM"]) % GROUP == 0
    return HEADS if whole_groups else 1 << 30


def _product(op: Op) -> Reduced:
    row0, second = 0, 0
    each = int(op.params["TN"] if "TN" in op.params else int(op.params["TR"]) * int(op.params["R"]))
    consts, widths = dict(op.consts), dict[str, tuple[int, ...]]()
    match op.params["EPILOGUE"]:
        case "gated":  # matmul_matrix.wgsl stores four columns at once
            rows = each + 8 if "TN" in op.params else (each + 2 * MORE) // 2 * 2
            widths["y"] = (pad(rows // 2),)
        case "qkv":
            size = int(op.params["HEAD_DIM"])
            q, kv = (min(int(op.consts[name]), HEADS * size) for name in ("q_rows", "kv_rows"))
            rows, row0 = q + 2 * kv, 0
            if "rows_2" in op.consts:  # values, or keys and values
                second = kv if op.consts["rows_2"] == op.consts["kv_rows"] else 2 * kv
                rows -= second
            consts |= {"q_rows": q, "kv_rows": kv}
            widths |= {"y": (pad(max(1, q)),)} | dict.fromkeys(("k_cache", "v_cache"), (kv,))
        case "activate":  # four columns, as "gated"
            rows = each + 4
            widths["y"] = (pad(rows),)
        case "split":
            rows, kv = each + 4, 8
            consts |= {"q_rows": rows - 2 * kv, "kv_rows": kv}
            widths |= {"y": (pad(rows - 2 * kv),)} | dict.fromkeys(("k_cache", "v_cache"), (kv,))
        case _:
            rows, row0 = each + MORE, ROW0
            if "rows_2" in op.consts:
                second = int(op.params["TR_2"]) * int(op.params["R_2"]) + MORE
            widths["y"] = (pad(row0 + rows + second + 1),)
            consts |= {"up_first": 0} if "up_first" in consts else {}
    consts |= {"rows": rows, "row0": row0, "y_stride": widths["y"][-1]} | ({"rows_2": second} if second else {})
    tokens, workgroups = int(op.params.get("TOKENS", 1)), -(-rows // each)
    if second:
        workgroups += -(-second // (int(op.params["TR_2"]) * int(op.params["R_2"])))
    workgroups += tokens * (int(op.params.get("BESIDE", 0)) + int(op.params.get("LOW_RANK", 0)))
    lines = op.grid[1] if "TN" in op.params else 1
    grid = (PerToken(tokens), workgroups, 1) if "TOKENS" in op.params else (workgroups, lines, 1)
    widths |= {"bias": (row0 + rows + second,), "added": widths["y"]}
    return Reduced(replace(op, consts=consts, grid=grid), widths, {"w": rows, "w_qs": rows, "w_2": second})


def _expansion(op: Op) -> Reduced:
    step, first = int(op.consts["w_head"]), int(op.consts["w_first"]) % int(op.consts["w_head"])
    heads = min(HEADS, int(op.consts["heads"]))
    consts: dict[str, int | float] = {"heads": heads, "w_first": first, "w_head": step}
    rows = heads * (int(op.params["NOPE"]) + int(op.params["VALUE"]))
    return Reduced(replace(op, consts=consts, grid=(op.grid[0], heads, 1)), {}, {"w": heads * step, "y": rows})


def _attention(op: Op, most: int) -> Reduced:
    consts, widths = dict(op.consts), dict[str, tuple[int, ...]]()
    if op.kernel == "attention_merge":
        value = int(op.params["VALUE_DIM"])
        heads = min(int(consts["heads"]), most)
        consts |= {"heads": heads, "y_first": 0, "y_stride": pad(heads * value)}
        widths |= {"y": (pad(heads * value),), "sums": (heads * (value + 2),), "sinks": (heads,)}
        return Reduced(replace(op, consts=consts, grid=(-(-heads * value // THREADS), *op.grid[1:])), widths)
    size = int(op.params["HEAD_DIM"])
    if op.kernel == "attention_combine":
        heads = min(int(consts["n_head"]), most)
        extra = int(op.grid[0]) - int(consts["n_head"]) if not isinstance(op.grid[0], PerToken) else 0
        consts |= {"n_head": heads, "y_stride": pad(heads * size)}
        widths |= {"y": (pad(heads * size),), "parts": (heads, int(op.params["SPLIT"]), size + 4), "sinks": (heads,)}
        return Reduced(replace(op, consts=consts, grid=(heads + extra, *op.grid[1:])), widths)
    share = int(op.params.get("SHARE", 1))
    group, kv_heads = share * int(op.params["G"]), min(int(consts["n_head_kv"]), most)
    heads, cols = group * kv_heads, kv_heads * size
    cache = cols // 4 + cols // GROUP if op.params["KV"] == "q8_0" else cols
    consts |= {"n_head_kv": kv_heads}
    if op.params.get("NORMS"):
        consts |= {"q_rows": heads * size, "kv_rows": cols if consts["kv_rows"] else 0}
        widths["x"] = (pad(heads * size + 2 * cols),)
    else:
        consts["q_stride"] = pad(heads * size) + GROUP
    widths |= {"q": (pad(heads * size) + GROUP,), "y": (pad(heads * size),), "sinks": (heads,)}
    widths |= dict.fromkeys(("k_cache", "v_cache"), (cache,)) | dict.fromkeys(("k_new", "v_new"), (cols,))
    widths |= {"parts": (heads, int(op.params.get("SPLIT", 1)), size + 4)}
    if op.kernel in ATTENTIONS:
        value = int(op.params["VALUE_DIM"])
        consts |= {"y_stride": pad(heads * value), "head0": 0}
        widths |= {"y": (pad(heads * value),), "sums": (heads * (value + 2),)}
        if nope := int(op.params.get("NOPE", 0)):
            widths |= {"k_cache": (int(op.params["ROW"]),), "expanded": (heads * (nope + value),)}
    return Reduced(replace(op, consts=consts, grid=(share * kv_heads, *op.grid[1:])), widths)


def _rotation(op: Op) -> Reduced:
    """Stacked queries, keys and values with fewer heads, where each head is on its own."""
    if any(op.params.get(name) for name in ("ADDED", "LOW_RANK", "ACROSS_HEADS", "PER_HEAD")):
        return Reduced(op)
    size = int(op.params["HEAD_DIM"])
    q, kv = (min(int(op.consts[name]), HEADS * size) for name in ("q_rows", "kv_rows"))
    rows = q + 2 * kv
    widths: dict[str, tuple[int, ...]] = dict.fromkeys(("k_cache", "v_cache"), (kv,)) if kv else {}
    consts = dict(op.consts) | {"q_rows": q, "kv_rows": kv, "y_stride": pad(max(1, q))}
    if "x_stride" in consts:
        workgroups, consts["x_stride"] = rows // size, pad(rows)
        widths |= {"x": (pad(rows),), "y": (pad(max(1, q)),)}
    else:  # in place
        workgroups, consts["y_stride"] = -(-rows // (4 * THREADS)), pad(rows)
        widths["y"] = (pad(rows),)
    return Reduced(replace(op, consts=consts, grid=(workgroups, *op.grid[1:])), widths)


def _table(op: Op) -> Reduced:
    """An op on few rows of a table, which is a weight, or a buffer that is bound as one."""
    rows = min(int(op.consts["rows"]), EMBEDDED_ROWS)
    consts = dict(op.consts) | {"rows": rows} | ({"row0": ROW0} if "row0" in op.consts else {})
    return Reduced(replace(op, consts=consts), {}, {"w": rows, "w_qs": rows})


def _embed(op: Op) -> Reduced:
    table = op.bindings["w"]
    assert isinstance(table, Weight)
    rows = min(table.rows, EMBEDDED_ROWS)
    consts = dict(op.consts) | {"rows": rows, "row0": 0 if op.params.get("ROW") == "first" else 3}
    return Reduced(replace(op, consts=consts), {}, {"w": rows})
