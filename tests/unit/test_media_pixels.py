"""Pictures and sound in JavaScript, run in Node, against Pillow and llama.cpp's reader of sound."""

import base64
import io
import struct
import wave
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from py_engine.media.recipe import Canvas, Cut, Recipe, recipe
from tests.support.js_modules import Evaluate, evaluator
from tests.support.media import MEDIA, follow, golden, pixels, samples
from tools import wasm

FOLLOW = """
a.map(([pixels, width, height, recipe]) =>
  m.follow({ width, height, pixels: new Uint8Array(Buffer.from(pixels, "base64")) }, recipe)
    .map((cut) => Buffer.from(cut.pixels).toString("base64")))
"""
MONO = """
(() => {
  const clip = m.readWav(new Uint8Array(Buffer.from(a[0], "base64")));
  return clip && Buffer.from(m.toMono(clip, a[1] ?? 16000).buffer).toString("base64");
})()
"""
Case = tuple[np.ndarray[Any, Any], Recipe]


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("media"), ["py_engine/media/media.js"])


def assert_pixels_are_pillows(evaluate: Evaluate, cases: list[Case]) -> None:
    sent = [[base64.b64encode(rgb.tobytes()).decode(), rgb.shape[1], rgb.shape[0], asdict(plan)] for rgb, plan in cases]
    for (rgb, plan), cuts in zip(cases, evaluate(FOLLOW, *sent), strict=True):
        wanted = follow(plan, rgb)
        assert len(cuts) == len(wanted)
        for ours, pillows in zip(cuts, wanted, strict=True):
            assert base64.b64decode(ours) == pillows.tobytes(), plan


def test_resized_pictures_are_pillows(evaluate: Evaluate) -> None:
    random = np.random.default_rng(0)
    cases = []
    for filter in ("bilinear", "bicubic", "lanczos"):
        for _ in range(12):
            width, height, w, h = (int(side) for side in np.exp(random.uniform(0, np.log(200), 4)))
            rgb = random.integers(0, 256, (height, width, 3), np.uint8)
            cases.append((rgb, Recipe((Canvas(0, (w, h), filter, (w, h)),), (Cut(1, (0, 0), (w, h)),))))
    assert_pixels_are_pillows(evaluate, cases)


def test_recipes_are_followed_as_with_pillow(evaluate: Evaluate) -> None:
    cases = []
    for name, file in (
        ("idefics3", "wide"),
        ("mlp", "tall"),
        ("mlp.grid", "large"),
        ("gemma3", "dot"),
        ("lfm2", "huge"),
        ("step3vl", "wide"),
        ("step3vl", "large"),
    ):
        vision, rgb = golden(name).projector.vision, pixels(f"{file}.png")
        assert vision is not None
        cases.append((rgb, recipe(vision, (rgb.shape[1], rgb.shape[0]))))
    assert_pixels_are_pillows(evaluate, cases)


def test_pixels_between_others_are_no_bytes(evaluate: Evaluate) -> None:
    """Of Step3-VL: the middle of two pixels, in 256ths; at the picture's edge, the pixel there."""
    plan = Recipe((), (Cut(0, (0, 0), (2, 1), fine=(3, 1)),))
    rgb = np.array([[[0, 10, 255], [5, 11, 0]]], np.uint8)
    assert_pixels_are_pillows(evaluate, [(rgb, plan)])
    (found,) = follow(plan, rgb)
    assert found.tolist() == [[[0, 10, 255], [2, 10, 127], [5, 11, 0]], [[0, 0, 0], [128, 128, 128], [0, 0, 0]]]


def test_the_resampler_is_compiled_from_its_source() -> None:
    assert wasm.MEDIA_JS.read_text(encoding="utf-8") == wasm.media_module(), "run .venv/bin/python -m tools.wasm"


def test_sound_is_resampled_as_llama_cpp_does(evaluate: Evaluate) -> None:
    stereo = base64.b64encode((MEDIA / "stereo.wav").read_bytes()).decode()
    ours = np.frombuffer(base64.b64decode(evaluate(MONO, stereo)), np.float32)
    wanted = np.load(MEDIA / "stereo.samples.npy")  # of 44.1 kHz and two channels
    assert ours.shape == wanted.shape
    np.testing.assert_allclose(ours, wanted, atol=2e-7)


def wav(code: int, bits: int, data: bytes, rate: int = 16000, channels: int = 1) -> bytes:
    size = bits // 8 * channels
    format = struct.pack("<HHIIHH", code, channels, rate, rate * size, size, bits)
    odd = b"LIST" + struct.pack("<I", 3) + b"abc\0"  # a chunk of an odd size, which is padded
    body = b"WAVEfmt " + struct.pack("<I", len(format)) + format + odd + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize(
    ("code", "bits", "data", "samples"),
    [
        (1, 8, bytes([0, 255]), [-1, 1]),  # as in miniaudio; 0 is between two bytes
        (1, 16, struct.pack("<3h", -32768, 0, 16384), [-1, 0, 0.5]),
        (1, 24, b"\0\0\x80" + b"\0\0\0" + b"\0\0\x40", [-1, 0, 0.5]),
        (1, 32, struct.pack("<3i", -(2**31), 0, 2**30), [-1, 0, 0.5]),
        (3, 32, struct.pack("<3f", -1, 0, 0.5), [-1, 0, 0.5]),
        (3, 64, struct.pack("<3d", -1, 0, 0.5), [-1, 0, 0.5]),
    ],
)
def test_wav_files_of_every_width_are_read(
    evaluate: Evaluate, code: int, bits: int, data: bytes, samples: list[float]
) -> None:
    found = evaluate(MONO, base64.b64encode(wav(code, bits, data)).decode())
    assert np.frombuffer(base64.b64decode(found), np.float32).tolist() == samples


@pytest.mark.parametrize(
    ("rate", "count", "samples"),
    [
        *((16001, 137, 137), (16001, 16497, 16496), (22050, 1, 1), (44100, 1000, 362), (88200, 4, 1), (176400, 3, 1)),
        *((48000, 9, 4), (8000, 5, 10), (15999, 2, 2)),
    ],
)
def test_clips_have_as_many_samples_as_miniaudio_expects(
    evaluate: Evaluate, rate: int, count: int, samples: int
) -> None:
    found = evaluate(MONO, base64.b64encode(wav(1, 16, bytes(2 * count), rate)).decode())
    assert len(base64.b64decode(found)) == 4 * samples


@pytest.mark.parametrize(("name", "rate"), [("stereo", 24000), ("half", 24000), ("stereo", 16000)])
def test_sound_of_other_rates_is_resampled_as_in_python(evaluate: Evaluate, name: str, rate: int) -> None:
    """With Python's, spectra are compared with llama.cpp's (test_media_chunks.py)."""
    found = evaluate(MONO, base64.b64encode((MEDIA / f"{name}.wav").read_bytes()).decode(), rate)
    ours = np.frombuffer(base64.b64decode(found), np.float32)
    wanted = samples(f"{name}.wav", rate)
    assert ours.shape == wanted.shape
    np.testing.assert_allclose(ours, wanted, atol=2e-7)


def test_channels_are_averaged(evaluate: Evaluate) -> None:
    found = evaluate(MONO, base64.b64encode(wav(3, 32, struct.pack("<4f", 1, 0, -1, 0.5), channels=2)).decode())
    assert np.frombuffer(base64.b64decode(found), np.float32).tolist() == [0.5, -0.25]


def test_a_wav_file_of_another_encoding_is_left_to_the_browser(evaluate: Evaluate) -> None:
    assert evaluate(MONO, base64.b64encode(wav(7, 8, b"abc")).decode()) is None  # mu-law
    whole = io.BytesIO()
    with wave.open(whole, "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(b"\0\0" * 8)
    assert evaluate(MONO, base64.b64encode(whole.getvalue()[:30]).decode()) is None  # cut in its header
