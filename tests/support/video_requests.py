"""Requests with videos, and what they become."""

import asyncio
import base64
from typing import Any

from app.openai.video import with_frames
from tests.support.media import golden

DATA = base64.b64encode(b"film").decode()
URL = "https://example.org/film.webm"
VIDEO = {"type": "input_video", "input_video": {"data": DATA}}
SILENT = {
    "type": "input_video",
    "input_video": {"frames": [{"seconds": 0, "data": DATA}], "load_audio_from_video": True},
}
HEARD = {"type": "input_video", "input_video": {"data": DATA, "load_audio_from_video": True}}
FRAMES = [(0.5, b"one"), (59.996, b"two"), (61.25, b"three")]


def read(body: Any, frames: Any = FRAMES, asked: Any = None, model: str = "gemma3") -> Any:
    """The request, by a reader that finds these frames in b"film", from wherever it comes. `model`: a golden."""

    async def fetch(url: str) -> bytes:
        assert url == URL
        return b"film"

    async def read_video(data: bytes, fps: float, most: int) -> Any:
        assert data == b"film"
        if asked is not None:
            asked.append((fps, most))
        if isinstance(frames, Exception):
            raise frames
        return frames

    return asyncio.run(with_frames(body, fetch, read_video, golden(model).projector.need_vision()))


def chat(*parts: Any, role: str = "user") -> dict[str, Any]:
    """A chat of one message."""
    return {"messages": [{"role": role, "content": list(parts)}]}


def frames_of(*frames: Any) -> dict[str, Any]:
    """A video that comes as frames."""
    return {"type": "input_video", "input_video": {"frames": list(frames)}}
