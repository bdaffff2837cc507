"""How tool calls are written in the text of an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.answers.call_heads import ID, NAME, NUMBER, parts_of
from app.answers.call_texts import CallTexts
from app.answers.tool_calls import CallParser
from app.constrain.ebnf import Grammar, literal
from app.openai.tools import Tool


@dataclass(frozen=True)
class Arguments:
    """How a call's arguments are written: as JSON, unless a subclass says otherwise."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts around arguments, which may be control tokens."""
        return ()

    def with_json(self, syntax: CallSyntax) -> CallSyntax:
        """The syntax with arguments in JSON, for schemas that the model's own form cannot enforce."""
        return syntax

    def rule(self, grammar: Grammar, syntax: CallSyntax, tool: Tool) -> str | None:
        """The rule of a call, from its head to its tail. None: the tool's schema can be enforced in JSON only."""
        return None

    def as_text(self, syntax: CallSyntax, calls: list[Any]) -> str:
        """Calls of an earlier answer, for a template that does not write calls."""
        return _as_text(self.with_json(syntax), calls)

    def parser(
        self, syntax: CallSyntax, new_id: Callable[[], str], tools: Sequence[Tool], prefix: str = ""
    ) -> CallParser:
        """The parser of an answer. `prefix`: the end of the prompt that belongs to the answer's syntax."""
        return CallParser(syntax, new_id, tools, prefix)


@dataclass(frozen=True)
class CallSyntax(CallTexts):
    """How calls are written: their texts, and their arguments."""

    arguments: Arguments = Arguments()


def head_rule(syntax: CallSyntax, name: str) -> str:
    """The rule of the head of a call of the tool `name`."""
    rules = {ID: syntax.ids.rule, NUMBER: "[0-9]{1,3}"}
    return " ".join(rules.get(part) or literal(part) for part in parts_of(syntax.head.replace(NAME, name)))


def _as_text(syntax: CallSyntax, calls: list[Any]) -> str:
    """Calls of an earlier answer, with arguments in JSON."""
    written, joint = [], f"{syntax.between}{syntax.trigger}" if syntax.joint is None else syntax.joint
    for i, call in enumerate(calls):
        function = call.get("function", {})
        name = json.dumps(str(function.get("name")), ensure_ascii=False)[1:-1]
        head = syntax.head.replace(NAME, name).replace(ID, str(call.get("id", ""))).replace(NUMBER, str(i))
        arguments = function.get("arguments") or {}
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        written.append(f"{head}{text}{syntax.tail}")
    return f"{syntax.trigger}{syntax.opening}{joint.join(written)}{syntax.closing}"
