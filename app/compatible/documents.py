"""Anthropic's `document` and `search_result` blocks as the file parts of a chat.

app/openai/pdf.py has replaced PDF files by their texts.
"""

import base64

from app.openai.fields import Body, Json, text, unsupported, wrong_type, wrong_value

_FIELDS = ("type", "source", "title", "context", "citations", "cache_control")
_KINDS = ("base64", "text", "content")


def document_part(block: Body, path: str) -> dict[str, Json]:
    """The part of type "file" with a document's text, after its title and what its sender says about it."""
    for name in block:
        if name not in _FIELDS:
            raise unsupported(f"{path}.{name} is not a field that this engine knows; leave it out.", f"{path}.{name}")
    citations = block.get("citations")
    if isinstance(citations, dict) and citations.get("enabled"):
        raise unsupported(f"{path}.citations: this engine makes none; leave it out.", f"{path}.citations")
    heading = "\n".join(said for name in ("title", "context") if (said := text(block, name, f"{path}.{name}")))
    source, where = block.get("source"), f"{path}.source"
    if not isinstance(source, dict) or source.get("type") not in _KINDS:
        kinds = "'base64', 'text' or 'content': this engine stores and fetches no documents"
        raise wrong_value(f"{where}.type must be {kinds}.", f"{where}.type")
    if source["type"] == "content":
        data = _in_base64(_content(source.get("content"), f"{where}.content"))
    else:
        given = source.get("data")
        if not isinstance(given, str):
            raise wrong_type(f"{where}.data", "a string", given)
        data = given if source["type"] == "base64" else _in_base64(given)
    return {"type": "file", "file": {"filename": heading or None, "file_data": data}}


def search_result_part(block: Body, path: str) -> dict[str, Json]:
    """The part of type "file" with a search result's texts, after its title and where it was found."""
    heads = {"title": block.get("title"), "context": block.get("source")}
    rest = {name: block[name] for name in block if name not in ("source", "content", "title")}
    content = {"type": "content", "content": block.get("content")}
    return document_part(rest | heads | {"source": content}, path)


def _in_base64(content: str) -> str:
    """A text, in which "?" replaces halves of surrogate pairs."""
    return base64.b64encode(content.encode(errors="replace")).decode()


def _content(given: Json, path: str) -> str:
    """A text, or the texts of blocks."""
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise wrong_type(path, "a string or a list of blocks", given)
    texts = []
    for j, block in enumerate(given):
        found = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
        if not isinstance(found, str):
            raise wrong_value(f"{path}[{j}] must be a block of type 'text'.", f"{path}[{j}].type")
        texts.append(found)
    return "\n\n".join(texts)
