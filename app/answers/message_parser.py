"""Parse answers that are messages, each with a header that says what it is: those of gpt-oss and of Muse Glimmer."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence

from app.answers.markers import Until
from app.openai.answers import Delta

_MESSAGE = "<|message|>"
_MAX_HEADER = 300  # characters; a longer text is no header


class MessageParser(ABC):
    """A parser of messages: text in, deltas out. `ends`: the markers that end a message."""

    def __init__(self, ends: Sequence[str], split_reasoning: bool) -> None:
        self._split = split_reasoning
        self._header: str | None = ""  # the header so far; None within a message
        self._is_first = True  # of the messages
        self._until = Until(ends)
        self._kind = "content"
        self.reasoning = False

    def push(self, text: str) -> list[Delta]:
        out: list[Delta] = []
        while text:
            text = self._heading(text, out) if self._header is not None else self._body(text, out)
        return out

    def _heading(self, text: str, out: list[Delta]) -> str:
        assert self._header is not None
        self._header = head = (self._header + text).lstrip()
        if not begins_header(head):
            self._header, self._kind = None, "content"  # a plain answer, without headers
            return head
        before, found, _ = head[: _MAX_HEADER + len(_MESSAGE)].partition(_MESSAGE)
        if not found and len(head) < _MAX_HEADER + len(_MESSAGE):
            return ""
        self._header = None
        if not found:
            self._kind = "content"
            out.append({"content": head[:_MAX_HEADER]})  # markers in it are text
            return head[_MAX_HEADER:]
        self._kind = self._begin(before, out)
        self.reasoning = self._kind == "reasoning_content"
        return head[len(before) + len(_MESSAGE) :]

    def _body(self, text: str, out: list[Delta]) -> str:
        before, marker, rest = self._until.push(text)
        out += self._part(before)
        if marker is not None:
            out += self._ended()
            self._header, self.reasoning, self._is_first = self._header_after(marker), False, False
        return rest

    def _ended(self) -> list[Delta]:
        """The deltas of what was held back of a message, at its end."""
        return []

    def _unfinished_header(self, form: re.Pattern[str], *, cut: bool) -> list[Delta]:
        """The deltas of a header that the answer ends in. Text that looks like a header is dropped.

        The first one is text where nothing cut the answer and nothing marks it: an answer may be the word "assistant".
        """
        header, self._header = (self._header or "").strip(), None
        is_header = cut or not self._is_first or "<|" in header
        return [] if not header or (is_header and form.fullmatch(header)) else [{"content": header}]

    def _header_after(self, marker: str) -> str:
        """What the next header begins with, after a message that this marker has ended."""
        return ""

    @abstractmethod
    def _begin(self, header: str, out: list[Delta]) -> str:
        """The kind of the message after a header: "content", "reasoning_content" or "call"."""

    @abstractmethod
    def _part(self, text: str) -> list[Delta]:
        """The deltas of a part of a message."""


def begins_header(head: str) -> bool:
    """Whether a text is a header, or may become one. After <|start|>, it begins with "assistant"."""
    if "assistant".startswith(head):
        return True
    rest = head.removeprefix("assistant").lstrip()
    return any(marker.startswith(rest[: len(marker)]) for marker in ("<|", "to="))
