"""A dialect: how a model writes tool calls and reasoning.

It prepares the messages, parses the answer, and writes the grammar that constrains it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from app.answers.calls.json_arguments import JSON
from app.answers.calls.messages import in_plain_text, in_template
from app.answers.calls.syntax import CallSyntax, Place
from app.answers.parsing import Parser, PlainParser, ReasoningParser
from app.answers.thinking import MINIMAX_3, TAGS, tags_at
from app.constrain import effort
from app.constrain.ebnf import Grammar, GrammarText, either, literal, quick_rules, text_until
from app.constrain.grammar_cache import cached
from app.constrain.rules import form_rule
from app.openai.answers import RandomBytes
from app.openai.fields import unsupported
from app.openai.formats import Format
from app.openai.tools import Tool, Tools
from py_engine.text.chat_template import ChatTemplate

Messages = list[dict[str, Any]]
Made = TypeVar("Made")
Rules = Callable[[str], GrammarText]  # the prompt -> the grammar of its answer

_TOKEN = re.compile(
    r"<[|\uff5c][^|\uff5c<>]*[|\uff5c]>|<\|[a-z_]+>|<[a-z_]+\|>|\[[A-Z_/]+\]|</?[A-Za-z_:|]+>|^\uff5c\w+\uff5c$|^\]<\]\w+\[>\[$"
)
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


class Dialect:
    """Tool calls in one CallSyntax, reasoning between two tags. `native`: the template itself describes tools."""

    heads: re.Pattern[str] | None = None  # of the messages of an answer, as a group, where it has several

    def __init__(
        self, syntax: CallSyntax, tags: tuple[str, str] | None, tools: Tools, template: ChatTemplate, native: bool
    ) -> None:
        self.syntax, self.template, self._tags, self._tools, self._native = syntax, template, tags, tools, native
        self._several = tools.parallel and not syntax.single  # calls in one answer

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts of the control tokens that the syntax and thoughts use."""
        tags = self._tags or ()
        texts = (*(self._call_texts if self._tools.tools else ()), *self.syntax.reply.markers)
        found = [token for text in texts for token in _tokens(text)]
        found += [token for text in texts for token in re.findall(r"<\|[a-z_]+\|>\n+", text)]  # GigaChat 3's
        return tuple(dict.fromkeys([*found, *tags, *re.findall(r"<[^<>\s]+>", " ".join(tags))]))

    @property
    def _call_texts(self) -> tuple[str, ...]:
        s = self.syntax
        return (s.token or "", s.trigger, s.head, s.tail, s.joint or "", s.closing, *s.arguments.texts)

    @cached_property
    def unbroken_in_answers(self) -> frozenset[str]:
        """Texts of the tokens of calls and thoughts, which a client may give back within an answer's content.

        Those that also mark turns are left out.
        """
        tags, (before, after) = self._tags or (), self.template.forms.turns
        for tag in tags:
            before = before.replace(tag, "")  # of a thought that is empty, or was left out
        turns = before + after
        tokens = (token for text in (*self._call_texts, *tags) for token in _tokens(text))
        return frozenset(text for text in (*tokens, *(tag.strip() for tag in tags)) if text not in turns)

    @property
    def banned(self) -> str | None:
        """The token that begins a call, if the model sees tools and may call none."""
        return self.syntax.first_token if self._tools.shown and not self._tools.tools else None

    # -- prompt

    def template_tools(self) -> list[Any] | None:
        """The tools as the template expects them; None if the template does not describe tools."""
        return [tool.definition for tool in self._tools.shown] or None if self._native else None

    def messages(self, messages: Messages, broken: Callable[[str], str] = str) -> Messages:
        """The messages for the template. If it does not describe tools, they describe tools and calls in plain text.

        `broken`: breaks the special tokens in what other programs have written.
        """
        if self._native:
            return in_template(messages, self.template, self.syntax, broken)
        return in_plain_text(messages, self._tools.shown, broken)

    # -- answer

    def parser(self, prompt: str, split_reasoning: bool, random_bytes: RandomBytes = os.urandom) -> Parser:
        """The parser of an answer to this prompt. `random_bytes`: for ids of calls."""
        inner: Parser = PlainParser()
        if self._tools.tools or self.syntax.reply.always:
            prefix = self.syntax.trigger if self._opened(prompt) else ""
            syntax = self.syntax if self._tools.tools else replace(self.syntax, trigger="\0")

            def new_id() -> str:
                return self.new_id(random_bytes)

            inner = syntax.arguments.parser(syntax, new_id, self._tools.tools, prefix)
        if not split_reasoning:
            return inner
        tags = tags_at(self._tags, prompt) or TAGS[0]
        call = self.syntax.trigger if self._calls_in_thoughts else ""
        return ReasoningParser(tags, self._inside(prompt), inner, call)

    @property
    def _calls_in_thoughts(self) -> bool:
        """Whether a call may end a thought. One that must come has to come after it: a grammar requires it there."""
        return self.syntax.place is Place.THOUGHT and bool(self._tools.tools) and not self._tools.required

    def _inside(self, prompt: str) -> bool:
        tags = tags_at(self._tags, prompt)
        return tags is not None and prompt.rstrip().endswith(tags[0].rstrip())

    def new_id(self, random_bytes: RandomBytes) -> str:
        """An id for a tool call."""
        letters = "".join(_ALPHABET[b % len(_ALPHABET)] for b in random_bytes(24))
        length = self.syntax.ids.length
        return letters[:length] if length else f"call_{letters}"

    def rules(self, form: Format | None) -> Rules | None:
        """The grammar of an answer, given the prompt; None where it is unconstrained.

        Schemas are checked and written here, before a template has seen them.
        """
        if form is None and not self._tools.tools:
            return None
        given = self._tools
        tools = [[tool.name, tool.parameters, tool.param] for tool in given.tools]
        written_for = [self.syntax, self._tags, tools, given.required, given.parallel]
        written_for += vars(form).values() if form is not None else []
        return cached(written_for, lambda: self._limited_rules(form))

    def _limited_rules(self, form: Format | None) -> Rules:
        param = "tools" if form is None or self._tools.tools else form.param
        complete = _limited(lambda: self._rules(form), param)
        texts: dict[tuple[Any, ...], GrammarText] = {}

        def limited(prompt: str) -> GrammarText:
            effort.begin()  # other requests have come in between
            ends = self._ends(prompt)
            if ends not in texts:
                texts[ends] = _limited(lambda: complete(prompt), param)
            return texts[ends]

        return limited

    def _ends(self, prompt: str) -> tuple[Any, ...]:
        """What of a prompt changes the grammar of its answer."""
        thought = self._tags is not None and prompt.rstrip().endswith(self._tags[1])
        return self._inside(prompt), tags_at(self._tags, prompt), thought, self._opened(prompt), self._replies(prompt)

    def _opened(self, prompt: str) -> bool:
        """Whether the prompt ends with the trigger of what the answer begins with, a call or content."""
        return self.syntax.opens_content and prompt.endswith(self.syntax.trigger)

    def _replies(self, prompt: str) -> bool:
        """Whether the prompt has opened the content."""
        begin, _ = self.syntax.reply.around
        return bool(begin) and prompt.endswith(begin)

    def _parts(self, grammar: Grammar, form: Format | None) -> list[str]:
        """The rules of the form and of calls, or "". A text may be both: then limits are not counted."""
        grammar.counts_limits = form is None or (form.kind == "json_schema" and not self._tools.tools)
        return [
            form_rule(grammar, form) if form is not None else "",
            self._block(grammar) if self._tools.tools else "",
        ]

    def _rules(self, form: Format | None) -> Rules:
        tools = self._tools
        grammar, (formed, block) = quick_rules(lambda grammar: self._parts(grammar, form))

        def complete(prompt: str) -> GrammarText:
            thought, free_start = self._thought(grammar, prompt)
            options = []
            if form is not None:
                options.append(f"{thought}{self._wrapped(formed, prompt)}")
                if tools.tools:
                    options.append(f"{thought}{self._calls(grammar, block, prompt)}")
            elif tools.required:
                options.append(f"{thought}{self._calls(grammar, block, prompt)}")
            elif self._calls_in_thoughts and self._inside(prompt):
                options.append(self._thought_or_call(grammar, block, prompt))
            else:
                options.append(f"{free_start}{self._free(grammar, block, prompt)}")
            return grammar.text(grammar.add("answer", either(options)))

        return complete

    def _thought(self, grammar: Grammar, prompt: str) -> tuple[str, str]:
        """Rules for the reasoning: (before a form or a call, before free text, which may begin a thought by itself)."""
        tags = tags_at(self._tags, prompt)
        if tags is None or prompt.rstrip().endswith(tags[1]):
            return "", ""
        thought, after = grammar.add("thought", text_until(tags[1])), '("\\u000a" | " ")*'
        if self.syntax.reply.resumed:
            after = literal(self.syntax.reply.resumed)
        if self._inside(prompt):
            return (f"{thought} {after} ",) * 2
        none = f" | {literal(tags[1])}" if tags == MINIMAX_3 else ""
        return f"({literal(tags[0])} {thought} {after}{none})? ", ""

    def _wrapped(self, formed: str, prompt: str) -> str:
        """Rule of content in a form, between the syntax's markers. `formed`: the rule of the form."""
        begin, end = self.syntax.reply.around
        if not begin:
            return formed
        return f"{formed} {literal(end)}?" if self._replies(prompt) else f"{literal(begin)} {formed} {literal(end)}?"

    def _thought_or_call(self, grammar: Grammar, block: str, prompt: str) -> str:
        """Rule of an answer within a thought that ends with its tag, and free text after it, or with calls."""
        tags = tags_at(self._tags, prompt)
        assert tags is not None
        free, trigger = grammar.add("after", self._free(grammar, block, prompt)), literal(self.syntax.trigger)
        calls = grammar.add("called", f"{block} {self._more_blocks(block)}")
        ends = f"({trigger}, {calls}), ({literal(tags[1])}, {free})"
        return grammar.add("thought", f"TagDispatch({ends}, stop_eos=true, loop_after_dispatch=false)")

    def _json_call(self, grammar: Grammar, tool: Tool) -> str:
        """Rule of a call with arguments in JSON, without the trigger and opening before it."""
        return JSON.rule(grammar, self.syntax.arguments.with_json(self.syntax), tool)

    def _call_rule(self, grammar: Grammar, tool: Tool) -> str:
        """Rule of a call of a tool, from its head to its tail."""
        rule = self.syntax.arguments.rule(grammar, self.syntax, tool)
        return self._json_call(grammar, tool) if rule is None else rule

    def _block(self, grammar: Grammar) -> str:
        """Rule of the text after a trigger: one call or several, and the closing."""
        syntax, tools = self.syntax, self._tools.tools
        rules = [syntax.arguments.rule(grammar, syntax, tool) for tool in tools]
        if syntax.joint is not None and None in rules:  # the calls of one block have one form
            rules = [None] * len(tools)
        calls = either(rule or self._json_call(grammar, tool) for rule, tool in zip(rules, tools, strict=True))
        call = grammar.add("call", calls)
        more = f" ({literal(syntax.joint)} {call})*" if syntax.joint is not None and self._several else ""
        return grammar.add("calls", f"{literal(syntax.opening)} {call}{more} {literal(syntax.closing)}")

    def _calls(self, grammar: Grammar, block: str, prompt: str) -> str:
        """Rule of an answer that calls tools, after content at most. `block`: the rule after a trigger."""
        trigger, reply = literal(self.syntax.trigger), self.syntax.reply
        if reply.first:
            begin, end = reply.around
            content = f"{grammar.add('content', text_until(end))} {literal(reply.resumed)}"
            trigger = f"{content} {trigger}" if self._replies(prompt) else f"({literal(begin)} {content})? {trigger}"
        if self._opened(prompt):
            return block
        return f"{trigger} {block} {self._more_blocks(block)}"

    def _more_blocks(self, block: str) -> str:
        """Rule of further blocks of calls."""
        if self.syntax.joint is not None or not self._several:
            return ""
        return f"({literal(self.syntax.between)} {literal(self.syntax.trigger)} {block})*"

    def _free(self, grammar: Grammar, block: str, prompt: str) -> str:
        """Rule of free text that may end in calls. `block`: the rule after a trigger."""
        again = str(self.syntax.joint is None and self._several).lower()
        trigger, markers = literal(self.syntax.trigger), self.syntax.reply.markers
        if self.syntax.place is Place.START:
            head = either([*(f"{literal(marker)} {trigger} {block}" for marker in markers), f"{trigger} {block}"])
            return f'({head} | [^\\u007b\\u003c] [^\\u0000]* | "")'
        free = f"TagDispatch(({trigger}, {block}), stop_eos=true, loop_after_dispatch={again})"
        if self._opened(prompt):
            texts = either(literal(marker.removeprefix(self.syntax.trigger)) for marker in markers)
            return f"({block} | {texts} {grammar.add('free', free)})"
        return grammar.add("free", free)


def _limited(write: Callable[[], Made], param: str) -> Made:
    """What `write` returns; an error of the request where that takes too many steps."""
    try:
        return write()
    except effort.TooComplex:
        raise unsupported("The form of the answer is too complex; use fewer tools or smaller schemas.", param) from None


def _tokens(text: str) -> list[str]:
    """All substrings that look like control tokens."""
    return _TOKEN.findall(text)
