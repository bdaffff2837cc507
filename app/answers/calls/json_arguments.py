"""Arguments in JSON: Hermes' <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>."""

from collections.abc import Callable, Sequence

from app.answers.calls.parser import CallParser
from app.answers.calls.syntax import Arguments, CallSyntax
from app.answers.parsing import Parser
from app.constrain.ebnf import Grammar, literal
from app.constrain.rules import schema_rule
from app.openai.tools import Tool


class JsonArguments(Arguments):
    """Arguments as one JSON object, with the members in the schema's order."""

    def with_json(self, syntax: CallSyntax) -> CallSyntax:
        return syntax

    def rule(self, grammar: Grammar, syntax: CallSyntax, tool: Tool) -> str:
        arguments = schema_rule(grammar, tool.parameters, tool.param, ordered=True)
        return f"{syntax.head_rule(tool.name)} {arguments} {literal(syntax.tail)}"

    def parser(self, syntax: CallSyntax, new_id: Callable[[], str], tools: Sequence[Tool], prefix: str = "") -> Parser:
        return CallParser(syntax, new_id, tools, prefix)


JSON = JsonArguments()
