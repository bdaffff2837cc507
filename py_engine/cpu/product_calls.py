"""Products with matrices, and the ops of mixtures of experts."""

from __future__ import annotations

from collections.abc import Mapping

from py_engine.cpu.attention_calls import rope
from py_engine.cpu.call_layouts import ACTIVATIONS, GATINGS
from py_engine.cpu.calls import NO_SCALES, Calls, Prepared, limits_of, matrix_of, state_of, stride_of
from py_engine.plan.plan import Buffer, Op, Weight

NEVER = (1 << 31) - 1  # No second or third matrix: beyond every row.


def _beside(m: Calls, op: Op, last: int) -> None:
    """h = x A^T, which a product's dispatch computes beside it (plan/low_rank_input.py)."""
    w = op.bindings["lora_a"]
    assert isinstance(w, Weight)
    x = m.prepare(op, w, last=last)
    m.add(
        "product", state=m.address(op, "state"), last=last, exact=x.exact, x=x.address, x_row=x.row,
        w=m.memory.of(w), type=w.type, rows=w.rows, cols=w.cols, row0=0, factor=0.0, bias=0, **NO_SCALES,
        y=m.address(op, "h"), y_stride=op.params["H_STRIDE"],
    )  # fmt: skip


def _product(m: Calls, op: Op, *, last: int) -> None:
    if op.params.get("BESIDE"):
        _beside(m, op, last)
    w, epilogue = matrix_of(op), op.params["EPILOGUE"]
    x = m.prepare(op, w, last=last)
    fused = epilogue in ("qkv", "activate", "gated", "gate")
    y, stride = (m.memory.rows, w.rows) if fused else (m.address(op, "y"), int(op.consts["y_stride"]))
    factor = op.params.get("FACTOR") or 1.0 if epilogue == "add" else 0.0
    m.add(
        "product", state=m.address(op, "state"), last=last, exact=x.exact, x=x.address, x_row=x.row,
        w=m.memory.of(w), type=w.type, rows=w.rows, cols=w.cols, row0=op.consts["row0"], factor=factor,
        bias=m.address(op, "bias") if op.params["BIAS"] else 0, **_scales(m, op), y=y, y_stride=stride,
    )  # fmt: skip
    if epilogue == "qkv":
        rope(m, op, y, stride)
    if epilogue == "gated":
        _fused_activation(m, op, y, w.rows // 2, 1)
    if epilogue == "activate":
        _fused_activation(m, op, y, w.rows, 1, gated=False)
    if epilogue == "gate":
        m.add(
            "gate", state=m.address(op, "state"), activation=ACTIVATIONS[str(op.params["ACTIVATION"])], cols=w.rows,
            span=1, x=y, x_stride=stride, x_first=0, up=m.address(op, "up"), up_stride=op.consts["up_stride"],
            first=op.consts["up_first"], y=m.address(op, "y"), y_stride=op.consts["y_stride"],
        )  # fmt: skip
    m.drop_prepared(m.address(op, "y"))


def _scales(m: Calls, op: Op) -> dict[str, int]:
    """The fields of the scales of stacked matrices."""
    if not op.params.get("SCALES"):
        return NO_SCALES
    rows = {f"scale_row_{i}": int(op.params.get(f"SCALE_ROW_{i}", NEVER)) for i in (1, 2)}
    return {"scales": m.address(op, "scales") + int(op.params["SCALE_FIRST"]), **rows}


def _fused_activation(m: Calls, op: Op, rows: int, cols: int, repeat: int, *, gated: bool = True) -> None:
    m.add(
        "activate", state=m.address(op, "state"), repeat=repeat, activation=ACTIVATIONS[str(op.params["ACTIVATION"])],
        **limits_of(op), gated=int(gated), cols=cols, factors=0, x=rows, x_stride=cols << gated,
        y=m.address(op, "y") + int(op.consts["row0"]), y_stride=op.consts["y_stride"],
    )  # fmt: skip


def matvec(m: Calls, op: Op) -> None:
    _product(m, op, last=1)


def matvec_small_batch(m: Calls, op: Op) -> None:
    _product(m, op, last=0)


def matmul(m: Calls, op: Op) -> None:
    if not op.params["GROUPED"]:
        _product(m, op, last=0)
        return
    per_slot, tiles = int(op.params["X_PER_SLOT"]), op.bindings["tiles"]
    assert isinstance(tiles, Buffer)
    x = m.prepare(op, matrix_of(op), repeat=int(op.params["USED"]) if per_slot else 1)
    _experts_product(
        m, op, x, m.address(op, "y"), stride_of(op, "y"),
        {"chosen": 0, "tiles": m.address(op, "tiles"), "tile_count": tiles.shape[0], "slots": m.address(op, "slots"),
         "per_slot": per_slot},
    )  # fmt: skip


def _experts_product(m: Calls, op: Op, x: Prepared, y: int, stride: int, groups: Mapping[str, int]) -> None:
    w = matrix_of(op)
    m.add(
        "expert_product", state=m.address(op, "state"), exact=x.exact, x=x.address, x_row=x.row, w=m.memory.of(w),
        type=w.type, rows=op.params["ROWS"], cols=w.cols, experts=op.params["EXPERTS"], stack=op.params["STACK"],
        used=op.params["USED"], row0=0 if y == m.memory.rows else op.consts["row0"],
        bias=m.address(op, "bias") if op.params["BIAS"] else 0,
        scales=m.address(op, "scales") if op.params.get("SCALES") else 0, y=y, y_stride=stride, **groups,
    )  # fmt: skip


def experts(m: Calls, op: Op) -> None:
    used, rows, stack = (int(op.params[name]) for name in ("USED", "ROWS", "STACK"))
    sums, epilogue = int(op.params["SUM"]), op.params["EPILOGUE"]
    x = m.prepare(op, matrix_of(op), repeat=used if sums else 1)
    fused = epilogue in ("add", "gated")
    y, stride = (m.memory.rows, stack * rows) if fused else (m.address(op, "y"), int(op.consts["y_stride"]))
    groups = {"chosen": m.address(op, "chosen"), "tiles": 0, "tile_count": 0, "slots": 0, "per_slot": sums}
    _experts_product(m, op, x, y, stride, groups)
    if epilogue == "gated":
        _fused_activation(m, op, y, rows, used)
    if epilogue == "add":
        m.add(
            "weighted_sum", state=m.address(op, "state"), used=used, cols=stack * rows, x=y, x_stride=stride,
            weights=m.address(op, "weights"), y=m.address(op, "y") + int(op.consts["row0"]),
            stride=op.consts["y_stride"],
        )  # fmt: skip
    m.drop_prepared(m.address(op, "y"))


def _heads_product(m: Calls, op: Op, transposed: int) -> None:
    w, names = matrix_of(op), ("w_first", "w_head", "x_stride", "x_first", "x_head", "y_stride", "y_first", "y_head")
    m.add(
        "head_products", state=m.address(op, "state"), transposed=transposed, heads=op.params["HEADS"],
        w=m.memory.of(w), type=w.type, rows=op.params["ROWS"], cols=op.params["COLS"], x=m.address(op, "x"),
        y=m.address(op, "y"), **{name: op.consts[name] for name in names},
    )  # fmt: skip
    m.drop_prepared(m.address(op, "y"))


def head_products(m: Calls, op: Op) -> None:
    _heads_product(m, op, 0)


def head_products_transposed(m: Calls, op: Op) -> None:
    _heads_product(m, op, 1)


def route(m: Calls, op: Op) -> None:
    m.add(
        "route", state=state_of(m, op), per_token=int(op.params.get("STATE_PER_TOKEN", 0)),
        experts=op.params["EXPERTS"], used=op.params["USED"],
        normalised=op.params["NORMALISED"], gating=GATINGS[str(op.params["GATING"])], scale=op.consts["scale"],
        groups=op.params.get("GROUPS", 0), groups_used=op.params.get("GROUPS_USED", 0),
        sharing=op.params.get("SHARING", 1),
        logits=m.address(op, "logits"), stride=op.consts["stride"], bias=m.address(op, "bias"),
        factors=m.address(op, "factors"), table=m.address(op, "table"), table_stride=op.params["USED"],
        table_rows=op.consts.get("rows", 0), tokens=m.address(op, "tokens"),
        tokens_stride=op.params.get("TOKENS", 0), chosen=m.address(op, "chosen"), weights=m.address(op, "weights"),
    )  # fmt: skip


def group_experts(m: Calls, op: Op) -> None:
    tiles = op.bindings["tiles"]
    assert isinstance(tiles, Buffer)
    m.add(
        "group_experts", state=state_of(m, op), experts=op.params["EXPERTS"], used=op.params["USED"],
        size=op.params["TM"], chosen=m.address(op, "chosen"), slots=m.address(op, "slots"),
        tiles=m.address(op, "tiles"), tile_count=tiles.shape[0],
    )  # fmt: skip


def weighted_sum(m: Calls, op: Op) -> None:
    m.add(
        "weighted_sum", state=state_of(m, op), used=op.params["USED"], cols=4 * int(op.params["VECS"]),
        x=m.address(op, "x"), x_stride=stride_of(op, "x"), weights=m.address(op, "weights"), y=m.address(op, "y"),
        stride=stride_of(op, "y"),
    )  # fmt: skip


CALLS = (
    matvec, matvec_small_batch, matmul, head_products, head_products_transposed, experts, route, group_experts,
    weighted_sum,
)  # fmt: skip
