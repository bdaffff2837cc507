"""Pictures of many sizes as every type of projector takes them, against llama.cpp's pixels and counts."""

import json
from typing import Any

import pytest

from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.tensor_types import TensorType
from py_engine.media.pieces import pieces
from py_engine.media.projector import Projector
from py_engine.media.recipe import recipe
from tests.support.drawn_pictures import drawn
from tests.support.media import MEDIA, follow, sha256

CASES = [case for name in ("sizes", "more_sizes") for case in json.loads((MEDIA / f"{name}.json").read_text())]


def projector(case: dict[str, Any]) -> Projector:
    name, shape = case["output"]
    shapes = {name: tuple(shape)} | ({"v.token_embd.img_break": (64,)} if case["img_break"] else {})
    f32 = TensorType.F32
    tensors = {key: TensorInfo(key, shape, f32, 0, 0) for key, shape in shapes.items()}
    return Projector.from_gguf(Header(3, case["metadata"], tensors, 32, 0, None))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["metadata"].get("clip.projector_type", "gemma4v"))
def test_pieces_are_llama_cpps(case: dict[str, Any]) -> None:
    """Each piece: tokens, width, height, and the beginning of its SHA-256, as far as the case has them."""
    vision = projector(case).need_vision()
    for wanted in case["pictures"]:
        size = tuple(wanted["size"])
        plan = recipe(vision, size)
        length = len(wanted["pieces"][0])
        parts = [b""] * len(plan.cuts)
        if length > 3:
            parts = [part.tobytes() for part in follow(plan, drawn(*size))]
        found = pieces(vision, plan, parts, [None] * len(parts))
        about = [[piece.n_tokens, *piece.size, sha256(piece.pixels)[:16]] for piece in found]
        assert [piece[:length] for piece in about] == wanted["pieces"], size
