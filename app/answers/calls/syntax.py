"""The syntax of tool calls: the texts around a call and its arguments. `model_syntaxes.py` has those of all models."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from app.answers.calls.heads import ID, NAME, NUMBER, parts_of
from app.answers.parsing import Parser
from app.constrain.ebnf import Grammar, literal
from app.openai.tools import Tool


class Place(Enum):
    """Where calls may stand in an answer."""

    CONTENT = "content"  # before, within and after content
    START = "start"  # at the start of an answer only
    THOUGHT = "thought"  # as CONTENT; one within a thought ends it


@dataclass(frozen=True)
class CallIds:
    """The ids of calls.

    The model writes an id in Solar Open's <|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>weather: `rule` describes it.
    Kimi K2's template refers to the first call of weather as functions.weather:0: `made="functions.%s:%d"`.
    Any other call gets a random id. Mistral's template takes 9 letters and digits: `length=9`.
    """

    made: str = ID  # a call's id, made of what its head has: ID, NAME, NUMBER
    rule: str = "[a-zA-Z0-9]{9}"  # of an id that the model writes
    length: int = 0  # letters and digits of a random id; 0: the template takes any
    in_results: bool = True  # the template writes a result with its call's id; without, the order of calls tells


@dataclass(frozen=True)
class Reply:
    """The markers around an answer's content, and between it, a thought and calls.

    Solar Open's <|content|>Let me see.<|end|><|begin|>assistant<|tool_calls|>... has the content around="<|content|>",
    "<|end|>", and is resumed="<|begin|>assistant" before the calls.
    """

    markers: tuple[str, ...] = ()  # all that may stand around content; the parser drops them
    always: bool = False  # they stand there in answers without tools, too, as in Command R's <|START_RESPONSE|>Hi.
    around: tuple[str, str] = ("", "")  # what a form of the answer stands between; "": nothing does
    first: bool = False  # content comes before calls, if only an empty one
    resumed: str = ""  # between two parts of an answer


@dataclass(frozen=True)
class CallSyntax:
    """How a kind of model writes calls.

    A block of calls is the trigger, the opening, calls with the joint between two, and the closing. A call is its head,
    the arguments, and the tail. Granite's <|tool_call|>[{"name": "time", "arguments": {}}, {"name": "date", ... has

        trigger="<|tool_call|>", opening="[", head='{"name": "%s", "arguments": ', tail="}", joint=", ", closing="]"

    Parsers match whitespace between symbols loosely.
    """

    name: str
    arguments: Arguments
    trigger: str
    head: str  # with NAME; ID and NUMBER where calls have them
    tail: str = ""
    opening: str = ""
    joint: str | None = None  # between two calls of one block; None: a block has one call
    closing: str = ""
    between: str = ""  # between two blocks
    place: Place = Place.CONTENT
    single: bool = False  # an answer has one call at most
    token: str = ""  # the control token with which calls begin, if that is not the trigger
    ids: CallIds = CallIds()
    reply: Reply = Reply()

    @property
    def first_token(self) -> str:
        """The text of the control token with which calls begin."""
        return self.token or self.trigger

    @property
    def opens_content(self) -> bool:
        """Whether content begins with the trigger, too: Functionary's >>>all. A prompt may end with it."""
        return any(marker.startswith(self.trigger) for marker in self.reply.markers)

    def head_rule(self, name: str) -> str:
        """The rule of the head of a call of the tool `name`."""
        rules = {ID: self.ids.rule, NUMBER: "[0-9]{1,3}"}
        return " ".join(rules.get(part) or literal(part) for part in parts_of(self.head.replace(NAME, name)))

    def id_of(self, name: str, id: str, number: str) -> str:
        """The id of a call whose head has these; "" if it gets a random one."""
        return self.ids.made.replace(ID, id).replace(NUMBER, number).replace(NAME, name)


@dataclass(frozen=True)
class Arguments(ABC):
    """How the arguments of calls are written: as JSON (`json_arguments.py`), or in a form of the model's own."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts around arguments, which may be control tokens."""
        return ()

    @abstractmethod
    def with_json(self, syntax: CallSyntax) -> CallSyntax:
        """The syntax with arguments in JSON, for schemas that the model's own form cannot enforce."""

    @abstractmethod
    def rule(self, grammar: Grammar, syntax: CallSyntax, tool: Tool) -> str | None:
        """The rule of a call, from its head to its tail. None: the tool's schema can be enforced in JSON only."""

    @abstractmethod
    def parser(self, syntax: CallSyntax, new_id: Callable[[], str], tools: Sequence[Tool], prefix: str = "") -> Parser:
        """The parser of content and calls. `prefix`: the end of the prompt that belongs to the answer's syntax."""

    def as_text(self, syntax: CallSyntax, calls: list[Any]) -> str:
        """Calls of an earlier answer, for a template that does not write calls."""
        return _json_text(self.with_json(syntax), calls)


def _json_text(syntax: CallSyntax, calls: list[Any]) -> str:
    """Calls of an earlier answer in a syntax whose arguments are JSON."""
    written, joint = [], f"{syntax.between}{syntax.trigger}" if syntax.joint is None else syntax.joint
    for i, call in enumerate(calls):
        function = call.get("function", {})
        name = json.dumps(str(function.get("name")), ensure_ascii=False)[1:-1]
        head = syntax.head.replace(NAME, name).replace(ID, str(call.get("id", ""))).replace(NUMBER, str(i))
        arguments = function.get("arguments") or {}
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        written.append(f"{head}{text}{syntax.tail}")
    return f"{syntax.trigger}{syntax.opening}{joint.join(written)}{syntax.closing}"
