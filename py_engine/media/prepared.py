"""Media that are ready for an encoder: pictures as pieces of pixels, sound as log-mel spectra."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from py_engine.media.layout import Shown
from py_engine.media.projector import Projector
from py_engine.media.sizes import Size

if TYPE_CHECKING:
    from py_engine.media.mel import Mel


@dataclass(frozen=True)
class Piece:
    """A part of a picture, or all of it, that the encoder takes as one."""

    size: Size
    pixels: bytes  # of `shape`, before mean and deviation
    n_tokens: int
    grid: Size  # columns and rows of tokens
    sha256: bytes | None = None  # of the pixels, where the browser computed it
    stacked: Shown | None = None  # it is an overview and tiles, below each other
    paired: bool = False  # it is two frames of a video, of this size each

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, 3) of the pixels.

        Twice the height for values finer than bytes: whole values, then their 256ths. So, too, for a pair of frames.
        """
        width = self.size[0]
        return len(self.pixels) // (3 * width), width, 3


@dataclass(frozen=True)
class Stacked:
    """An overview and tiles as an encoder takes them."""

    pixels: Any  # uint8 (height, width, 3): all below each other
    shown: Shown


@dataclass(frozen=True)
class FramePair:
    """Two frames of a video as an encoder takes them."""

    pixels: Any  # uint8 (2 * height, width, 3): the second frame below the first


@dataclass(frozen=True)
class Picture:
    """A picture's pieces, in the order of the recipe that made them."""

    pieces: tuple[Piece, ...]
    tiles: Size | None  # columns and rows of tiles; None: the type has no tiles, or not for this picture
    overview_first: bool


@dataclass(frozen=True)
class Spectrum:
    """A part of a clip that the encoder takes as one."""

    mel: Mel  # (n_mel, n_frames)
    n_tokens: int
    sha256: bytes | None = None  # of the spectrum, where the browser computed it


@dataclass(frozen=True)
class Sound:
    """A clip's spectra, in order."""

    spectra: tuple[Spectrum, ...]
    seconds: float = 0.0  # of the clip


Medium = Picture | Sound


class Content:
    """Identifies what a projector makes of a piece or spectrum: a hash of its content and of the projector."""

    def __init__(self, projector: Projector, part: Piece | Spectrum) -> None:
        self._projector = projector
        self._part = part

    @cached_property
    def hash(self) -> str:
        part = self._part
        if isinstance(part, Piece):
            about, data = f"{part.size}{part.stacked or ''}{' pair' * part.paired}", memoryview(part.pixels)
        else:
            about, data = f"{part.mel.shape}", part.mel.data.cast("B")
        content = part.sha256 or hashlib.sha256(data).digest()
        return hashlib.sha256(self._projector.digest + about.encode() + content).hexdigest()
