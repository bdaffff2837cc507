"""Chunks of prompts with media against llama.cpp's: ids, counts, positions, and what the encoders take."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from app.openai.messages import MARKER
from py_engine.errors import WispError
from py_engine.media.chunker import Chunker
from py_engine.media.chunks import Chunk, MediaChunk, TextChunk
from py_engine.media.kinds import RATE
from py_engine.media.prepared import Piece, Spectrum
from py_engine.models.common import has_axes
from py_engine.text.tokenizer import load_tokenizer
from tests.support.media import NAMES, golden, prepared, sha256

CASES = [(name, case["id"]) for name in NAMES for case in golden(name).cases]


def described(chunk: Chunk) -> dict[str, Any]:
    """A chunk as the goldens have it."""
    found: dict[str, Any] = {"kind": chunk.kind, "n_tokens": chunk.n_tokens, "n_pos": chunk.n_pos}
    if isinstance(chunk, TextChunk):
        return found | {"ids": chunk.ids}
    found["non_causal"] = chunk.non_causal
    return found | ({"nx": chunk.grid[0], "ny": chunk.grid[1]} if chunk.kind == "image" else {})


@pytest.mark.parametrize(("name", "case_id"), CASES)
def test_chunks_are_llama_cpps(name: str, case_id: str) -> None:
    model = golden(name)
    case = next(case for case in model.cases if case["id"] == case_id)
    chunks = model.chunks(case)
    assert [described(chunk) for chunk in chunks] == [
        {key: value for key, value in chunk.items() if key in described(ours)}
        for chunk, ours in zip(case["chunks"], chunks, strict=True)
    ]
    starts = np.cumsum([0, *(chunk.n_pos for chunk in chunks)])[:-1]
    assert starts.tolist() == [chunk["start"] for chunk in case["chunks"]]
    for i, (chunk, wanted) in enumerate(zip(chunks, case["chunks"], strict=True)):
        if not isinstance(chunk, MediaChunk):
            continue
        if f"{case_id}/{i}/pos" in model.arrays:
            assert chunk.positions() == [tuple(row) for row in model.arrays[f"{case_id}/{i}/pos"].tolist()]
        if isinstance(chunk.part, Piece):
            assert chunk.part.size == (wanted["pixels"]["width"], wanted["pixels"]["height"])
            _assert_pixels_are(chunk.part, wanted["pixels"], model.arrays[f"{case_id}/{i}/pixels"])
        else:
            assert chunk.part.mel.shape == (wanted["mel"]["n_mel"], wanted["mel"]["n_frames"])
            frames, mel = (model.arrays[f"{case_id}/{i}/{key}"] for key in ("frames", "mel"))
            # float32's rounding in llama.cpp; some types divide the logarithms of squares by their deviation
            audio = model.projector.need_audio()
            limit = 5e-4 if audio.kernel else 2e-4
            if audio.rate > RATE:  # at frequencies that the clips lack, logarithms magnify what samples differ by, 3e-7
                limit = 1e-3
            np.testing.assert_allclose(chunk.part.mel[:, frames], mel, atol=limit)


def _assert_pixels_are(piece: Piece, wanted: dict[str, Any], sampled: np.ndarray[Any, Any]) -> None:
    """Bytes are equal; values finer than bytes are within a 256th."""
    if "sha256" in wanted:
        assert sha256(piece.pixels) == wanted["sha256"]
        return
    whole, parts = np.split(np.frombuffer(piece.pixels, np.uint8).reshape(piece.shape).astype(np.float32), 2)
    ours = (whole + parts / 256)[:: wanted["step"], :: wanted["step"]]
    np.testing.assert_allclose(ours, sampled, atol=1 / 256)


@pytest.mark.parametrize("name", NAMES)
def test_the_text_model_says_whether_positions_have_axes(name: str) -> None:
    model = golden(name)
    assert has_axes(model.text) == model.about["mrope"]


def test_most_architectures_ignore_sections_of_the_rotation() -> None:
    text = golden("pixtral").text
    sections = {f"{text.architecture}.rope.dimension_sections": [2, 3, 3, 0]}
    assert not has_axes(replace(text, metadata=text.metadata | sections))


def test_hashes_tell_contents_and_projectors_apart() -> None:
    def hashes(name: str, media: list[str]) -> list[str]:
        model = golden(name)
        prompt = " and ".join(["<__media__>"] * len(media))
        found = model.chunker().chunks(prompt, [prepared(model.projector, file) for file in media], MARKER)
        return [chunk.hash for chunk in found if isinstance(chunk, MediaChunk)]

    first, second, again = hashes("gemma4", ["square.png", "wide.png", "square.png"])
    assert first == again != second
    assert hashes("qwen2vl", ["square.png"]) != hashes("qwen2.5vl", ["square.png"])  # equal pixels
    sounds = hashes("gemma4", ["half.wav", "three.wav", "half.wav"])
    assert sounds[0] == sounds[2] != sounds[1]


def test_the_count_of_media_must_be_that_of_markers() -> None:
    model = golden("gemma3")
    with pytest.raises(WispError, match="2 media markers, and 1 media") as error:
        model.chunker().chunks("<__media__> <__media__>", [prepared(model.projector, "dot.png")], MARKER)
    assert error.value.code == "invalid_value"


@pytest.mark.parametrize(
    ("model", "other", "file", "message"),
    [
        ("ultravox", "gemma3", "dot.png", "hears, but does not see"),
        ("gemma3", "ultravox", "half.wav", "sees, but does not hear"),
    ],
)
def test_media_need_an_encoder_of_their_kind(model: str, other: str, file: str, message: str) -> None:
    medium = prepared(golden(other).projector, file)
    with pytest.raises(WispError, match=message) as error:
        golden(model).chunker().chunks("<__media__>", [medium], MARKER)
    assert error.value.code == "no_projector"


def test_a_text_model_must_have_the_tokens_that_tiles_need() -> None:
    tiles, other = golden("idefics3"), golden("gemma3")
    chunker = Chunker(load_tokenizer(other.text.metadata), tiles.projector, n_embd=64, mrope=False)
    with pytest.raises(WispError, match=r"lacks the token '\\n\\n'") as error:
        chunker.chunks("<__media__>", [prepared(tiles.projector, "dot.png")], MARKER)
    assert error.value.code == "projector_mismatch"


def test_spectra_and_pieces_state_their_tokens() -> None:
    model = golden("gemma4")
    (case,) = [case for case in model.cases if case["id"] == "mixed"]
    parts = [chunk.part for chunk in model.chunks(case) if isinstance(chunk, MediaChunk)]
    assert [type(part) for part in parts] == [Piece, Spectrum]
    assert [part.n_tokens for part in parts] == [81, 13]


def test_the_vocabulary_says_what_is_around_pictures_of_kimi_k2_5s_encoder() -> None:
    """GLM-5.2-V has the same encoder, and its own tokens."""
    model, text = golden("kimik25"), load_tokenizer(golden("glm4v").text.metadata)
    chunks = Chunker(text, model.projector, n_embd=64, mrope=False).chunks(
        MARKER, [prepared(model.projector, "square.png")], MARKER
    )
    ids = [text.encode(f"<|{which}_of_image|>", parse_special=True) for which in ("begin", "end")]
    assert [len(each) for each in ids] == [1, 1]
    assert [chunk.ids for chunk in chunks if isinstance(chunk, TextChunk)] == ids


def test_a_vocabulary_is_searched_once_for_a_token() -> None:
    """Which takes a while: Kimi's has 160,000 tokens."""
    model = golden("kimik25")
    text = load_tokenizer(model.text.metadata)
    chunker = Chunker(text, model.projector, n_embd=64, mrope=False)
    picture = prepared(model.projector, "square.png")
    chunker.chunks(MARKER, [picture], MARKER)
    with patch.object(text, "piece", side_effect=AssertionError):
        chunker.chunks(MARKER, [picture], MARKER)
