"""The parts of messages that hold a text file: checked, and replaced by its text.

Where a page is, pdf.py has replaced PDF files by text files; elsewhere they are an error.
"""

from typing import Any
from urllib.parse import unquote_to_bytes

from app.openai.fields import Json, text, unsupported, wrong_type, wrong_value
from app.openai.media import DATA, from_base64
from py_engine.errors import WispError

MAX_FILE = 64 << 20  # bytes, as the page has it
_BYTE_ORDERS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_FIELDS = ("filename", "file_data", "file_id", "file_url")


def file_part(part: dict[str, Json], path: str) -> dict[str, Json]:
    """The text part for a part of the type "file". Special tokens in it are text, as in all that others wrote."""
    given = part.get("file")
    where = f"{path}.file"
    if not isinstance(given, dict):
        raise wrong_type(where, "an object", given)
    try:
        name, data = (text(given, field) for field in _FIELDS[:2])
    except WispError as error:
        raise error.reworded(f"{where}.{error.message}", f"{where}.{error.param}") from None
    if data is None:
        raise unsupported(f"{where} has no file_data: this engine stores and fetches no files; send the file.", where)
    return {"type": "text", "text": _named(name, _text(bytes_of(data, f"{where}.file_data"), where)), "untrusted": True}


def input_file(part: dict[str, Json]) -> dict[str, Json]:
    """A part of /v1/responses of the type "input_file" as a chat's."""
    return {"type": "file", "file": {field: part[field] for field in _FIELDS if part.get(field) is not None}}


def _named(name: str | None, content: str) -> str:
    return f"{name}:\n{content}" if name else content


def bytes_of(data: str, path: str) -> bytes:
    """What a data URL, or Base64 alone, holds. WispError if it is malformed or too large."""
    found = DATA.match(data)
    rest = data[found.end() :] if found else data
    in_base64 = found is None or found[2].lower().endswith(";base64")
    content = from_base64(rest, path) if in_base64 else unquote_to_bytes(rest)
    if len(content) > MAX_FILE:
        raise wrong_value(f"{path} has {len(content) >> 20} MiB; at most {MAX_FILE >> 20} are allowed.", path)
    return content


def _text(data: bytes, path: str) -> str:
    """A file's text with LF line ends: UTF-8, UTF-16 with its mark, or the encoding of most old files."""
    if data.startswith(b"%PDF-"):
        what = "is a PDF file, which only Wisp's pages read: send its text"
        raise unsupported(f"{path} {what}.", path)
    wide = _BYTE_ORDERS.get(data[:2])
    if wide is None and b"\0" in data:
        raise unsupported(f"{path} is no text file. Pictures are parts of the type image_url.", path)
    decoded = _decoded(data, wide)
    return decoded.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _decoded(data: bytes, wide: str | None) -> str:
    if wide is not None:
        return data.decode(wide, "replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def with_texts(message: dict[str, Any], path: str) -> dict[str, Any]:
    """A checked message with texts in place of its files."""
    content = message.get("content")
    if not isinstance(content, list) or all(part["type"] != "file" for part in content):
        return message
    parts = [
        file_part(part, f"{path}.content[{j}]") if part["type"] == "file" else part for j, part in enumerate(content)
    ]
    return {**message, "content": parts}
