"""Answers and chunks of other servers in the one form that pages and programs read: text is text.

Servers differ: a text may come as a list of parts, or as null. What has no such meaning, such as a number in place of a
text, ends the answer with an error. Calls of functions stay as they are: app/sdk/call_parts.js reads them.
"""

import json
import math
from typing import Any

from app.upstreams import errors
from app.upstreams.server import Upstream

KINDS = ("chat.completions", "completions")
MAX_CHOICES = 128
TEXTS = ("content", "reasoning_content", "reasoning", "refusal", "text")
PARTS = ("text", "output_text")  # types of a text's parts
THOUGHTS = "reasoning_content"


class Unreadable(Exception):
    """It has a value of a type that means nothing there. The argument says what was expected."""


def read(upstream: Upstream, kind: str, answer: dict[str, Any], *, streamed: bool) -> dict[str, Any]:
    """The answer, or a chunk of it, with texts in their usual form. WispError upstream_error."""
    if kind not in KINDS:
        return answer
    try:
        choices = answer.get("choices")
        if choices is None and streamed:  # a chunk with the usage, or one that keeps the connection open
            choices = []
        if not isinstance(choices, list):
            raise Unreadable("a list of choices")
        if len(choices) > MAX_CHOICES:
            raise Unreadable(f"at most {MAX_CHOICES} choices")
        usage = answer.get("usage")
        counts = {"usage": usage if isinstance(usage, dict) else None} if "usage" in answer else {}
        return {**answer, "choices": [_choice(n, choice, streamed) for n, choice in enumerate(choices)], **counts}
    except Unreadable as error:
        raise errors.unexpected(upstream, str(error), json.dumps(answer)) from None


def _choice(n: int, choice: Any, streamed: bool) -> dict[str, Any]:
    if not isinstance(choice, dict):
        raise Unreadable("choices that are objects")
    index, reason = choice.get("index"), choice.get("finish_reason")
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < MAX_CHOICES:
        index = n
    if not isinstance(reason, str | None):
        raise Unreadable("a finish_reason that is text")
    read = {**_texts(choice), "index": index}
    if "logprobs" in choice:
        read["logprobs"] = choice["logprobs"] if _has_logprobs(choice["logprobs"]) else None
    part = "delta" if streamed else "message"
    if part in choice:
        message = {} if choice[part] is None else choice[part]
        if not isinstance(message, dict):
            raise Unreadable(f"a {part} that is an object")
        read[part] = _texts(message)
        if not isinstance(message.get("role", ""), str):
            read[part]["role"] = "assistant"
    return read


def _texts(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, with those of TEXTS as text or None. Thoughts among a text's parts become `reasoning_content`."""
    read = dict(fields)
    for name in TEXTS:
        if not isinstance(fields.get(name), str | None):
            text, thoughts = _text(name, fields[name])
            read[name] = text
            if thoughts:
                read[THOUGHTS] = (read.get(THOUGHTS) or "") + thoughts
    return read


def _text(name: str, value: Any) -> tuple[str, str]:
    """The text of its parts, and the thoughts among them."""
    if not isinstance(value, list):
        raise Unreadable(f"{name} that is text")
    texts, thoughts = [], []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, str):
            texts.append(part)
        elif kind in PARTS and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "thinking" and isinstance(part.get("thinking"), str | list):
            inner = part["thinking"]
            thoughts.append(inner if isinstance(inner, str) else _text(name, inner)[0])
        else:
            raise Unreadable(f"{name} that is text")
    return "".join(texts), "".join(thoughts)


def _has_logprobs(value: Any) -> bool:
    """Whether it has the form of log-probabilities, of chats or of completions."""
    if not isinstance(value, dict):
        return False
    content = value.get("content")
    if content is None:
        return True
    return isinstance(content, list) and all(
        _is_logprob(entry) and all(map(_is_logprob, entry.get("top_logprobs") or ())) for entry in content
    )


def _is_logprob(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("token"), str):
        return False
    number, top = entry.get("logprob"), entry.get("top_logprobs")
    if not isinstance(number, int | float) or isinstance(number, bool):
        return False
    return -math.inf <= number <= math.inf and isinstance(top, list | None)
