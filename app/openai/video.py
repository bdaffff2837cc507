"""Videos in chats and responses: replaced by pictures before the request is checked, since only a page decodes them.

The parts are those of llama.cpp's server, {"type": "input_video", "input_video": {"data" or "url"}}, and of vLLM,
{"type": "video_url", "video_url": {"url"}}. Responses may also have OpenRouter's {"type": "input_video", "video_url"},
whose value is the address. As in llama.cpp, any model that sees can read a video: as pictures, each after its time,
such as "[0m2.50s]".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import chain

from app.openai.fields import Body, Json, integer, number, wrong_type, wrong_value
from app.openai.files import MAX_FILE
from app.openai.media import DATA, MediaPart, at_address, from_base64
from py_engine.errors import WispError
from py_engine.media.encoders import Vision
from py_engine.media.videos import Frame, pictures_of

TYPES = ("input_video", "video_url")
ROLES = ("user", "tool")  # of a chat's messages that may have videos
FPS, NUM_FRAMES = 1.0, 16  # vLLM's names
MAX_FRAMES = 128  # of a video
MAX_VIDEOS = 4  # of a request

Place = tuple[str, int, str, int]  # a field of the body, one of its items, a field of that, and one of its parts
ReadVideo = Callable[[bytes, float, int], Awaitable[list[Frame]]]
Fetch = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True)
class _Video:
    """A checked part: a video's file or address, pictures a second, and the most pictures."""

    path: str
    source: MediaPart
    fps: float
    most: int


async def with_frames(body: Json, fetch: Fetch, read: ReadVideo, vision: Vision) -> Json:
    """A body with pictures in place of the videos of users and tools. Other malformed parts stay as they are.

    `read`: (file, pictures a second, most pictures) -> frames; ValueError with the reason where it cannot be read.
    `vision`: what encodes the pictures; it may read two frames as one.
    Reading takes seconds, so the fields of all videos are checked before the first is read.
    """
    parts = _parts(body)
    if len(parts) > MAX_VIDEOS:
        field = next(iter(parts))[0]
        raise wrong_value(f"{field} has more than {MAX_VIDEOS} videos, the most that a request may have.", field)
    videos = {place: _checked(part, _path(place, part)) for place, part in parts.items()}
    frames = {place: await _frames(video, fetch, read, vision) for place, video in videos.items()}
    return _replaced(body, frames) if frames else body


def without_videos(body: Json) -> tuple[Json, str] | None:
    """A body whose videos are texts, for a check of all else, and the path of the first video. None without videos."""
    parts = _parts(body)
    if not parts:
        return None
    placeholder: list[Json] = [{"type": "text", "text": "[0m0.00s]"}]
    return _replaced(body, dict.fromkeys(parts, placeholder)), next(_path(*item) for item in parts.items())


def _parts(body: Json) -> dict[Place, dict[str, Json]]:
    """The videos of users and tools."""
    return {
        (field, i, inner, j): part
        for field in ("messages", "input")
        for i, item in enumerate(_list(body, field))
        if (inner := _field_with_videos(field, item))
        for j, part in enumerate(_list(item, inner))
        if isinstance(part, dict) and part.get("type") in TYPES
    }


def _list(of: Json, field: str) -> list[Json]:
    value = of.get(field) if isinstance(of, dict) else None
    return value if isinstance(value, list) else []


def _field_with_videos(field: str, item: Json) -> str:
    """The field of a chat's message, or of a response's item, whose parts may be videos; "" if it has none."""
    if not isinstance(item, dict):
        return ""
    if field == "messages":
        return "content" if item.get("role") in ROLES else ""
    if item.get("type") == "function_call_output":
        return "output"
    return "content" if item.get("type", "message") == "message" and item.get("role") == "user" else ""


def _path(place: Place, part: dict[str, Json]) -> str:
    """The path of what has a video's fields: a field of the part, or the part where the address is beside them."""
    field, i, inner, j = place
    return f"{field}[{i}].{inner}[{j}]" + ("" if _is_flat(part) else f".{part['type']}")


def _is_flat(part: dict[str, Json]) -> bool:
    return part["type"] not in part and isinstance(part.get("video_url"), str)


def _replaced(body: Body, parts: dict[Place, list[Json]]) -> Body:
    """The body with these parts in place of its videos."""
    for field, i, inner in {place[:3]: None for place in parts}:
        items = list(body[field])
        content = [parts.get((field, i, inner, j), [part]) for j, part in enumerate(items[i][inner])]
        items[i] = {**items[i], inner: list(chain.from_iterable(content))}
        body = {**body, field: items}
    return body


def _checked(part: dict[str, Json], path: str) -> _Video:
    given = part if _is_flat(part) else part.get(part["type"])
    if not isinstance(given, dict):
        raise wrong_type(path, "an object", given)
    try:
        fps = number(given, "fps", 0.01, 60.0, FPS)
        most = integer(given, "num_frames", 1, MAX_FRAMES) or NUM_FRAMES
    except WispError as error:
        raise error.reworded(f"{path}.{error.message}", f"{path}.{error.param}") from None
    source = _source(given, path)
    _check_size(source.data, path)
    return _Video(path, source, fps, most)


def _check_size(data: bytes, path: str) -> None:
    if len(data) > MAX_FILE:
        message = f"{path} has {len(data) >> 20} MiB; at most {MAX_FILE >> 20} are allowed. Send a shorter video."
        raise WispError(message, "media_too_large", param=path)


async def _frames(video: _Video, fetch: Fetch, read: ReadVideo, vision: Vision) -> list[Json]:
    """The parts that replace a video: for each picture, a text with its time, then the picture."""
    path, data = video.path, video.source.data or await fetch(video.source.address)
    _check_size(data, path)
    try:
        frames = await read(data, video.fps, video.most)
    except ValueError as error:
        raise WispError(f"{path} is a video that cannot be used: {error}.", "bad_media", param=path) from None
    try:
        pictures = pictures_of(vision, frames)
    except WispError as error:
        raise error.reworded(error.message, path) from None
    parts: list[Json] = []
    for picture in pictures:
        seconds = sum(at for at, _ in picture) / len(picture)
        minutes, hundredths = divmod(round(100 * seconds), 6000)
        parts.append({"type": "text", "text": f"[{minutes}m{hundredths / 100:.2f}s]"})
        first, *second = (data for _, data in picture)
        parts.append({"type": "image_url", "image_url": MediaPart(path, first, second=b"".join(second))})
    return parts


def _source(given: dict[str, Json], path: str) -> MediaPart:
    """The bytes of a part's file, or its address."""
    for field in ("data", "url", "video_url"):
        value = given.get(field)
        if isinstance(value, str):
            raw = field == "data" and not DATA.match(value)
            where = f"{path}.{field}"
            return MediaPart(where, data=from_base64(value, where)) if raw else at_address(value, where)
    raise wrong_value(f"{path} needs data, the file in Base64, or url, its address.", path)
