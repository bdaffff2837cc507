"""Two frames of a video as one picture: llama.cpp's chunks and embeddings, and those of the model's definition."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.openai.messages import MARKER
from py_engine.errors import WispError
from py_engine.media.chunks import MediaChunk, TextChunk
from py_engine.media.pieces import paired
from py_engine.media.prepared import FramePair, Picture
from tests.support.encoders import LIMITS, CpuEncoder, array_of
from tests.support.media import GOLDEN, Golden, golden, picture, pixels, video_frames
from tests.support.qwen_reference import Reference

RECORDED = json.loads((GOLDEN / "video" / "pairs.json").read_text())
EXACT = 1e-5  # of the root mean square: float32's rounding


def pictures(model: Golden) -> list[Picture]:
    """Three frames: two as one picture, and the last one alone."""
    vision = model.projector.need_vision()
    first, second, third = (picture(vision, frame) for frame in video_frames())
    return [paired(vision, first, second), third]


def chunks_of(model: Golden) -> list[Any]:
    return model.chunker().chunks(f"Look: {MARKER}{MARKER}\nwhat moves?", pictures(model), MARKER)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda row: row["name"])
def test_a_pair_takes_the_tokens_and_places_of_a_picture(recorded: dict[str, Any]) -> None:
    chunks, wanted = chunks_of(golden(recorded["name"])), recorded["chunks"]
    assert [(chunk.kind, chunk.n_tokens, chunk.n_pos) for chunk in chunks] == [
        (chunk["kind"], chunk["n_tokens"], chunk["n_pos"]) for chunk in wanted
    ]
    for chunk, want in zip(chunks, wanted, strict=True):
        if isinstance(chunk, TextChunk):
            assert chunk.ids == want["ids"]
        else:
            assert [list(place) for place in chunk.positions()] == want["places"]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda row: row["name"])
def test_embeddings_of_a_pair_are_llama_cpps(recorded: dict[str, Any]) -> None:
    """In one batch with a picture, which is encoded as if it were alone."""
    model = golden(recorded["name"])
    encoder = CpuEncoder.of(model)
    given = [array_of(chunk) for chunk in chunks_of(model) if isinstance(chunk, MediaChunk)]
    assert isinstance(given[0], FramePair)
    found = encoder.encode("image", given)
    for rows, want in zip(found, (chunk for chunk in recorded["chunks"] if chunk["kind"] == "image"), strict=True):
        off = np.abs(rows[: len(want["embd"])] - want["embd"]).max(), np.abs(rows.mean(0) - want["mean"]).max()
        assert max(off) <= LIMITS["f32"] * want["rms"]
    (alone,) = encoder.encode("image", given[1:])
    np.testing.assert_allclose(found[1], alone, atol=EXACT * np.sqrt((alone**2).mean()))


def test_embeddings_of_a_pair_are_those_of_the_models_definition() -> None:
    """The reference computes them in float64. Equal frames are a picture; their order counts."""
    model, reference = golden("qwen2vl"), Reference()
    encoder, frames = CpuEncoder.of(model), []
    for frame in video_frames()[:2]:
        (piece,) = picture(reference.vision, frame).pieces
        frames.append(np.frombuffer(piece.pixels, np.uint8).reshape(piece.shape))
    orders = [(0, 1), (1, 0), (0, 0)]
    pairs = [FramePair(np.concatenate([frames[i] for i in order])) for order in orders]
    wanted = [reference.encode(*(frames[i] for i in order)) for order in orders]
    size = float(np.sqrt((wanted[0] ** 2).mean()))
    for rows, want in zip(encoder.encode("image", pairs), wanted, strict=True):
        assert np.abs(rows - want).max() <= EXACT * size
    assert np.abs(wanted[0] - wanted[1]).max() > 0.1 * size
    (still,) = encoder.encode("image", [frames[0]])
    assert np.abs(still - wanted[2]).max() <= EXACT * size


def test_a_pair_has_a_hash_of_its_own() -> None:
    """By which caches know it: of both frames, in their order."""
    model = golden("qwen2vl")
    vision, chunker = model.projector.need_vision(), model.chunker()
    first, second, third = (picture(vision, frame) for frame in video_frames())
    media = [first, paired(vision, first, first), paired(vision, first, second), paired(vision, second, first), third]
    chunks = [chunk for chunk in chunker.chunks(MARKER * 5, media, MARKER) if isinstance(chunk, MediaChunk)]
    assert len({chunk.hash for chunk in chunks}) == 5


def test_frames_that_are_no_pair_are_refused() -> None:
    vision = golden("qwen2vl").projector.need_vision()
    one, other = (picture(vision, pixels(name)) for name in ("square.png", "wide.png"))
    with pytest.raises(WispError, match="different sizes"):
        paired(vision, one, other)
    with pytest.raises(WispError, match="tiles"):
        paired(vision, one, replace(one, pieces=one.pieces * 2))
    vision = golden("gemma3").projector.need_vision()
    one = picture(vision, pixels("square.png"))
    with pytest.raises(WispError, match="each frame"):
        paired(vision, one, one)
