"""The order of results of tools in a conversation, for templates that do not say to which call a result belongs."""

from __future__ import annotations

from itertools import groupby
from typing import Any

Messages = list[dict[str, Any]]


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
