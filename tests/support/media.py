"""Goldens of images and sound, and their media as the encoders take them, without a browser."""

import hashlib
import json
import wave
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from app.openai.messages import MARKER
from py_engine.files.gguf_header import Header, parse
from py_engine.media.chunker import Chunker
from py_engine.media.chunks import Chunk
from py_engine.media.encoders import Vision
from py_engine.media.kinds import RATE
from py_engine.media.mel import log_mels
from py_engine.media.mel import n_tokens as tokens_of_sound
from py_engine.media.pieces import pieces
from py_engine.media.prepared import Medium, Picture, Sound, Spectrum
from py_engine.media.projector import Projector
from py_engine.media.recipe import Recipe, recipe
from py_engine.text.tokenizer import load_tokenizer
from tests.support.resampled import resampled
from tools.goldens import GOLDEN

VISION = GOLDEN / "vision"
MEDIA = VISION / "media"
NAMES = sorted(path.stem for path in VISION.glob("*.json"))
RESAMPLE = {name: Image.Resampling[name.upper()] for name in ("bilinear", "bicubic", "lanczos")}


@dataclass(frozen=True)
class Golden:
    """A text model with its projector, and what llama.cpp makes of prompts with media."""

    name: str
    about: dict[str, Any]
    arrays: Any  # of the .npz, by name
    text: Header
    projector: Projector

    @property
    def cases(self) -> list[dict[str, Any]]:
        cases: list[dict[str, Any]] = self.about["cases"]
        return cases

    def chunker(self) -> Chunker:
        n_embd = self.text.arch("embedding_length")
        return Chunker(load_tokenizer(self.text.metadata), self.projector, n_embd=n_embd, mrope=self.about["mrope"])

    def chunks(self, case: dict[str, Any]) -> list[Chunk]:
        """The chunks of a case."""
        return self.chunker().chunks(case["prompt"], [prepared(self.projector, name) for name in case["media"]], MARKER)


@cache
def golden(name: str) -> Golden:
    about = json.loads((VISION / f"{name}.json").read_text())
    text, projector = (header_of(VISION / about[key]) for key in ("text_model", "mmproj"))
    return Golden(name, about, np.load(VISION / f"{name}.npz"), text, Projector.from_gguf(projector))


def header_of(path: Path) -> Header:
    data = path.read_bytes()
    return parse(data, len(data))


def prepared(projector: Projector, name: str) -> Medium:
    """A file of the media, prepared for a projector."""
    if name.endswith(".wav"):
        assert projector.audio is not None
        mels = log_mels(projector.audio, samples(name, projector.audio.rate))
        return Sound(tuple(Spectrum(mel, tokens_of_sound(projector.audio, mel.shape[1])) for mel in mels))
    assert projector.vision is not None
    return picture(projector.vision, pixels(name))


def pixels(name: str) -> np.ndarray[Any, Any]:
    """A picture as RGB, its alpha dropped (height, width, 3)."""
    return np.array(Image.open(MEDIA / name).convert("RGB"))


def video_frames() -> list[np.ndarray[Any, Any]]:
    """Three frames of a video, (height, width, 3) each: a picture, mirrored, and upside down."""
    first = pixels("square.png")
    return [first, first[:, ::-1], first[::-1]]


@cache
def samples(name: str, rate: int = RATE) -> np.ndarray[Any, Any]:
    """A clip at a rate, as llama.cpp's reader resamples it."""
    recorded = (MEDIA / name).with_suffix(".samples.npy")
    if recorded.exists() and rate == RATE:
        clip: np.ndarray[Any, Any] = np.load(recorded)
        return clip
    with wave.open(str(MEDIA / name)) as file:
        data = np.frombuffer(file.readframes(file.getnframes()), "<i2") / np.float32(32768)
        return resampled(data.reshape(-1, file.getnchannels()).mean(axis=1), file.getframerate(), rate)


def picture(vision: Vision, rgb: np.ndarray[Any, Any]) -> Picture:
    """A picture as the encoder takes it."""
    plan = recipe(vision, (rgb.shape[1], rgb.shape[0]))
    parts = [part.tobytes() for part in follow(plan, rgb)]
    return Picture(pieces(vision, plan, parts, [None] * len(parts)), plan.grid, plan.overview_first)


def follow(plan: Recipe, rgb: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Do what a recipe says with Pillow. Columns first: newer Pillows may begin with the rows."""
    made = [Image.fromarray(rgb)]
    for canvas in plan.canvases:
        resized = made[canvas.source]
        for size in ((canvas.size[0], resized.size[1]), canvas.size):
            resized = resized.resize(size, RESAMPLE[canvas.filter])
        made.append(Image.new("RGB", canvas.canvas, canvas.colour))
        made[-1].paste(resized, canvas.at)
    cuts = [np.array(made[c.source].crop((*c.at, c.at[0] + c.size[0], c.at[1] + c.size[1]))) for c in plan.cuts]
    return [_resized_finely(each, cut.fine) if cut.fine else each for each, cut in zip(cuts, plan.cuts, strict=True)]


def _resized_finely(rgb: np.ndarray[Any, Any], size: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Linear between neighbouring pixels, as llama.cpp places them in float32: whole values, below them 256ths."""
    values = rgb.astype(np.float64)
    for axis, target in ((1, size[0]), (0, size[1])):
        source = rgb.shape[axis]
        at = (np.arange(target, dtype=np.float32) + np.float32(0.5)) * np.float32(source / target) - np.float32(0.5)
        before = np.floor(at).astype(int)
        part = (at - before).astype(np.float64).reshape((-1, 1) if axis else (-1, 1, 1))
        first, second = (np.take(values, (before + i).clip(0, source - 1), axis) for i in (0, 1))
        values = first + (second - first) * part
    fine = np.floor(values * 256 + 0.5).astype(np.uint16)
    return np.concatenate([fine >> 8, fine & 255]).astype(np.uint8)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
