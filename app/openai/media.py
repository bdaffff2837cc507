"""The parts of messages that hold a picture or a sound: checked, and replaced by markers."""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from py_engine.errors import WispError

DATA = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),", re.IGNORECASE)
ADDRESS = re.compile(r"(https?|blob):", re.IGNORECASE)
TYPES = ("image_url", "input_audio")
DETAILS = (None, "auto", "low", "high", "original")  # of OpenAI; the projector decides what it sees

Message = dict[str, Any]


@dataclass(frozen=True)
class MediaPart:
    """A picture or a sound of a request: its bytes, or the address that it is at. `path`: the field, for errors.

    `second`: the next frame of the video, which is one picture together with `data`.
    """

    path: str
    data: bytes = b""
    address: str = ""
    second: bytes = b""


def media_part(part: dict[str, Any], path: str) -> MediaPart:
    """Check a part of one of TYPES."""
    kind = part["type"]
    given = part.get(kind)
    if isinstance(given, MediaPart):  # of a request whose file came beside it
        return given
    if kind == "image_url":
        given = {"url": given} if not isinstance(given, dict) else given
        url = given.get("url")
        if not isinstance(url, str):
            raise WispError(f"{path}.image_url.url must be a string.", "invalid_type", param=f"{path}.image_url.url")
        if given.get("detail") not in DETAILS:
            raise WispError(
                f"{path}.image_url.detail must be auto, low, high or original.",
                "invalid_value",
                param=f"{path}.image_url.detail",
            )
        return at_address(url, f"{path}.image_url.url")
    data = given.get("data") if isinstance(given, dict) else None
    if not isinstance(data, str):
        raise WispError(f"{path}.input_audio.data must be a string.", "invalid_type", param=f"{path}.input_audio.data")
    return MediaPart(path, data=from_base64(data, f"{path}.input_audio.data"))


def at_address(url: str, path: str) -> MediaPart:
    """The medium at a data URL, or at an address that the browser can fetch."""
    found = DATA.match(url)
    if found is not None:
        rest = url[found.end() :]
        in_base64 = found[2].lower().endswith(";base64")
        data = from_base64(rest, path) if in_base64 else unquote_to_bytes(rest)
        if not data:
            raise WispError(f"{path} is empty.", "invalid_value", param=path)
        return MediaPart(path, data=data)
    if ADDRESS.match(url):
        return MediaPart(path, address=url)
    raise WispError(
        f"{path} must be a data URL, or an address that begins with https:, http: or blob:.",
        "invalid_value",
        param=path,
    )


def from_base64(text: str, path: str) -> bytes:
    """The bytes that a Base64 text stands for."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise WispError(f"{path} is not valid Base64.", "invalid_value", param=path) from None
    if not data:
        raise WispError(f"{path} is empty.", "invalid_value", param=path)
    return data


def parts_of(messages: list[Message]) -> list[MediaPart]:
    """The media of messages, in their order."""
    return [media_part(part, path) for part, path in _media(messages)]


def with_markers(messages: list[Message], markers: list[str]) -> list[Message]:
    """The messages with a text part in place of each medium: its marker. `media` is set in these parts."""
    rest = iter(markers)

    def replaced(content: Any) -> Any:
        if not isinstance(content, list):
            return content
        return [
            {"type": "text", "text": next(rest), "media": True} if part.get("type") in TYPES else part
            for part in content
        ]

    return [{**message, "content": replaced(message.get("content"))} for message in messages]


def _media(messages: list[Message]) -> list[tuple[dict[str, Any], str]]:
    return [
        (part, f"messages[{i}].content[{j}]")
        for i, message in enumerate(messages)
        if isinstance(message.get("content"), list)
        for j, part in enumerate(message["content"])
        if isinstance(part, dict) and part.get("type") in TYPES
    ]
