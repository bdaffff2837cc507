"""The dialect of a model, recognised by the text of its chat template."""

from __future__ import annotations

from collections.abc import Container

from app.answers.call_syntaxes import HARMONY, HERMES, MUSE, SYNTAXES
from app.answers.dialect import Dialect
from app.answers.message_dialects import Harmony, Muse
from app.answers.thinking import tags_of
from app.openai.tools import Tools
from py_engine.text.chat_template import ChatTemplate


def dialect_of(template: ChatTemplate, tools: Tools, tokens: Container[str] = ()) -> Dialect:
    """The dialect of a template, for a request's tools. `tokens`: the texts of the vocabulary's tokens.

    Tools that may not be called are shown to the model only where one banned token keeps it from calling them.
    """
    if tools.shown and template.of_tools is not None:
        dialect = _dialect_of(template.of_tools, tools, tokens)
        if dialect.template_tools() is not None:
            return dialect
    return _dialect_of(template, tools, tokens)


def _dialect_of(template: ChatTemplate, tools: Tools, tokens: Container[str]) -> Dialect:
    source, written = template.source, template.forms.written
    found = next((s for signs, s in SYNTAXES if all(sign in written for sign in signs)), None)
    tags = tags_of(written)
    native = found is not None and ("tools" in source or "available_tools" in source or "functions" in source)
    syntax = found if found is not None and (native or found in (HARMONY, MUSE)) else HERMES
    if not tools.tools and (syntax.opens_text or syntax.first_token not in tokens):
        tools = Tools()
    kind = {HARMONY.name: Harmony, MUSE.name: Muse}.get(syntax.name, Dialect)
    return kind(syntax, tags, tools, template, native)
