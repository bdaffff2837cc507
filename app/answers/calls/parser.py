"""Parse calls and content out of an answer while it arrives: <tool_call>{"name": "time", ...}</tool_call>."""

import json
import re
from collections.abc import Callable, Sequence

from app.answers.calls.heads import NAME, begins_head, head_pattern, pattern
from app.answers.calls.json_end import JsonEnd
from app.answers.calls.syntax import CallSyntax, Place
from app.answers.markers import Until
from app.openai.answers import Delta
from app.openai.tools import Tool


class CallParser:
    """A parser of content and of calls with arguments in JSON. Its subclasses parse arguments in other forms."""

    reasoning = False
    MAX_HEAD = 300  # characters; longer text is not a head or tail

    def __init__(self, syntax: CallSyntax, new_id: Callable[[], str], tools: Sequence[Tool], prefix: str = "") -> None:
        """`prefix`: the end of the prompt that belongs to the answer's syntax."""
        self._syntax, self._new_id = syntax, new_id
        self._names = [tool.name for tool in tools]
        self._first_heads = [syntax.opening + syntax.head]  # in each form that a first call may have
        self._until = Until([syntax.trigger, *syntax.reply.markers])
        head = head_pattern(syntax.head)
        self._head = re.compile(rf"\s*+{pattern(syntax.opening)}\s*+{head}\s*+(?=\{{)")
        tail = rf"\s*+{pattern(syntax.tail)}\s*+" if syntax.tail else r"\s*+"
        self._end = re.compile(tail + pattern(syntax.closing))
        self._next = (
            None if syntax.joint is None else re.compile(rf"{tail}{pattern(syntax.joint)}\s*+{head}\s*+(?=\{{)")
        )
        self._begin_message()
        self._json = JsonEnd()
        self._calls = 0
        self._ids = set[str]()  # that the model has chosen
        self._n_arguments = 0  # of the call that arrives, where they come one by one
        if prefix:
            self.push(prefix)

    def _begin_message(self) -> None:
        """Be ready for the first text of a message. Calls are counted on."""
        self._until.held = ""
        self._state = self._start if self._syntax.place is Place.START else self._free
        self._buffer = ""  # an incomplete head or tail; at the start, text that may become a call
        self._blanks: list[str] = []  # whitespace held back, in pieces: dropped before a call
        self._called = False  # a call has just ended

    def push(self, text: str) -> list[Delta]:
        out: list[Delta] = []
        while text:
            text = self._state(text, out)
        return out

    def finish(self, *, cut: bool = False) -> list[Delta]:
        """The deltas of the text that was held back, at the end of a message. Another one may follow."""
        out = self._held(cut)
        self._begin_message()
        return out

    def _held(self, cut: bool) -> list[Delta]:
        out: list[Delta] = []
        if cut and self._begins_call():
            return out
        if self._state == self._free:
            held = self._until.held
            self._emit_content("" if held in self._syntax.reply.markers else held, out)
        elif self._state == self._start:
            self._emit_content(self._buffer, out)
        elif self._state == self._naming:
            self._emit_content(self._syntax.trigger + self._buffer, out)
        if self._blanks and not self._calls:
            out.append({"content": "".join(self._blanks)})
        return out

    def _begins_call(self) -> bool:
        """Whether what is held back is the beginning of a call, up to its head's end.

        A part of a marker counts if it has a letter: "<" alone, or "[", is usual text, too.
        """
        if self._state == self._naming:
            heads = (head.replace(NAME, name) for head in self._first_heads for name in self._names)
            return any(begins_head(self._buffer, head) for head in heads)
        held = self._until.held if self._state == self._free else self._buffer.lstrip()
        markers = (self._syntax.trigger, *self._syntax.reply.markers)
        begun = any(map(str.isalpha, held)) and any(marker.startswith(held) for marker in markers)
        return begun or held == self._syntax.trigger

    def _emit_content(self, text: str, out: list[Delta]) -> None:
        """Emit content. Whitespace at its end is held back, because it is dropped before a call."""
        if self._called:  # blanks after a call are its tail's
            text = text.lstrip()
            self._called = not text
        body = text.rstrip()
        if body:
            out.append({"content": "".join([*self._blanks, body])})
            self._blanks = []
        if len(body) < len(text):
            self._blanks.append(text[len(body) :])

    # -- states: each takes text, adds its deltas to `out`, and returns the text that the next state takes

    def _start(self, text: str, out: list[Delta]) -> str:
        self._buffer += text
        head = self._buffer.lstrip()
        late = len(self._buffer) - len(head) > self.MAX_HEAD  # no call comes after so many blanks
        for trigger in () if late else filter(None, (self._syntax.trigger, *self._syntax.reply.markers)):
            if trigger.startswith(head):
                return ""
            if head.startswith(trigger) and trigger != self._syntax.trigger:
                self._buffer = ""
                return head[len(trigger) :]
        if head.startswith(self._syntax.trigger) and not late:
            self._state, self._buffer = self._naming, ""
            return head[len(self._syntax.trigger) :]
        self._state, text, self._buffer = self._rest, self._buffer, ""
        return text

    def _rest(self, text: str, out: list[Delta]) -> str:
        self._emit_content(text, out)
        return ""

    def _free(self, text: str, out: list[Delta]) -> str:
        before, marker, rest = self._until.push(text)
        self._emit_content(before, out)
        if marker == self._syntax.trigger:
            self._state, self._buffer = self._naming, ""
        return rest

    def _naming(self, text: str, out: list[Delta]) -> str:
        self._buffer += text
        found = self._limited_match(self._head)
        if found is not None:
            return self._begin(found, out)
        if len(self._buffer) <= self.MAX_HEAD:
            return ""
        self._emit_content(self._syntax.trigger, out)  # alone: another one may follow in the buffer
        self._state, rest, self._buffer = self._free, self._buffer, ""
        return rest

    def _limited_match(self, regex: re.Pattern[str]) -> re.Match[str] | None:
        """The match at the buffer's start; None if it is longer than MAX_HEAD, whatever the pieces of the text were."""
        found = regex.match(self._buffer)
        return None if found is None or found.end() > self.MAX_HEAD else found

    def _begin(self, found: re.Match[str], out: list[Delta]) -> str:
        rest, self._buffer = self._buffer[found.end() :], ""
        groups = {"id": "", "number": "", **found.groupdict()}
        chosen = self._syntax.id_of(found["name"], groups["id"], groups["number"])
        call_id = self._new_id() if not chosen or chosen in self._ids else chosen
        self._ids.add(call_id)
        call = {"index": self._calls, "id": call_id, "type": "function"}
        out.append({"tool_calls": [{**call, "function": {"name": found["name"], "arguments": ""}}]})
        self._calls, self._n_arguments = self._calls + 1, 0
        self._json, self._state, self._blanks = JsonEnd(), self._arguments, []
        return rest

    def _emit_arguments(self, text: str, out: list[Delta]) -> None:
        """Emit a piece of a call's arguments."""
        if text:
            out.append({"tool_calls": [{"index": self._calls - 1, "function": {"arguments": text}}]})

    def _emit_key(self, key: str, out: list[Delta]) -> None:
        """Emit the key of an argument, where arguments come one by one."""
        separator = ", " if self._n_arguments else ""
        self._emit_arguments(f"{separator}{json.dumps(key, ensure_ascii=False)}: ", out)
        self._n_arguments += 1

    def _arguments(self, text: str, out: list[Delta]) -> str:
        length = self._json.push(text)
        self._emit_arguments(text[:length], out)
        if self._json.done:
            self._state, self._buffer = self._ending, ""
        return text[length:]

    def _may_be_joint(self, rest: str) -> bool:
        """Whether the text after a call is the joint before the next call, or may become it."""
        if self._syntax.joint is None or self._syntax.closing or len(rest) > self.MAX_HEAD:
            return False
        arrived, joint = ("".join(text.split()) for text in (rest, self._syntax.joint))
        return joint.startswith(arrived) or arrived.startswith(joint)

    def _ending(self, text: str, out: list[Delta]) -> str:
        self._buffer += text
        found = self._limited_match(self._next) if self._next is not None else None
        if found is not None:
            return self._begin(found, out)
        found = self._limited_match(self._end)
        if found is not None and self._may_be_joint(self._buffer[found.end() :]):
            return ""
        if found is not None and (self._syntax.tail or self._syntax.closing or found.end() < len(self._buffer)):
            rest, self._buffer = self._buffer[found.end() :], ""
            self._state, self._called = self._free, True
            return rest
        if len(self._buffer) > self.MAX_HEAD:
            self._state, rest, self._buffer = self._free, self._buffer, ""
            return rest
        return ""
