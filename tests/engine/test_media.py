"""Pictures and sound in a real browser: decoded in workers as they are stored, and prepared as llama.cpp does."""

import base64
import io
import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from py_engine.media.prepared import Picture
from tests.support.browser import call_python, new_profile
from tests.support.media import MEDIA, golden, pixels, prepared, sha256
from tools.serve import Server

INDEX = json.loads((MEDIA / "media.json").read_text())
PICTURES = [name for name in INDEX if name.endswith(".png")]
DECODE = """async ([kind, bytes, type]) => {
    const url = "/tests/media_worker.js", options = { type: "module" };
    globalThis.decoders ??= {};
    const made = () => (kind === "shared" ? new SharedWorker(url, options).port : new Worker(url, options));
    const port = (globalThis.decoders[kind] ??= made());
    const answer = new Promise((resolve) => (port.onmessage = ({ data }) => resolve(data)));
    port.postMessage({ bytes: Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0)), type });
    const { width, height, pixels, error } = await answer;
    if (error) return { error };
    let text = "";
    for (let i = 0; i < pixels.length; i += 9000) text += String.fromCharCode(...pixels.subarray(i, i + 9000));
    return { width, height, pixels: btoa(text) };
}"""


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Page:
    """A page without an engine; the browser has no WebGPU."""
    page = new_profile(chromium(None)).new_page()
    page.goto(f"{server.url}tests/blank.html")
    return page


def decoded(page: Page, data: bytes, mime: str, kind: str = "shared") -> np.ndarray[Any, Any]:
    """A picture as a worker decodes it (height, width, 3)."""
    found = page.evaluate(DECODE, [kind, base64.b64encode(data).decode(), mime])
    assert "error" not in found, found
    raw = np.frombuffer(base64.b64decode(found["pixels"]), np.uint8)
    return raw.reshape(found["height"], found["width"], 3)


def saved(rgb: np.ndarray[Any, Any], format: str, **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(rgb).save(out, format, **options)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["shared", "own"])
def test_png_pixels_are_llama_cpps(page: Page, kind: str) -> None:
    """Alpha is dropped, grey replicated."""
    for name in PICTURES:
        found = decoded(page, (MEDIA / name).read_bytes(), "image/png", kind)
        assert sha256(found.tobytes()) == INDEX[name]["rgb_sha256"], name


@pytest.mark.parametrize(
    ("format", "options"),
    [("JPEG", {"quality": 90}), ("WebP", {"quality": 90}), ("WebP", {"lossless": True, "exact": True}), ("BMP", {})],
)
def test_other_formats_are_decoded_as_with_pillow(page: Page, format: str, options: dict[str, Any]) -> None:
    data = saved(pixels("wide.png"), format, **options)
    found = decoded(page, data, f"image/{format.lower()}")
    np.testing.assert_allclose(found.astype(int), np.array(Image.open(io.BytesIO(data)).convert("RGB")), atol=2)


def test_webp_alpha_is_dropped(page: Page) -> None:
    with Image.open(MEDIA / "alpha.png") as image:
        data = saved(np.array(image), "WebP", lossless=True, exact=True)
    np.testing.assert_array_equal(decoded(page, data, "image/webp"), pixels("alpha.png"))


def test_animations_give_their_first_picture(page: Page) -> None:
    first, second = (Image.fromarray(np.full((8, 8, 3), value, np.uint8)) for value in (40, 200))
    out = io.BytesIO()
    first.save(out, "GIF", save_all=True, append_images=[second])
    assert (decoded(page, out.getvalue(), "image/gif") == 40).all()


def test_large_pictures_are_read_in_parts(page: Page) -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (1301, 41, 3), np.uint8)
    transparent = np.concatenate([rgb, np.full((1301, 41, 1), 7, np.uint8)], 2)
    for picture in (rgb, transparent):
        np.testing.assert_array_equal(decoded(page, saved(picture, "PNG"), "image/png"), rgb)


@pytest.mark.parametrize(("name", "case"), [("idefics3", "alpha"), ("qwen2vl", "pair")])
def test_pictures_are_prepared_as_llama_cpp_does(engine_page: Page, name: str, case: str) -> None:
    model = golden(name)
    about = next(each for each in model.cases if each["id"] == case)
    found = call_python(engine_page, "media.prepared", mmproj=model.about["mmproj"], files=about["media"])
    wanted = [chunk for chunk in about["chunks"] if chunk["kind"] == "image"]
    sizes = [(chunk["pixels"]["width"], chunk["pixels"]["height"]) for chunk in wanted]
    assert [piece for picture in found for piece in picture] == [
        [*size, chunk["n_tokens"], chunk["pixels"]["sha256"]] for size, chunk in zip(sizes, wanted, strict=True)
    ]


def test_pixels_that_are_no_bytes_are_prepared_as_in_python(engine_page: Page) -> None:
    """Of Step3-VL. tests/unit/test_media_chunks.py compares Python's with llama.cpp's."""
    model = golden("step3vl")
    (found,) = call_python(engine_page, "media.prepared", mmproj=model.about["mmproj"], files=["wide.png"])
    medium = prepared(model.projector, "wide.png")
    assert isinstance(medium, Picture)
    assert found == [[*piece.size, piece.n_tokens, sha256(piece.pixels)] for piece in medium.pieces]


@pytest.mark.parametrize(("name", "frames", "tokens"), [("gemma4", 69, 18), ("lfm2a", 70, 9), ("mimo", 70, 5)])
def test_sound_is_prepared_as_llama_cpp_does(engine_page: Page, name: str, frames: int, tokens: int) -> None:
    """Sound of 44.1 kHz and two channels."""
    model = golden(name)
    case = next(case["id"] for case in model.cases if case["media"][0] == "stereo.wav")
    (clip,) = call_python(engine_page, "media.prepared", mmproj=model.about["mmproj"], files=["stereo.wav"])
    ((*found_sizes, mel),) = clip
    assert found_sizes == [frames, tokens]
    found = np.frombuffer(base64.b64decode(mel), np.float32).reshape(-1, frames)
    wanted = model.arrays[f"{case}/1/mel"]
    np.testing.assert_allclose(found[:, model.arrays[f"{case}/1/frames"]], wanted, atol=2e-3)


@pytest.mark.parametrize("mmproj", ["ultravox", "qwen3a", "lfm2a", "dots3note.media", "mimo"])
def test_clips_of_a_minute_are_prepared(engine_page: Page, mmproj: str) -> None:
    """Pyodide's arrays have at most 2 GiB, and so have views."""
    data = base64.b64encode(slow_wav(minutes=1)).decode()
    assert call_python(engine_page, "media.refused", mmproj=f"{mmproj}.mmproj.gguf", data=data) == ""


def slow_wav(minutes: int) -> bytes:
    """A long clip in a small file: 8 samples a second, of a byte each."""
    data = bytes([128] * 8 * 60 * minutes)
    format = struct.pack("<HHIIHH", 1, 1, 8, 8, 1, 8)
    chunks = b"fmt " + struct.pack("<I", len(format)) + format + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


@pytest.mark.parametrize(
    ("mmproj", "file", "code"),
    [
        ("gemma3", (MEDIA / "square.png").read_bytes()[:900], "bad_media"),  # cut in its pixels
        ("ultravox", (MEDIA / "square.png").read_bytes(), "no_projector"),
        ("gemma3", (MEDIA / "half.wav").read_bytes(), "no_projector"),
        ("ultravox", (MEDIA / "half.wav").read_bytes()[:44], "bad_media"),  # its header alone
        ("ultravox", slow_wav(minutes=60), "media_too_large"),
        ("lfm2a", slow_wav(minutes=2), "media_too_large"),  # clips are encoded as one
        ("mimo", slow_wav(minutes=3), "media_too_large"),
    ],
)
def test_files_that_cannot_be_used_are_refused(engine_page: Page, mmproj: str, file: bytes, code: str) -> None:
    data = base64.b64encode(file).decode()
    assert call_python(engine_page, "media.refused", mmproj=f"{mmproj}.mmproj.gguf", data=data) == code
