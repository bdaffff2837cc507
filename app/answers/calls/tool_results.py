"""Results of tools in a conversation, in the order and the place in which a template takes them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from py_engine import json_input

Messages = list[dict[str, Any]]
_END = " "  # a text after results: the templates trim it, and end the turn, which stays open without a text


def in_order_of_calls(messages: Messages) -> Messages:
    """The messages with each group of results in the order of their calls. Users' messages between them stay in place.

    A result without a known call is one of the first call.
    """
    out: Messages = []
    order: dict[Any, int] = {}
    for answers, group in groupby(messages, lambda message: message["role"] not in ("user", "tool")):
        said = list(group)
        if answers:
            calls = next((m["tool_calls"] for m in reversed(said) if m.get("tool_calls")), None)
            order = order if calls is None else {call.get("id"): place for place, call in enumerate(calls)}
            out += said
            continue
        results = [m for m in said if m["role"] == "tool"]
        in_order = iter(sorted(results, key=lambda result: order.get(result.get("tool_call_id"), 0)))
        out += [next(in_order) if m["role"] == "tool" else m for m in said]
    return out


def takes_results_in_answers(source: str) -> bool:
    """Whether a template has results in the answer that called, not as messages, as Gemma 4's first ones."""
    return "tool_responses" in source and "= 'tool'" not in source.replace("prev_message_type = 'tool", "")


def in_answers(messages: Messages, broken: Callable[[str], str] = str) -> Messages:
    """The messages with results in the answer that called, and after them the text of the answer that follows.

    A text before calls is an answer of its own before them: in one message, the templates write texts after results.
    The thought of the answer that follows is left out: the templates write thoughts before calls only.
    `broken`: breaks the special tokens in a text; those of results may have been escaped in their JSON.
    """
    out: Messages = []
    calls: list[Any] = []
    for message in messages:
        turn = out[-1] if out and calls else None
        if message.get("role") == "tool" and turn is not None:
            results = turn["tool_responses"]
            asked = [call for call in calls if call.get("id") and call["id"] == message.get("tool_call_id")]
            call = (asked or calls[len(results) :] or [{}])[0]
            name = call.get("function", {}).get("name") or message.get("tool_call_id") or ""
            results.append({"name": name, "response": _response(message.get("content"), broken)})
        elif message["role"] == "assistant" and message.get("tool_calls"):
            calls = message["tool_calls"]
            if _has_text(message.get("content")):
                if turn is not None:
                    out[-1] = {**turn, "content": _END}
                out.append({"role": "assistant", "content": message["content"]})
            out.append({**message, "content": "", "tool_responses": []})
        elif message["role"] == "assistant" and turn is not None and _has_text(message.get("content")):
            out[-1], calls = {**turn, "content": message["content"]}, []
        else:
            out.append(message)
            calls = []
    return out


def _has_text(content: Any) -> bool:
    """Whether a content, a text or a list of parts, says anything."""
    texts = [part.get("text") for part in content] if isinstance(content, list) else [content]
    return any(text and text.strip() for text in texts)


def _response(content: Any, broken: Callable[[str], str]) -> Any:
    """A result as the value that it is in JSON, or its text."""
    if not isinstance(content, str):
        return content
    try:
        return _of_texts(json_input.parse(content, strict=True), broken)
    except ValueError:
        return content


def _of_texts(value: Any, change: Callable[[str], str]) -> Any:
    """The value with each of its texts changed, and each name of a member."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_of_texts(each, change) for each in value]
    if isinstance(value, dict):
        return {change(name): _of_texts(each, change) for name, each in value.items()}
    return value
