"""PDF files in requests: replaced by text files before the request is checked, since only a page can read them."""

import base64
from collections.abc import Awaitable, Callable

from app.openai.fields import Json, wrong_value
from app.openai.files import bytes_of
from py_engine.errors import WispError

ReadPdf = Callable[[bytes], Awaitable[str]]
_BEGIN = b"%PDF-"


async def with_pdf_texts(body: Json, read: ReadPdf) -> Json:
    """A request body with text files in place of its PDF files. What is malformed stays: the request's check says why.

    `read`: the text of a PDF file; ValueError with the reason where it cannot be read.
    """
    if not isinstance(body, dict):
        return body
    for field in ("messages", "input"):
        messages = body.get(field)
        if isinstance(messages, list):
            read_all = [await _message(message, f"{field}[{i}]", read) for i, message in enumerate(messages)]
            body = {**body, field: read_all}
    return body


async def _message(message: Json, path: str, read: ReadPdf) -> Json:
    """A message, or a tool's result, with texts in place of the PDF files of its content or output."""
    for field in ("content", "output"):
        parts = message.get(field) if isinstance(message, dict) else None
        if isinstance(parts, list):
            found = [await _part(part, f"{path}.{field}[{j}]", read) for j, part in enumerate(parts)]
            return {**message, field: found}
    return message


async def _part(part: Json, path: str, read: ReadPdf) -> Json:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "input_file":
        return await _file(part, path, read)
    if kind == "file" and isinstance(part.get("file"), dict):
        return {**part, "file": await _file(part["file"], f"{path}.file", read)}
    if kind == "document" and isinstance(part.get("source"), dict):
        return {**part, "source": await _source(part["source"], f"{path}.source", read)}
    return await _message(part, path, read) if kind == "tool_result" else part


async def _file(file: dict[str, Json], path: str, read: ReadPdf) -> dict[str, Json]:
    """A file's fields, its data as text if it is a PDF file."""
    text = await _text(file.get("file_data"), path, read)
    if text is None:
        return file
    return {**file, "file_data": f"data:text/plain;base64,{base64.b64encode(text.encode(errors='replace')).decode()}"}


async def _source(source: dict[str, Json], path: str, read: ReadPdf) -> dict[str, Json]:
    """The source of one of Anthropic's documents, its data as text if it is a PDF file."""
    text = await _text(source.get("data"), path, read) if source.get("type") == "base64" else None
    return source if text is None else {"type": "text", "media_type": "text/plain", "data": text}


async def _text(data: Json, path: str, read: ReadPdf) -> str | None:
    """The text of a PDF file in Base64 or a data URL; None: it is something else."""
    if not isinstance(data, str):
        return None
    try:
        found = bytes_of(data, path)
    except WispError:
        return None
    if not found.startswith(_BEGIN):
        return None
    try:
        text = await read(found)
    except ValueError as error:
        raise wrong_value(f"{path} is a PDF file that could not be read: {error}", path) from None
    if not text.strip():
        what = "is a PDF file without text: send its pages as pictures, in parts of the type image_url"
        raise wrong_value(f"{path} {what}.", path)
    return text
