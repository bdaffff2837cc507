"""Parse the text of an answer into reasoning, content and tool calls while it is generated.

A parser is given pieces of text and returns deltas. Text that may become a marker is held back.
"""

from typing import Protocol

from app.answers.markers import Until
from app.openai.answers import Delta


class Parser(Protocol):
    """A parser of an answer: text in, deltas out."""

    reasoning: bool  # the model is thinking

    def push(self, text: str) -> list[Delta]:
        """The deltas that this text adds."""

    def finish(self, *, cut: bool = False) -> list[Delta]:
        """The deltas of the text that was held back, at the end of the answer.

        `cut`: a limit, a stop string or a stopping rule ended the answer. Then the beginning of a call is dropped.
        """


class PlainParser:
    """A parser that passes all text on as content."""

    reasoning = False

    def push(self, text: str) -> list[Delta]:
        return [{"content": text}] if text else []

    def finish(self, *, cut: bool = False) -> list[Delta]:
        return []


class ReasoningParser:
    """A parser that separates the reasoning from the answer. `inside`: the prompt itself opened the reasoning.

    `call`: what begins a call, if a call also ends the reasoning.
    """

    def __init__(self, tags: tuple[str, str], inside: bool, then: Parser, call: str = "") -> None:
        self._open, self._close = tags
        self._then = then
        self._until = Until([self._close, call])
        self._start: str | None = None if inside else ""  # the text so far, while it may become the opening tag,
        self._blanks: list[str] = []  # and the whitespace before it, in pieces
        self._strip = inside  # drop whitespace at the start of this part
        self.reasoning = inside

    def push(self, text: str) -> list[Delta]:
        if self._start is not None:
            self._start += text
            head = self._start.lstrip()
            self._blanks.append(self._start[: len(self._start) - len(head)])
            self._start = head
            if any(tag.startswith(head) and head != tag for tag in (self._open, self._close)):
                return []
            text, self._start = "".join([*self._blanks, head]), None
            if head.startswith(self._open):
                self.reasoning, self._strip, text = True, True, head[len(self._open) :]
            elif head.startswith(self._close):  # no thought, as MiniMax M3 writes it
                self._strip, text = True, head[len(self._close) :]
        if not self.reasoning:
            return self._answer(text)
        thought, closed, rest = self._until.push(text)
        out = self._thought(thought)
        if closed:
            self.reasoning, self._strip = False, True
            out += self._answer(rest if closed == self._close else closed + rest)
        return out

    def finish(self, *, cut: bool = False) -> list[Delta]:
        out: list[Delta] = []
        if self.reasoning:
            out = self._thought(self._until.held)
        elif self._start is not None:
            out = self._then.push("".join([*self._blanks, self._start]))
        return out + self._then.finish(cut=cut)

    def _thought(self, text: str) -> list[Delta]:
        text = self._stripped(text)
        return [{"reasoning_content": text}] if text else []

    def _answer(self, text: str) -> list[Delta]:
        return self._then.push(self._stripped(text))

    def _stripped(self, text: str) -> str:
        if self._strip:
            text = text.lstrip()
            self._strip = not text
        return text
