"""Scales beside matrices: NAME.scale has a factor for all products of NAME.weight, or one for each expert's.

NVFP4 files have them, because the scales in the blocks have eight bits. A kernel multiplies its sums with them.
"""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.files.draft_header import DRAFT, described, field_of
from py_engine.plan.plan import Weight

MAX_STACKED = 3  # matrices with scales of their own in one weight: lib/matrix_scale.wgsl


def scale_of(tensor: str) -> str:
    """The name of the scale beside a tensor."""
    return tensor.removesuffix("weight") + "scale"


def unsupported_scale(tensor: str) -> WispError:
    """The error for a tensor whose scale no kernel applies."""
    return WispError(
        f"{described(tensor)} has a scale of its own ({scale_of(tensor).removeprefix(DRAFT)}), which Wisp cannot apply "
        "there yet. Use a file in another quantisation.",
        "unsupported_quantization",
        param=field_of(tensor),
    )


def params(weight: Weight) -> dict[str, int]:
    """The #params of lib/matrix_scale.wgsl for a weight, or a part of one; {} if it has no scales."""
    if weight.scales is None:
        return {}
    names = [name for name, _, _ in weight.scales.sources]
    found, first, row = dict[str, int](), 0, 0
    for tensor, _, rows in weight.sources:
        at = names.index(scale_of(tensor))
        if row == 0:
            first, found = at, {"SCALES": 1, "SCALE_FIRST": at}
        elif at == first + found["SCALES"]:
            found |= {"SCALES": found["SCALES"] + 1, f"SCALE_ROW_{found['SCALES']}": row}
        row += rows
    return found


def expert_params(weight: Weight) -> dict[str, int]:
    """The #params for a weight with a scale for each expert; {} if it has none."""
    return {"SCALES": 1, "SCALE_FIRST": 0} if weight.scales else {}


def bindings(weight: Weight) -> dict[str, Weight]:
    """The binding of a weight's scales, if it has any."""
    return {"scales": weight.scales} if weight.scales else {}
