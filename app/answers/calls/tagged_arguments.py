"""Tool calls with each argument between tags of its own, as of Qwen3-Coder, GLM, DeepSeek V3.2 and MiniMax M2.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

A string is written without quotes or escapes, any other value as JSON. Where null is allowed beside strings, `null` is
null. MiniCPM5 writes a string that has <, & or line
breaks as a CDATA section of XML. DeepSeek's tags say whether a value is a string. Some models at times write all
arguments as one JSON object. The parser accepts both; the grammar requires JSON where a tool's schema is more than a
list of plain properties.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.answers.calls.heads import KIND, NAME, head_pattern, pattern
from app.answers.calls.json_arguments import JSON
from app.answers.calls.json_end import JsonEnd
from app.answers.calls.parser import CallParser
from app.answers.calls.plain_schemas import (
    NOTES,
    bare_texts_of,
    flattened,
    is_text_or_null,
    properties_of,
    types_of,
)
from app.answers.calls.syntax import Arguments, CallSyntax
from app.answers.markers import Until
from app.answers.parsing import Parser
from app.constrain.ebnf import Grammar, either, literal, text_until
from app.constrain.rules import schema_rule
from app.openai.answers import Delta
from app.openai.tools import Tool
from py_engine import json_input

SECTION = ("<![CDATA[", "]]>")
_NESTED = frozenset(["array", "object"])
OTHER_TYPES = frozenset(["number", "integer", "boolean", "array", "object", "null"])


@dataclass(frozen=True)
class TaggedArguments(Arguments):
    """Each argument between two tags. Properties are in the schema's order."""

    begin: str  # %s: the key; %t: the kind of the value
    end: str  # may have the key, too
    sections: bool = False  # strings with <, & or line breaks are CDATA sections
    kinds: tuple[tuple[str, str], ...] = ()  # JSON's types -> the kind that the tag tells; "" -> that of other types
    nests: bool = False  # a value may have elements of its own name
    around_json: tuple[str, str] = ("", "")  # what stands around arguments that are one JSON object

    @property
    def texts(self) -> tuple[str, ...]:
        return self.begin, self.end

    def with_json(self, syntax: CallSyntax) -> CallSyntax:
        if syntax.joint is not None or not syntax.trigger.endswith(">"):
            begin, end = self.around_json
            return replace(syntax, head=syntax.head + begin, tail=end + syntax.tail, arguments=JSON)
        tail = f"}}\n</{syntax.trigger[1:]}"
        return replace(syntax, head='\n{"name": "%s", "arguments": ', tail=tail, arguments=JSON)

    def rule(self, grammar: Grammar, syntax: CallSyntax, tool: Tool) -> str | None:
        properties = properties_of(tool.parameters)
        if properties is None or not all(re.fullmatch(r"[^\"\s<>\[\]{}]+", name) for name in properties):
            return None
        rules = [syntax.head_rule(tool.name)]
        for name, schema in properties.items():
            rule = self._argument(grammar, name, schema, tool.param)
            if rule is None:
                return None
            rules.append(rule if name in tool.parameters.get("required", []) else f"({rule})?")
        return " ".join([*rules, literal(syntax.tail)])

    def parser(self, syntax: CallSyntax, new_id: Callable[[], str], tools: Sequence[Tool], prefix: str = "") -> Parser:
        return TaggedCallParser(syntax, self, new_id, tools)

    def _argument(self, grammar: Grammar, name: str, schema: Mapping[str, Any], param: str) -> str | None:
        """The rule of an argument with its tags; None if the value cannot be enforced between tags."""
        begin, end = self.begin.replace(NAME, name), self.end.replace(NAME, name)
        if KIND not in begin:
            return _after_begin(begin, self.value(grammar, schema, param, end))
        types: dict[str, list[str]] = {}  # by the kind that the tag tells
        for type in sorted(types_of(schema)):
            types.setdefault(self.kind(type), []).append(type)
        if len(types) > 1 and not schema.keys() <= NOTES | {"type"}:
            return None
        of_types = ({**schema, "type": some if len(some) > 1 else some[0]} for some in types.values())
        rules = [
            _after_begin(begin.replace(KIND, kind), self.value(grammar, given, param, end))
            for kind, given in zip(types, of_types, strict=True)
        ]
        return None if None in rules else either(filter(None, rules))

    def kind(self, type: str) -> str:
        """What a tag tells of a value of a type of JSON."""
        kinds = dict(self.kinds)
        return kinds.get(type) or kinds.get("", type)

    def value(self, grammar: Grammar, schema: Mapping[str, Any], param: str, end: str) -> str | None:
        """The rule of a value and the end tag. None: a string's schema has keywords other than `enum`."""
        if types_of(schema) <= OTHER_TYPES:
            return f"{schema_rule(grammar, schema, param, ordered=True)} {literal(end)}"
        texts, stop = bare_texts_of(schema), end.rstrip()
        if texts is None:
            return None
        if texts:
            ends = (stop, SECTION[1]) if self.sections else (stop,)
            ambiguous = any(mark in text for text in texts for mark in ends)
            return None if ambiguous else f"{either(literal(self._written(text)) for text in texts)} {literal(end)}"
        if self.sections:
            return f"({literal(SECTION[0])} {grammar.add('text', text_until(SECTION[1]))} | [^<&\\n]*) {literal(end)}"
        return f"{grammar.add('text', text_until(stop))} {literal(end.removeprefix(stop))}"

    def as_json(self, raw: str, schema: Any) -> str:
        """A value that is no string, or may be none, as JSON. `schema`: its own, if the tool's is one."""
        if isinstance(schema, dict) and is_text_or_null(schema) and raw.strip() != "null":
            return json.dumps(raw, ensure_ascii=False)
        return as_json(raw)

    def _written(self, text: str) -> str:
        needs_section = self.sections and any(char in text for char in "<&\n")
        return f"{SECTION[0]}{text}{SECTION[1]}" if needs_section else text


def _after_begin(begin: str, value: str | None) -> str | None:
    """The rule of a begin tag and what follows it."""
    return None if value is None else f"{literal(begin)} {value}"


class TaggedCallParser(CallParser):
    """A parser of content and calls with tagged arguments, whose values become JSON."""

    def __init__(
        self, syntax: CallSyntax, arguments: TaggedArguments, new_id: Callable[[], str], tools: Sequence[Tool]
    ) -> None:
        super().__init__(arguments.with_json(syntax), new_id, tools)
        self._first_heads.append(syntax.opening + syntax.head)
        self._tagged_head = re.compile(rf"\s*+{pattern(syntax.opening)}\s*+{head_pattern(syntax.head)}\s*+(?=[<\]])")
        self._next_head = re.compile(
            rf"\s*+{pattern(syntax.joint or '')}\s*+{head_pattern(syntax.head)}\s*+(?=[<{{\]])"
        )
        self._block_end = re.compile(rf"\s*+{pattern(syntax.closing)}")
        self._key = re.compile(rf"\s*+{head_pattern(arguments.begin)}")
        self._tagged_end = re.compile(rf"\s*+{pattern(syntax.tail)}")
        self._json_begin = re.compile(rf"\s*+{pattern(arguments.around_json[0])}\s*+(?=\{{)")
        self._json_end = re.compile(rf"\s*+(?:{pattern(arguments.around_json[1])}\s*+)?{pattern(syntax.tail)}")
        self._on_lines = arguments.begin.endswith("\n")  # line breaks separate a value from its tags
        self._form = arguments
        self._value_ends: list[str] = []  # of the argument that arrives
        self._inner, self._depth = "", 0  # a begin tag of the same name in its value, and how many are open
        self._schema: Any = {}
        self._schemas = {tool.name: tool.parameters.get("properties", {}) for tool in tools}
        self._text_kind = arguments.kind("string") if arguments.kinds else None
        self._properties: Mapping[str, Any] = {}
        self._value = Until([])
        self._is_text = False
        self._nested: JsonEnd | None = None  # of an array or object, until it has ended
        self._raw: list[str] = []  # a value that may be JSON, so far, in pieces
        self._at_begin = False  # a line break that comes now is dropped: it follows the begin tag

    def _naming(self, text: str, out: list[Delta]) -> str:
        self._buffer += text
        found = self._limited_match(self._tagged_head)
        if found is None:
            return super()._naming("", out)
        return self._begin_tagged(found, out)

    def _begin_tagged(self, found: re.Match[str], out: list[Delta]) -> str:
        rest = self._begin(found, out)
        self._properties = self._schemas.get(found["name"], {})
        self._state = self._between
        return rest

    def _ended(self) -> None:
        """A call has ended: another one of its block may follow."""
        if self._syntax.joint is None:
            self._state, self._called = self._free, True
        else:
            self._state, self._called = self._after, False

    def _ending(self, text: str, out: list[Delta]) -> str:
        if self._syntax.joint is None:
            return super()._ending(text, out)
        self._buffer += text
        found = self._limited_match(self._json_end)
        if found is None and len(self._buffer) <= self.MAX_HEAD:
            return ""
        rest, self._buffer = self._buffer[found.end() if found else 0 :], ""
        self._ended()
        return rest

    def _after(self, text: str, out: list[Delta]) -> str:
        """After a call of a block: the next one, or the end of the block."""
        self._buffer += text
        if found := self._limited_match(self._next_head):
            begin = self._begin if self._buffer[found.end()] == "{" else self._begin_tagged
            return begin(found, out)
        if (found := self._limited_match(self._block_end)) or len(self._buffer) > self.MAX_HEAD:
            rest, self._buffer = self._buffer[found.end() if found else 0 :], ""
            self._state, self._called = self._free, True
            return rest
        return ""

    def _between(self, text: str, out: list[Delta]) -> str:
        """Between arguments: the next one, or the end of the call."""
        self._buffer += text
        ended = self._limited_match(self._tagged_end)  # it may look like a begin tag
        if ended is None and (found := self._limited_match(self._key)):
            if self._form.nests and found["name"].startswith("/"):
                return self._stray_end(found, out)
            rest, self._buffer = self._buffer[found.end() :], ""
            if not self._n_arguments:
                self._emit_arguments("{", out)
            self._emit_key(found["name"], out)
            self._schema = schema = flattened(self._properties.get(found["name"], {}))
            types = types_of(schema) if isinstance(schema, dict) else frozenset()
            end = self._form.end.replace(NAME, found["name"]).rstrip()  # a string may have the tag without line break
            self._value_ends = [end, SECTION[0]] if self._form.sections else [end]
            self._inner, self._depth = "", 0
            said = self._text_kind is not None and found["kind"] == self._text_kind
            self._is_text = types == {"string"} or (said and (not types or "string" in types))
            self._nested = JsonEnd() if types & _NESTED and not self._is_text else None
            if self._form.nests and not self._is_text:
                self._inner = self._form.begin.replace(NAME, found["name"])
            self._value, self._raw, self._at_begin = Until([*self._value_ends, self._inner]), [], self._on_lines
            if self._is_text:
                self._emit_arguments('"', out)
            self._state = self._in_value
            return rest
        if ended is None and not self._n_arguments and (found := self._limited_match(self._json_begin)):
            rest, self._buffer = self._buffer[found.end() :], ""
            self._state = self._arguments
            return rest
        if ended is not None or len(self._buffer) > self.MAX_HEAD:
            return self._end_call(ended.end() if ended else 0, out)
        return ""

    def _end_call(self, at: int, out: list[Delta]) -> str:
        """End a call whose arguments came one by one. `at`: where the buffer's text after it begins."""
        self._emit_arguments("}" if self._n_arguments else "{}", out)
        rest, self._buffer = self._buffer[at:], ""
        self._ended()
        return rest

    def _stray_end(self, tag: re.Match[str], out: list[Delta]) -> str:
        """An end tag in place of an argument: that of the block ends the call, others are dropped.

        A string that has an element of its own name ends with that element, and its own end tag is left.
        """
        if self._limited_match(self._block_end):
            return self._end_call(0, out)
        rest, self._buffer = self._buffer[tag.end() :], ""
        return rest

    def _in_nested(self, text: str, nested: JsonEnd) -> str:
        """In an array or object, whose strings may have the end tag."""
        if not self._raw:
            self._buffer += text
            head = self._buffer.lstrip()
            if not head and len(self._buffer) <= self.MAX_HEAD:
                return ""
            text, self._buffer = self._buffer, ""
            if head[:1] not in ("[", "{"):
                self._nested = None
                return text
        length = nested.push(text)
        self._raw.append(text[:length])
        self._nested = None if nested.done else nested
        return text[length:]

    def _in_value(self, text: str, out: list[Delta]) -> str:
        if self._nested is not None:
            return self._in_nested(text, self._nested)
        before, marker, rest = self._value.push(text)
        if self._at_begin and before:
            before, self._at_begin = before.removeprefix("\n"), False
        if self._is_text:
            self._emit_arguments(json.dumps(before, ensure_ascii=False)[1:-1], out)
        else:
            self._raw.append(before)
        if marker is None:
            return rest
        if marker == self._inner or self._depth:
            self._raw.append(marker)
            self._depth += 1 if marker == self._inner else -1
            return rest
        if marker in SECTION:
            self._value = Until([SECTION[1]] if marker == SECTION[0] else self._value_ends)
            return rest
        self._emit_arguments('"' if self._is_text else self._form.as_json("".join(self._raw), self._schema), out)
        self._state = self._between
        return rest


def as_json(raw: str) -> str:
    """A value as JSON: numbers, objects and so on as they are; anything else becomes a string, its quotes included."""
    try:
        value = json_input.parse(raw, strict=True)
    except ValueError:
        value = raw
    return json.dumps(raw, ensure_ascii=False) if isinstance(value, str) else raw.strip()
