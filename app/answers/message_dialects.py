"""Dialects whose answers are messages with headers, which tell what a message is and to whom it goes."""

from __future__ import annotations

import os
import re

from app.answers.dialect import Dialect, Rules
from app.answers.harmony import HarmonyParser
from app.answers.muse import MuseParser
from app.answers.parsing import Parser
from app.constrain.ebnf import Grammar, either, literal, quick_rules, text_until
from app.constrain.rules import schema_rule
from app.openai.answers import RandomBytes
from app.openai.formats import Format
from app.openai.tools import Tool


class Harmony(Dialect):
    """gpt-oss: messages in channels. A call is a message to a function."""

    heads = re.compile(r"((?:<\|end\|><\|start\|>assistant)?<\|channel\|>\w+<\|message\|>)")
    markers = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>")

    def parser(self, prompt: str, split_reasoning: bool, random_bytes: RandomBytes = os.urandom) -> Parser:
        return HarmonyParser(lambda: self.new_id(random_bytes), split_reasoning)

    def _analysis(self, grammar: Grammar) -> str:
        thought = grammar.add("thought", text_until("<|end|>"))
        begin, again = literal("<|channel|>analysis<|message|>"), literal("<|start|>assistant")
        return f"({begin} {thought} {again})*"

    def _rules(self, form: Format | None) -> Rules:
        tools = self._tools
        grammar, (formed, call) = quick_rules(lambda grammar: self._parts(grammar, form))
        analysis = self._analysis(grammar)
        options = []
        to = literal("<|channel|>commentary to=functions.")
        if form is not None:
            final = literal("<|channel|>final<|message|>")
            options.append(f"{analysis} {final} {formed}")
        if tools.tools and (form is not None or tools.required):
            options.append(f"{analysis} {to} {call}")
        if tools.tools and form is None and not tools.required:
            trigger = literal("to=functions.")
            options.append(f"TagDispatch(({trigger}, {call}), stop_eos=true, loop_after_dispatch=false)")
        text = grammar.text(grammar.add("answer", either(options) if len(options) > 1 else options[0]))
        return lambda _: text

    def _block(self, grammar: Grammar) -> str:
        return grammar.add("call", either(self._call(grammar, t) for t in self._tools.tools))

    def _call(self, grammar: Grammar, tool: Tool) -> str:
        arguments = schema_rule(grammar, tool.parameters, tool.param, ordered=True)
        kind = (
            f"({literal('<|channel|>commentary')})? ({literal(' ')} ({literal('<|constrain|>')})? {literal('json')})?"
        )
        return f"{literal(tool.name)} {kind} {literal('<|message|>')} {arguments}"


class Muse(Dialect):
    """Muse Glimmer: messages to itself, to the user, and to tools."""

    @property
    def markers(self) -> tuple[str, ...]:
        return *super().markers, "<|start|>", "<|message|>", "<|eom|>", "<|eot|>"

    def parser(self, prompt: str, split_reasoning: bool, random_bytes: RandomBytes = os.urandom) -> Parser:
        given = self._tools.tools
        calls = self.syntax.arguments.parser(self.syntax, lambda: self.new_id(random_bytes), given) if given else None
        return MuseParser(calls, split_reasoning)

    def _rules(self, form: Format | None) -> Rules:
        tools = self._tools
        grammar, (formed, call) = quick_rules(lambda grammar: self._parts(grammar, form))
        again = literal("<|eom|><|start|>assistant")
        start = literal("<|start|>assistant")
        thought = f"{literal(' to=self<|message|>')} {grammar.add('thought', text_until('<|eom|>'))} {start}"
        more = f"({again} {call})*" if self._several else ""
        options = []
        if form is not None:
            options.append(f"({thought})* ({literal(' to=user')})? {literal('<|message|>')} {formed}")
        if tools.tools and (form is not None or tools.required):
            options.append(f"({thought})* {call} {more}")
        elif tools.tools:
            block = either(self._calls_to(grammar, tool) for tool in tools.tools)
            trigger, loop = literal(f"<|message|>{self.syntax.trigger}"), str(self._several).lower()
            tag = f"({trigger}, {grammar.add('block', block)})"
            options.append(f"TagDispatch({tag}, stop_eos=true, loop_after_dispatch={loop})")
        text = grammar.text(grammar.add("answer", either(options)))
        return lambda _: text

    def _block(self, grammar: Grammar) -> str:
        def message(tool: Tool) -> str:
            return f"{literal(f' to={tool.name}<|message|>{self.syntax.trigger}')} {self._calls_to(grammar, tool)}"

        return grammar.add("call", either(map(message, self._tools.tools)))

    def _calls_to(self, grammar: Grammar, tool: Tool) -> str:
        """The rule of a call after the trigger."""
        key = "calls to", tool.name
        if key not in grammar.known:
            begin, end = literal(self.syntax.opening), literal(self.syntax.closing)
            grammar.known[key] = grammar.add("body", f"{begin} {self._call_rule(grammar, tool)} {end}")
        return grammar.known[key]
