"""Requests to /v1/tokenize, as llama.cpp's server defines them."""

from dataclasses import dataclass
from typing import Protocol

from app.openai.fields import Body, Json, boolean, text, unsupported, whole, wrong_type

_KNOWN = frozenset(["content", "add_special", "parse_special", "with_pieces", "model"])


@dataclass(frozen=True)
class TokenizeRequest:
    """A checked request."""

    content: tuple[str | int, ...]  # texts, and token ids between them
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False
    model: str | None = None


class Tokenizer(Protocol):
    """The methods of a tokenizer that this endpoint calls."""

    def encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of a text."""

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""


def tokenize_request(body: Json) -> TokenizeRequest:
    """Check a request. WispError with the name of the wrong field."""
    if not isinstance(body, dict):
        raise wrong_type(None, "a JSON object as the request", body)
    fields: Body = body
    for name in fields:
        if name not in _KNOWN:
            raise unsupported(f"{name} is not a parameter of /v1/tokenize.", name)
    return TokenizeRequest(
        _content(fields.get("content")),
        boolean(fields, "add_special"),
        boolean(fields, "parse_special", True),
        boolean(fields, "with_pieces"),
        text(fields, "model"),
    )


def tokenized(request: TokenizeRequest, tokenizer: Tokenizer) -> dict[str, Json]:
    """The answer: {tokens: [id, ...]}, or with pieces {tokens: [{id, piece}, ...]}."""
    ids: list[int] = []
    for i, part in enumerate(request.content):
        if isinstance(part, int):
            ids.append(part)
        else:
            ids += tokenizer.encode(part, request.add_special and i == 0, request.parse_special)
    if not request.with_pieces:
        return {"tokens": ids}
    return {"tokens": [{"id": token, "piece": _piece(tokenizer.piece(token))} for token in ids]}


def _content(given: Json) -> tuple[str | int, ...]:
    """The parts of what is to be tokenized: a text, or a list of texts and token ids."""
    if isinstance(given, str):
        return (given,)
    parts = [part if isinstance(part, str) else whole(part) for part in given] if isinstance(given, list) else [None]
    if any(part is None or (isinstance(part, int) and part < 0) for part in parts):
        raise wrong_type("content", "a string, or a list of strings and token ids", given)
    return tuple(part for part in parts if part is not None)


def _piece(raw: bytes) -> str | list[int]:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return list(raw)
