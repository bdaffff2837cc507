"""Encoders of images and sound in the browser, against llama.cpp's: WebGPU with and without f16, and the CPU.

tests/unit/test_encoders.py runs every golden with numpy.
"""

import base64
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from py_engine.media.kinds import WHISPER
from py_engine.media.prepared import FramePair, Stacked
from tests.support.browser import call_python
from tests.support.encoders import LIMITS, distance, media_of
from tests.support.engine_driver import floats
from tests.support.golden_ops import encoder_representatives
from tests.support.media import NAMES, VISION, golden, picture, video_frames
from tests.support.qwen_reference import Reference
from tools.selection import everything

WAYS: dict[str, tuple[str, dict[str, Any]]] = {  # name -> (precision, options of the load)
    "f16": ("f16", {"backend": "webgpu", "prove": True}),
    "f32": ("f32", {"backend": "webgpu", "variant": {"f16": False}, "tune": True}),
    "cpu": ("f32", {"backend": "cpu"}),
}
# Whisper's encoder reads 30 s of any sound, which takes a software GPU 20 s: one case of one type. The ops of the
# others are all in other goldens, or in tests/kernels.
SLOW = {"deepseekocr", "deepseekocr2"}  # the first picture takes half a minute, others longer
ALL = everything()
SKIPPED = set() if ALL else {*WHISPER, *SLOW} - {"ultravox"}
# On lavapipe, a selection that covers every pair of a kernel's switches and tensor types in all goldens but the slow
# ones (golden_ops.py). What only the slow ones have, such as grid_heads, runs in tests/kernels and on the CPU engine:
# tests/unit/test_encoders.py compares the plans of all with llama.cpp, and tests/unit/test_cpu_encoders.py runs the CPU
# engine on all. What f16 changes is the same for all types.
PROJECTORS = {name: VISION / golden(name).about["mmproj"] for name in NAMES if name not in SKIPPED}
SOME = {
    "f16": {*NAMES} if ALL else encoder_representatives(PROJECTORS),
    "f32": {"internvl", "lfm2a", "qwen2.5vl", "qwen3a"},
    "cpu": {"internvl", "lfm2a"},
}
CASES = [(name, way) for name in NAMES for way in WAYS if name in SOME[way] - SKIPPED]
MOST = 2  # cases of a golden, the first ones of each kind
EXACT = 1e-4  # of embeddings' root mean square: what float32 rounds


@pytest.mark.lavapipe
@pytest.mark.parametrize(("name", "way"), CASES)
def test_embeddings_are_llama_cpps(engine_pages: Callable[[str | None], Page], name: str, way: str) -> None:
    model, (precision, options) = golden(name), WAYS[way]
    asked = []
    for modality in ("image", "audio"):
        pairs = [(case, media_of(model, case, modality)) for case in model.cases]
        asked += [(modality, *pair) for pair in pairs if pair[1]][: 1 if name in WHISPER else MOST]
    if name in SLOW:
        asked = [(modality, case, found[:1]) for modality, case, found in asked[:1]]
    given = [[_given(x, modality) for _, x in found] for modality, _, found in asked]
    out = call_python(
        engine_pages("cpu" if way == "cpu" else "lavapipe"),
        "encoders.encode",
        url=f"/repo/tests/golden/vision/{model.about['mmproj']}",
        options=options,
        requests=given,
    )
    assert out["backend"] == options["backend"]
    if options.get("prove"):
        assert not out["proof"]["wrong"]
        assert not out["proof"]["skipped"]
    for (_, case, found), rows in zip(asked, out["found"], strict=True):
        for (index, _), row in zip(found, rows, strict=True):
            assert distance(model, case, index, floats(row["data"], row["shape"])) <= LIMITS[precision]


@pytest.mark.lavapipe
@pytest.mark.parametrize("way", ["f32", "cpu"])
def test_embeddings_of_two_frames_are_those_of_the_models_definition(
    engine_pages: Callable[[str | None], Page], way: str
) -> None:
    """In one batch with a still picture, which is both frames. The reference computes in float64."""
    reference, options = Reference(), WAYS[way][1]
    frames = []
    for frame in video_frames()[:2]:
        (piece,) = picture(reference.vision, frame).pieces
        frames.append(np.frombuffer(piece.pixels, np.uint8).reshape(piece.shape))
    out = call_python(
        engine_pages("cpu" if way == "cpu" else "lavapipe"),
        "encoders.encode",
        url="/repo/tests/golden/vision/qwen2vl.mmproj.gguf",
        options=options,
        requests=[[_given(FramePair(np.concatenate(frames)), "image"), _given(frames[1], "image")]],
    )
    assert out["backend"] == options["backend"]
    for row, pair in zip(out["found"][0], (frames, frames[1:] * 2), strict=True):
        wanted = reference.encode(*pair)
        assert np.abs(floats(row["data"], row["shape"]) - wanted).max() <= EXACT * np.sqrt((wanted**2).mean())


def _given(values: Any, modality: str) -> dict[str, Any]:
    if isinstance(values, FramePair):
        return _given(values.pixels, modality) | {"pair": True}
    if isinstance(values, Stacked):
        return _given(values.pixels, modality) | {"shown": astuple(values.shown)}
    data = base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
    return {"modality": modality, "dtype": str(values.dtype), "shape": list(values.shape), "data": data}
