"""Frames of videos as pictures: which two of them a projector reads as one."""

from __future__ import annotations

from collections.abc import Sequence

from py_engine.media.encoders import Vision
from py_engine.media.formats import format_of

Frame = tuple[float, bytes]  # seconds from the beginning, and a picture's file


def pictures_of(vision: Vision, frames: Sequence[Frame]) -> list[tuple[Frame, ...]]:
    """The frames of each picture that the encoder is given, in order: one, or two of equal size.

    A last one without another is a picture: the encoder reads it as both frames. WispError bad_media, media_too_large.
    """
    found: list[tuple[Frame, ...]] = []
    at = 0
    while at < len(frames):
        two = frames[at : at + 2]
        found.append(tuple(two) if vision.pairs and _are_a_pair(two) else (frames[at],))
        at += len(found[-1])
    return found


def _are_a_pair(frames: Sequence[Frame]) -> bool:
    sizes = [format_of(data).size for _, data in frames]
    return len(sizes) == 2 and sizes[0] is not None and sizes[0] == sizes[1]
