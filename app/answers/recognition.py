"""Recognise a model's dialect by the texts of its chat template: Granite has <|tool_call|>, Gemma 4 <|tool_call>."""

from __future__ import annotations

from collections.abc import Container

from app.answers.calls.model_syntaxes import (
    APERTUS,
    APRIEL,
    COMMAND,
    DEEPSEEK,
    DEEPSEEK_4,
    DEEPSEEK_31,
    DEEPSEEK_32,
    FUNCTION_TAG,
    FUNCTIONARY,
    GEMMA,
    GIGACHAT,
    GIGACHAT_3,
    GLM,
    GLM_4_7,
    GRANITE,
    HARMONY,
    HERMES,
    HORIZON,
    HUNYUAN,
    HUNYUAN_OPEN,
    KIMI,
    KIMI_3,
    LFM2,
    LING,
    LLAMA,
    MINICPM,
    MINIMAX_2,
    MINIMAX_3,
    MISTRAL,
    MISTRAL_ARGS,
    MISTRAL_IDS,
    MUSE,
    NEMOTRON_2,
    QWEN_XML,
    SEED,
    SOLAR,
)
from app.answers.calls.syntax import CallSyntax
from app.answers.dialect import Dialect
from app.answers.message_dialects import Harmony, Muse
from app.answers.thinking import tags_of
from app.openai.tools import Tools
from py_engine.text.chat_template import ChatTemplate

# Texts that a template contains -> its syntax; the first match counts. None: a syntax that is not implemented, whose
# template also has the texts of one below.
SYNTAXES: tuple[tuple[tuple[str, ...], CallSyntax | None], ...] = (
    (("<|channel|>", "<|message|>"), HARMONY),
    (("<atem:function_calls>", "<|eom|>"), MUSE),
    (("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"), MISTRAL_IDS),
    (("[TOOL_CALLS]", "[ARGS]"), MISTRAL_ARGS),
    (("[TOOL_CALLS]",), MISTRAL),
    ((">>>", "all\\n"), FUNCTIONARY),
    (("<function=", "</function>", "python_tag"), FUNCTION_TAG),
    (("\uff5cDSML\uff5c", "function_calls>"), DEEPSEEK_32),
    (("\uff5cDSML\uff5c", "tool_calls>"), DEEPSEEK_4),
    (("<\uff5ctool▁calls▁begin\uff5c>", "```json"), DEEPSEEK),
    (("<\uff5ctool▁calls▁begin\uff5c>",), DEEPSEEK_31),
    (("<|START_ACTION|>",), COMMAND),
    (("<|tool_call|>",), GRANITE),
    (("]<]minimax[>[", "<invoke name="), MINIMAX_3),
    (("]<]minimax[>[",), None),
    (("<|tool_call>", "call:"), GEMMA),
    (("<|tool_list_start|>",), LFM2),
    (("List of tools: [",), LFM2),
    (("<tool_calls>[",), APRIEL),
    (("<TOOLCALL>[",), NEMOTRON_2),
    (("<|tools_prefix|>",), APERTUS),
    (("<seed:tool_call>", "<function="), SEED),
    (("<minimax:tool_call>", "<invoke name="), MINIMAX_2),
    (("<tool_sep{}>", ":opensource"), HUNYUAN_OPEN),
    (("<tool_sep{}>",), HUNYUAN),
    (("<|open|>", "<|close|>", "<|end_of_msg|>"), KIMI_3),
    (("<ifm|tool_calls>",), HORIZON),
    (("<|tool_calls|>", "<|tool_call:begin|>"), SOLAR),
    (("<tool_call>", "<function=", "<parameter="), QWEN_XML),
    (("<role>ASSISTANT</role>", "<arg_key>"), LING),
    (("<tool_call>", "</arg_key><arg_value>"), GLM_4_7),
    (("<tool_call>", "<arg_key>"), GLM),
    (("<tool_call>",), HERMES),
    (("<|tool_calls_section_begin|>", "functions."), KIMI),
    (("<|function_call|>",), GIGACHAT),
    (("<|message_sep|>", "<|role_sep|>"), GIGACHAT_3),
    (('<function name="', '<param name="', "<![CDATA["), MINICPM),
    (('"parameters"', "ipython"), LLAMA),
    (("<|python_tag|>",), LLAMA),
)


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
    if not tools.tools and (syntax.opens_content or syntax.first_token not in tokens):
        tools = Tools()
    kind = {HARMONY.name: Harmony, MUSE.name: Muse}.get(syntax.name, Dialect)
    return kind(syntax, tags, tools, template, native)
