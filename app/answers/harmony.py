"""Parse answers of gpt-oss models: messages, each with a header that names its channel and recipient.

<|channel|>analysis<|message|>thoughts<|end|><|start|>assistant<|channel|>final<|message|>the answer
<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{"the": "arguments"}
"""

import re
from collections.abc import Callable

from app.answers.message_parser import MessageParser
from app.openai.answers import Delta

_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"to=functions\.([\w.:-]+)")
_CUT = re.compile(r"(assistant\s*)?(to=functions\..*)?(<\|.*)?", re.DOTALL)  # a header that was cut off
_ENDS = ("<|end|>", "<|start|>", "<|channel|>", "<|call|>", "<|return|>")


class HarmonyParser(MessageParser):
    """A parser of gpt-oss answers: text in, deltas out."""

    def __init__(self, new_id: Callable[[], str], split_reasoning: bool) -> None:
        super().__init__(_ENDS, split_reasoning)
        self._new_id, self._calls = new_id, 0

    def finish(self, *, cut: bool = False) -> list[Delta]:
        if self._header is not None:
            is_call = "to=functions." in self._header  # no text of an answer begins so
            found = self._unfinished_header(_CUT, cut=cut or is_call)
            return [] if self._calls else found
        return self._part(self._until.held)

    def _header_after(self, marker: str) -> str:
        return marker if marker == "<|channel|>" else ""

    def _begin(self, header: str, out: list[Delta]) -> str:
        recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
        if recipient is not None:
            call = {"index": self._calls, "id": self._new_id(), "type": "function"}
            self._calls += 1
            out.append({"tool_calls": [{**call, "function": {"name": recipient[1], "arguments": ""}}]})
            return "call"
        thinks = channel is not None and channel[1] == "analysis"
        return "reasoning_content" if thinks and self._split else "content"

    def _part(self, text: str) -> list[Delta]:
        if not text:
            return []
        if self._kind == "call":
            return [{"tool_calls": [{"index": self._calls - 1, "function": {"arguments": text}}]}]
        return [{self._kind: text}]
