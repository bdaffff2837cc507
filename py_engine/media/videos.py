"""Frames of videos as pictures: which two of them a projector reads as one, and how prompts state their times."""

from __future__ import annotations

from collections.abc import Sequence

from py_engine.media.encoders import Vision
from py_engine.media.formats import format_of

Frame = tuple[float, bytes]  # seconds from the beginning, and a picture's file

# What the processors of these types put before a picture, as transformers has them: Qwen3-VL, MiniMax-M3, SmolVLM2.
_TIMES = {
    "qwen3vl_merger": "<{seconds:.1f} seconds>",
    "minimax_m3": "]<]{seconds:.1f} seconds[>[",
    "idefics3": "\nFrame from {minutes:02d}:{rest:02d}:",
}
_OTHERS = "[{minutes}m{exact:.2f}s]"  # llama.cpp's


def time_text(kind: str, seconds: float, *, first: bool) -> str:
    """What stands before a picture that is `seconds` from the beginning. `first`: of the video's pictures.

    `kind`: the projector's type. Times of a pair of frames are the mean of both.
    """
    if kind in ("gemma4v", "gemma4uv"):
        minutes, rest = divmod(int(seconds), 60)
        return f"{'' if first else ' '}{minutes:02d}:{rest:02d} "
    if kind in _TIMES:
        minutes, rest = divmod(int(seconds), 60)
        return _TIMES[kind].format(seconds=seconds, minutes=minutes, rest=rest)
    minutes, hundredths = divmod(round(100 * seconds), 6000)
    return _OTHERS.format(minutes=minutes, exact=hundredths / 100)


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
    """Whether two frames will have equal sizes when they are decoded. An AVIF file may have its picture turned."""
    formats = [format_of(data) for _, data in frames]
    if len(formats) < 2 or any(found.name == "AVIF" for found in formats):
        return False
    return formats[0].size is not None and formats[0].size == formats[1].size
