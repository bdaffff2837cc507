"""Videos in chats: replaced by pictures before the request is checked, since only a page can decode them.

The parts are those of llama.cpp's server, {"type": "input_video", "input_video": {"data" or "url"}}, and of vLLM,
{"type": "video_url", "video_url": {"url"}}. As in llama.cpp, any model that sees can read a video: as pictures, each
after its time, such as "[0m2.50s]".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.openai.fields import Json, integer, number, wrong_type, wrong_value
from app.openai.files import MAX_FILE
from app.openai.media import DATA, MediaPart, at_address, from_base64
from py_engine.errors import WispError

TYPES = ("input_video", "video_url")
FPS, NUM_FRAMES = 1.0, 16  # vLLM's names
MAX_FRAMES = 128  # of a video
MAX_VIDEOS = 4  # of a request

Frame = tuple[float, bytes]  # seconds from the beginning, and a picture's file
ReadVideo = Callable[[bytes, float, int], Awaitable[list[Frame]]]
Fetch = Callable[[str], Awaitable[bytes]]


async def with_frames(body: Json, fetch: Fetch, read: ReadVideo) -> Json:
    """A chat's body with pictures in place of the videos of users and tools. Other malformed parts stay as they are.

    `read`: (file, pictures a second, most pictures) -> frames; ValueError with the reason where it cannot be read.
    """
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(messages, list):
        return body
    if sum(map(_count, messages)) > MAX_VIDEOS:
        raise wrong_value(f"messages has more than {MAX_VIDEOS} videos, the most that a request may have.", "messages")
    shown = [await _message(message, f"messages[{i}]", fetch, read) for i, message in enumerate(messages)]
    return {**body, "messages": shown}


def before_reading(body: Json) -> tuple[Json, str] | None:
    """A body whose videos are texts, for a check of all else, and the path of the first video. None without videos."""
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(messages, list):
        return None
    paths = [
        f"messages[{i}].content[{j}].{part['type']}"
        for i, message in enumerate(messages)
        if _count(message)
        for j, part in enumerate(message["content"])
        if _is_video(part)
    ]
    return ({**body, "messages": list(map(_with_texts, messages))}, paths[0]) if paths else None


def _with_texts(message: Json) -> Json:
    if not _count(message):
        return message
    text = {"type": "text", "text": "[0m0.00s]"}
    return {**message, "content": [text if _is_video(part) else part for part in message["content"]]}


def _count(message: Json) -> int:
    content = message.get("content") if isinstance(message, dict) else None
    return sum(map(_is_video, content)) if isinstance(content, list) else 0


def _is_video(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") in TYPES


async def _message(message: Json, path: str, fetch: Fetch, read: ReadVideo) -> Json:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(content, list) or message.get("role") not in ("user", "tool"):
        return message
    parts: list[Json] = []
    for j, part in enumerate(content):
        if _is_video(part):
            parts += await _frames(part, f"{path}.content[{j}]", fetch, read)
        else:
            parts.append(part)
    return {**message, "content": parts}


async def _frames(part: dict[str, Json], path: str, fetch: Fetch, read: ReadVideo) -> list[Json]:
    """The parts that replace a video: for each picture, a text with its time, then the picture."""
    given = part.get(part["type"])
    if not isinstance(given, dict):
        raise wrong_type(f"{path}.{part['type']}", "an object", given)
    path = f"{path}.{part['type']}"
    try:
        fps = number(given, "fps", 0.01, 60.0, FPS)
        most = integer(given, "num_frames", 1, MAX_FRAMES) or NUM_FRAMES
    except WispError as error:
        raise WispError(f"{path}.{error.message}", error.code, error.type, f"{path}.{error.param}") from None
    video = _source(given, path)
    data = video.data or await fetch(video.address)
    if len(data) > MAX_FILE:
        message = f"{path} has {len(data) >> 20} MiB; at most {MAX_FILE >> 20} are allowed. Send a shorter video."
        raise WispError(message, "media_too_large", param=path)
    try:
        frames = await read(data, fps, most)
    except ValueError as error:
        raise WispError(f"{path} is a video that cannot be used: {error}.", "bad_media", param=path) from None
    parts: list[Json] = []
    for seconds, picture in frames:
        minutes, hundredths = divmod(round(100 * seconds), 6000)
        parts.append({"type": "text", "text": f"[{minutes}m{hundredths / 100:.2f}s]"})
        parts.append({"type": "image_url", "image_url": MediaPart(path, data=picture)})
    return parts


def _source(given: dict[str, Json], path: str) -> MediaPart:
    """The bytes of a part's file, or its address."""
    for field in ("data", "url"):
        value = given.get(field)
        if isinstance(value, str):
            raw = field == "data" and not DATA.match(value)
            where = f"{path}.{field}"
            return MediaPart(where, data=from_base64(value, where)) if raw else at_address(value, where)
    raise wrong_value(f"{path} needs data, the file in Base64, or url, its address.", path)
