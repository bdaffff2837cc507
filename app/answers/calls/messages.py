"""Tools, calls and their results in the messages of a prompt, as a template takes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from app.answers.calls.model_syntaxes import HERMES
from app.answers.calls.syntax import CallSyntax
from app.answers.calls.tool_results import in_answers, in_order_of_calls, takes_results_in_answers
from app.openai.tools import Tool
from py_engine.text.chat_template import ChatTemplate

Messages = list[dict[str, Any]]
GENERIC = (
    "You may call functions to help with the request. These are the functions, each described by a JSON schema:\n"
    "{tools}\n"
    "To call one, write a JSON object with its name and arguments between tags, and nothing after it:\n"
    '<tool_call>\n{{"name": "...", "arguments": {{...}}}}\n</tool_call>'
)


def in_plain_text(messages: Messages, tools: Sequence[Tool], broken: Callable[[str], str]) -> Messages:
    """The messages for a template that knows no tools: the system message describes these, calls are Hermes'.

    `broken`: breaks the special tokens in what other programs have written.
    """
    if not (tools or any(m.get("tool_calls") or m["role"] == "tool" for m in messages)):
        return messages
    out = [_as_text(m) for m in messages]
    if tools:
        description = GENERIC.format(tools=broken("\n".join(json.dumps(t.definition["function"]) for t in tools)))
        if out[0]["role"] == "system":
            out[0] = {**out[0], "content": _joined(out[0]["content"], description)}
        else:
            like = out[0]["content"]
            content: Any = [{"type": "text", "text": description}] if isinstance(like, list) else description
            out.insert(0, {"role": "system", "content": content})
    return out


def in_template(
    messages: Messages, template: ChatTemplate, syntax: CallSyntax, broken: Callable[[str], str]
) -> Messages:
    """The messages for a template that describes tools: calls as texts where it omits them, results where it has them.

    LFM2's and Granite 3's templates omit calls. DeepSeek V4's writes results without the ids of their calls.
    `broken`: as of in_plain_text().
    """
    if not syntax.ids.in_results:
        messages = in_order_of_calls(messages)
    if takes_results_in_answers(template.source):
        messages = in_answers(messages, broken)
    calling = any(m.get("tool_calls") for m in messages)
    if not calling or not template.forms.omits_calls:
        return messages
    return [_with_calls(message, syntax) for message in messages]


def _as_text(message: dict[str, Any]) -> dict[str, Any]:
    """A message with its calls, or the result of a tool, as text."""
    if message.get("tool_calls"):
        return _with_calls(message, HERMES)
    if message["role"] in ("tool", "function"):
        content = message["content"]
        text = "\n".join(part["text"] for part in content) if isinstance(content, list) else content
        description = f"<tool_response>\n{text}\n</tool_response>"
        return {
            "role": "user",
            "content": [{"type": "text", "text": description}] if isinstance(content, list) else description,
        }
    return message


def _with_calls(message: dict[str, Any], syntax: CallSyntax) -> dict[str, Any]:
    """The message with its calls as text at the end of its content."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return rest | {"content": _joined(rest["content"], syntax.arguments.as_text(syntax, calls))}


def _joined(content: Any, text: str) -> Any:
    """The content with a text at its end, after a blank line."""
    if not isinstance(content, list):
        return f"{content}\n\n{text}" if content else text
    if not content:
        return [{"type": "text", "text": text}]
    return [*content[:-1], {"type": "text", "text": _joined(content[-1]["text"], text)}]
