"""Videos in chats and responses: replaced by pictures before the request is checked, since only a page decodes them.

The parts are those of llama.cpp's server, {"type": "input_video", "input_video": {"data" or "url"}}, and of vLLM,
{"type": "video_url", "video_url": {"url"}}. Responses may also have OpenRouter's {"type": "input_video", "video_url"},
whose value is the address. As in llama.cpp, any model that sees can read a video: as pictures, each after its time.
Frames that were taken already may take the place of a file: {"frames": [{"seconds", "data" or "url"}]}.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from app.openai.fields import Body, Json, unsupported, wrong_type, wrong_value
from app.openai.media import MediaPart
from app.openai.video_fields import FIELDS, HEARS, PACE, Fetch, ReadVideo, Video, checked
from py_engine.errors import WispError
from py_engine.media.encoders import Vision
from py_engine.media.videos import Frame, pictures_of, time_text

TYPES = ("input_video", "video_url")
OF_PARTS = ("type", "untrusted", "cache_control", "uuid", "detail")  # fields that any part may have
ROLES = ("user", "tool")  # of a chat's messages that may have videos
MAX_VIDEOS = 4  # of a request, to be decoded
MAX_REQUEST_FRAMES = 1024  # of all videos of a request that come as frames

Place = tuple[str, int, str, int]  # a field of the body, one of its items, a field of that, and one of its parts


async def with_frames(body: Json, fetch: Fetch, read: ReadVideo, vision: Vision) -> Json:
    """A body with pictures in place of the videos of users and tools. Other malformed parts stay as they are.

    `read`: (file, pictures a second, most pictures) -> frames; ValueError with the reason where it cannot be read.
    `vision`: what encodes the pictures; it may read two frames as one.
    Reading takes seconds, so the fields of all videos are checked before the first is read.
    """
    videos = {place: _checked(place, part) for place, part in _parts(body).items()}
    files = [place for place, video in videos.items() if not video.frames]
    if len(files) > MAX_VIDEOS:
        field = files[0][0]
        raise wrong_value(f"{field} has more than {MAX_VIDEOS} videos, the most that a request may have.", field)
    if sum(len(video.frames) for video in videos.values()) > MAX_REQUEST_FRAMES:
        field = next(iter(videos))[0]
        raise wrong_value(f"{field} has videos of more than {MAX_REQUEST_FRAMES} frames; send fewer.", field)
    frames = {place: _parts_of(video.path, *await video.read(fetch, read), vision) for place, video in videos.items()}
    return _replaced(body, frames) if frames else body


class WithoutVideos(NamedTuple):
    """A body whose videos are texts, and the paths of its videos."""

    body: Json
    first: str  # the path of the first video
    heard: str  # the path of the first one whose file is to be heard; "" without one


def without_videos(body: Json) -> WithoutVideos | None:
    """A body whose videos are texts, for a check of all else; None without videos."""
    parts = _parts(body)
    if not parts:
        return None
    placeholder: list[Json] = [{"type": "text", "text": "[0m0.00s]"}]
    paths = [_path(*item) for item in parts.items()]
    heard = [path for path, part in zip(paths, parts.values(), strict=True) if _is_heard(_fields(part))]
    return WithoutVideos(_replaced(body, dict.fromkeys(parts, placeholder)), paths[0], next(iter(heard), ""))


def _is_heard(fields: Json) -> bool:
    """Whether a video's file is to be heard. Frames have no sound: checked() refuses both."""
    return isinstance(fields, dict) and fields.get(HEARS) is True and fields.get("frames") is None


def _checked(place: Place, part: dict[str, Json]) -> Video:
    path, kind, fields = _path(place, part), part["type"], _fields(part)
    own = {name: value for name, value in part.items() if name not in OF_PARTS and value is not None}
    if _is_flat(part):
        return checked(own, path, ("video_url",))
    beside = {name: value for name, value in own.items() if name != kind}
    if not beside or (kind in own and not isinstance(fields, dict)):
        return checked(fields, path)
    inside = {name: value for name, value in (fields or {}).items() if value is not None}
    for name, value in beside.items():
        wrong = path.removesuffix(kind) + name
        if name in inside:
            raise wrong_value(f"{path}.{name} and {wrong} exclude each other; give only one.", wrong)
        if name not in PACE or kind not in own:
            raise _wrong_beside(wrong, name, value, kind, path if kind in own else "")
    return checked(beside | inside, path)


def _wrong_beside(wrong: str, name: str, value: Json, kind: str, fields: str) -> WispError:
    """The error for a field of a part that is not PACE. `fields`: the path of the video's own; "": it is missing."""
    if name not in FIELDS:
        return unsupported(f"{wrong} is no field of a part of the type {kind}; leave it out.", wrong)
    if name == "video_url":
        if fields:
            return wrong_value(f"{fields} and {wrong} exclude each other; give only one.", wrong)
        return wrong_type(wrong, "a string, the video's address", value)
    return unsupported(f"{wrong} is a field of the video: move it into {kind}, an object beside the type.", wrong)


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


def _fields(part: dict[str, Json]) -> Json:
    return part if _is_flat(part) else part.get(part["type"])


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


def _parts_of(path: str, frames: list[Frame], sound: bytes, vision: Vision) -> list[Json]:
    """The parts that replace a video: for each picture, a text with its time, then the picture. Its sound is last.

    `sound`: the video's file; b"": it is not to be heard.
    """
    try:
        pictures = pictures_of(vision, frames)
    except WispError as error:
        raise error.reworded(error.message, path) from None
    parts: list[Json] = []
    for i, picture in enumerate(pictures):
        seconds = sum(at for at, _ in picture) / len(picture)
        parts.append({"type": "text", "text": time_text(vision.type, seconds, first=i == 0)})
        first, *second = (data for _, data in picture)
        parts.append({"type": "image_url", "image_url": MediaPart(path, first, second=b"".join(second))})
    if sound:
        parts.append({"type": "input_audio", "input_audio": MediaPart(path, sound)})
    return parts
