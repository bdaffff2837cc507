"""Parse answers of Muse Glimmer: messages, each with a header that names its recipient.

 to=self<|message|>thoughts<|eom|><|start|>assistant to=user<|message|>the answer
 to=NAME<|message|><atem:function_calls>...</atem:function_calls>

Markup of calls in a message to the user, or in thoughts, is text.
"""

import re

from app.answers.harmony import begins_header
from app.answers.parsing import Parser, Until
from app.openai.answers import Delta

_RECIPIENT = re.compile(r"to=([\w.:-]+)")
_CUT = re.compile(r"(assistant\s*)?(to=[\w.:-]*\s*)?(<\|.*)?", re.DOTALL)  # a header that was cut off
_MESSAGE = "<|message|>"
_MAX_HEADER = 300  # characters; a longer text is no header
_ENDS = ("<|eom|>", "<|eot|>", "<|start|>")


class MuseParser:
    """A parser of Muse Glimmer's answers: text in, deltas out."""

    def __init__(self, calls: Parser | None, split_reasoning: bool) -> None:
        """`calls`: the parser of messages to tools; None: they are content."""
        self._calls, self._split = calls, split_reasoning
        self._header: str | None = ""  # the header so far; None within a message
        self._until = Until(_ENDS)
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
            out: list[Delta] = [] if not header or _CUT.fullmatch(header) else [{"content": header}]
        else:
            out = self._part(self._until.held)
        return out + (self._calls.finish(cut=cut) if self._calls is not None else [])

    def _heading(self, text: str, out: list[Delta]) -> str:
        assert self._header is not None
        self._header = head = (self._header + text).lstrip()
        if not begins_header(head):
            self._header, self._kind = None, "content"  # a plain answer, without a header
            return head
        before, found, _ = head[: _MAX_HEADER + len(_MESSAGE)].partition(_MESSAGE)
        if not found and len(head) < _MAX_HEADER + len(_MESSAGE):
            return ""
        self._header = None
        if not found:
            self._kind = "content"
            out.append({"content": head[:_MAX_HEADER]})  # markers in it are text
            return head[_MAX_HEADER:]
        recipient = _RECIPIENT.search(before)
        to = recipient[1] if recipient is not None else "user"
        self._kind = "call" if to not in ("self", "user") and self._calls is not None else "content"
        if to == "self" and self._split:
            self._kind = "reasoning_content"
        self.reasoning = self._kind == "reasoning_content"
        return head[len(before) + len(_MESSAGE) :]

    def _body(self, text: str, out: list[Delta]) -> str:
        before, marker, rest = self._until.push(text)
        out += self._part(before)
        if marker is not None:
            self._header, self.reasoning = "", False
        return rest

    def _part(self, text: str) -> list[Delta]:
        if not text:
            return []
        if self._kind == "call" and self._calls is not None:
            return self._calls.push(text)
        return [{self._kind: text}]
