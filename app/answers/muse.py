"""Parse answers of Muse Glimmer: messages, each with a header that names its recipient.

 to=self<|message|>thoughts<|eom|><|start|>assistant to=user<|message|>the answer
 to=NAME<|message|><atem:function_calls>...</atem:function_calls>

Markup of calls in a message to the user, or in thoughts, is text.
"""

import re

from app.answers.message_parser import MessageParser
from app.answers.parsing import Parser
from app.openai.answers import Delta

_RECIPIENT = re.compile(r"to=([\w.:-]+)")
_CUT = re.compile(r"(assistant\s*)?(to=[\w.:-]*\s*)?(<\|.*)?", re.DOTALL)  # a header that was cut off
_ENDS = ("<|eom|>", "<|eot|>", "<|start|>")


class MuseParser(MessageParser):
    """A parser of Muse Glimmer's answers: text in, deltas out."""

    def __init__(self, calls: Parser | None, split_reasoning: bool) -> None:
        """`calls`: the parser of messages to tools; None: they are content."""
        super().__init__(_ENDS, split_reasoning)
        self._calls = calls

    def finish(self, *, cut: bool = False) -> list[Delta]:
        if self._header is not None:
            out = self._unfinished_header(_CUT, cut=cut)
        else:
            out = self._part(self._until.held)
        return out + (self._calls.finish(cut=cut) if self._calls is not None else [])

    def _ended(self) -> list[Delta]:
        return self._calls.finish() if self._calls is not None else []

    def _begin(self, header: str, out: list[Delta]) -> str:
        recipient = _RECIPIENT.search(header)
        to = recipient[1] if recipient is not None else "user"
        if to == "self" and self._split:
            return "reasoning_content"
        return "call" if to not in ("self", "user") and self._calls is not None else "content"

    def _part(self, text: str) -> list[Delta]:
        if not text:
            return []
        if self._kind == "call" and self._calls is not None:
            return self._calls.push(text)
        return [{self._kind: text}]
