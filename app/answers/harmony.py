"""Parse answers of gpt-oss models: messages, each with a header that names its channel and recipient.

<|channel|>analysis<|message|>thoughts<|end|><|start|>assistant<|channel|>final<|message|>the answer
<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{"the": "arguments"}
"""

import re
from collections.abc import Callable

from app.answers.parsing import Until
from app.openai.answers import Delta

_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"to=functions\.([\w.:-]+)")
_CUT = re.compile(r"(assistant\s*)?(to=functions\..*)?(<\|.*)?", re.DOTALL)  # a header that was cut off
_MESSAGE = "<|message|>"
_MAX_HEADER = 300  # characters; a longer text is no header
_ENDS = ("<|end|>", "<|start|>", "<|channel|>", "<|call|>", "<|return|>")


class HarmonyParser:
    """A parser of gpt-oss answers: text in, deltas out."""

    def __init__(self, new_id: Callable[[], str], split_reasoning: bool) -> None:
        self._new_id, self._split = new_id, split_reasoning
        self._header: str | None = ""  # the header so far; None within a message
        self._until = Until(_ENDS)
        self._calls = 0
        self._kind = "content"
        self.reasoning = False

    def push(self, text: str) -> list[Delta]:
        out: list[Delta] = []
        while text:
            text = self._heading(text, out) if self._header is not None else self._body(text, out)
        return out

    def finish(self, *, cut: bool = False) -> list[Delta]:
        if self._header is not None:
            header, self._header = self._header.strip(), None
            return [] if not header or _CUT.fullmatch(header) or self._calls else [{"content": header}]
        return self._part(self._until.held)

    def _heading(self, text: str, out: list[Delta]) -> str:
        assert self._header is not None
        self._header = head = (self._header + text).lstrip()
        if not begins_header(head):
            self._header, self._kind = None, "content"  # a plain answer, without channels
            return head
        before, found, _ = head[: _MAX_HEADER + len(_MESSAGE)].partition(_MESSAGE)
        if not found and len(head) < _MAX_HEADER + len(_MESSAGE):
            return ""
        self._header = None
        if not found:
            self._kind = "content"
            out.append({"content": head[:_MAX_HEADER]})  # markers in it are text
            return head[_MAX_HEADER:]
        rest = head[len(before) + len(_MESSAGE) :]
        recipient, channel = _RECIPIENT.search(before), _CHANNEL.search(before)
        if recipient is not None:
            self._kind = "call"
            call = {"index": self._calls, "id": self._new_id(), "type": "function"}
            self._calls += 1
            out.append({"tool_calls": [{**call, "function": {"name": recipient[1], "arguments": ""}}]})
        else:
            thinks = channel is not None and channel[1] == "analysis"
            self._kind = "reasoning_content" if thinks and self._split else "content"
        self.reasoning = self._kind == "reasoning_content"
        return rest

    def _body(self, text: str, out: list[Delta]) -> str:
        before, marker, rest = self._until.push(text)
        out += self._part(before)
        if marker is not None:
            self._header, self.reasoning = marker if marker == "<|channel|>" else "", False
        return rest

    def _part(self, text: str) -> list[Delta]:
        if not text:
            return []
        if self._kind == "call":
            return [{"tool_calls": [{"index": self._calls - 1, "function": {"arguments": text}}]}]
        return [{self._kind: text}]


def begins_header(head: str) -> bool:
    """Whether a text is a header, or may become one. After <|start|>, it begins with "assistant"."""
    if "assistant".startswith(head):
        return True
    rest = head.removeprefix("assistant").lstrip()
    return any(marker.startswith(rest[: len(marker)]) for marker in ("<|", "to="))
