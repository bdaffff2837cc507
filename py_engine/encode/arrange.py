"""Inputs of an encoder in batches that are computed together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from py_engine.encode import convnext, deepseek_ocr, granite_vision, mobilenet, pictures, sam_clip, sound
from py_engine.encode.batch import EncoderBatch
from py_engine.models.projectors.tower import Tower
from py_engine.plan.encoder import EncoderPlan

ONE_BY_ONE: dict[str, Callable[[Tower, EncoderPlan, Any], EncoderBatch]] = {  # whose pictures are encoded alone
    "gemma3nv": mobilenet.arrange,
    "yasa2": convnext.arrange,
    "deepseekocr": sam_clip.arrange,
    "deepseekocr2": deepseek_ocr.arrange,
    "granite4_vision": granite_vision.arrange,
}


def parts(tower: Tower, given: Any) -> tuple[list[Any], list[sam_clip.Span]]:
    """The parts of an input that are encoded one by one, and which rows of their results are the input's: all if none.

    A span of rows is (part, first row, rows).
    """
    return sam_clip.parts(given) if tower.kind == "deepseekocr" else ([given], [])


def batches(tower: Tower, plan: EncoderPlan, inputs: Sequence[Any]) -> Iterator[EncoderBatch]:
    """The batches of inputs, in order. A picture is uint8 (height, width, 3), Stacked or FramePair; sound is float32
    (mel bins, frames).
    """
    if tower.modality == "audio":
        for mel in inputs:
            yield sound.arrange(tower, plan, mel)
        return
    if tower.kind in ONE_BY_ONE:
        for picture in inputs:
            yield ONE_BY_ONE[tower.kind](tower, plan, picture)
        return
    for group in pictures.groups(tower, plan, list(inputs)):
        yield pictures.arrange(tower, plan, group)
