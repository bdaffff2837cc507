"""Requests for chats and completions, checked field by field.

A wrong type or value is refused with `param` naming it. A parameter that means something but is not implemented is
refused too unless it has its neutral value; it is never dropped silently.
"""

from dataclasses import dataclass, field
from typing import Any

from app.openai import formats, sampling, tools
from app.openai.fields import (
    Body,
    boolean,
    integer,
    mapping,
    one_of,
    unsupported,
    wrong_type,
    wrong_value,
)
from app.openai.formats import Format
from app.openai.messages import messages, prompts
from app.openai.sampling import Words
from app.openai.tools import Tools
from py_engine.plan.sampling import Sampling

MAX_STOPS = 4
MAX_N = 128
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")

# Known parameters without an effect here: name -> the values that change nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "mirostat": (0,),
    "suffix": ("",),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "verbosity": ("medium",),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
}
# Parameters about accounts and storage elsewhere: accepted, without a meaning on this machine.
_IGNORED = frozenset(
    ["model", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
     "prompt_cache_retention"]
)  # fmt: skip
_COMMON = (
    frozenset(["stream", "stream_options", "max_tokens", "stop", "n", "logprobs", "ignore_eos", "cache_prompt",
               "truncation"])
    | sampling.NAMES
    | formats.NAMES
)  # fmt: skip
_CHAT = (
    _COMMON
    | tools.NAMES
    | {"messages", "max_completion_tokens", "chat_template_kwargs", "top_logprobs", "reasoning_effort",
       "reasoning_format"}
)  # fmt: skip
_COMPLETION = _COMMON | {"prompt", "echo", "best_of"}


@dataclass
class Request:
    """What chats and completions have in common."""

    sampling: Sampling
    words: Words
    max_tokens: int | None
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool
    n: int
    ignore_eos: bool
    cache_prompt: bool
    truncate: bool  # drop what is oldest instead of refusing what does not fit
    format: Format | None


@dataclass
class ChatRequest(Request):
    """A checked chat completion request; the messages are OpenAI's, with text parts only."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    template_variables: dict[str, Any] = field(default_factory=dict)
    tools: Tools = field(default_factory=Tools)
    split_reasoning: bool = True


@dataclass
class CompletionRequest(Request):
    """A checked completion request: texts or token ids."""

    prompts: list[str | list[int]] = field(default_factory=list)
    echo: bool = False


def chat_request(body: Any) -> ChatRequest:
    """Checks a chat completion request."""
    body = _object(body, _CHAT)
    limit = integer(body, "max_completion_tokens", 1)
    older = integer(body, "max_tokens", 1)
    common = _common(body, older if limit is None else limit, sampling.chat_logprobs(body))
    chosen = tools.tools(body)
    if chosen.required and common["format"] is not None:
        raise wrong_value("tool_choice demands a tool call, which no other form fits.", common["format"].param)
    return ChatRequest(
        **common,
        messages=messages(body.get("messages")),
        template_variables=_effort(body) | (mapping(body, "chat_template_kwargs") or {}),
        tools=chosen,
        split_reasoning=one_of(body, "reasoning_format", ("auto", "deepseek", "none")) != "none",
    )


def completion_request(body: Any) -> CompletionRequest:
    """Checks a completion request; max_tokens is 16 where it is absent, as OpenAI has it."""
    body = _object(body, _COMPLETION)
    limit = integer(body, "max_tokens", 1)
    common = _common(body, 16 if limit is None else limit, sampling.completion_logprobs(body))
    best = integer(body, "best_of", 1, 20)
    if best is not None and best != common["n"]:
        raise unsupported("best_of is only supported where it equals n.", "best_of")
    echo = boolean(body, "echo")
    if echo and common["sampling"].logprobs >= 0:
        raise unsupported("echo is not supported together with logprobs.", "echo")
    return CompletionRequest(**common, prompts=prompts(body.get("prompt")), echo=echo)


def _object(body: Any, known: frozenset[str]) -> Body:
    if not isinstance(body, dict):
        raise wrong_type(None, "a JSON object as the request", body)
    for name, value in body.items():
        if name in known or name in _IGNORED or value is None:
            continue
        if name not in _NEUTRAL:
            raise unsupported(f"Unrecognized request argument supplied: {name}", name)
        if not any(_same(value, neutral) for neutral in _NEUTRAL[name]):
            raise unsupported(f"{name} is not supported by this engine; leave it out.", name)
    return body


def _same(value: Any, neutral: Any) -> bool:
    """Equal, where true is not 1."""
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)


def _common(body: Body, max_tokens: int | None, logprobs: int) -> dict[str, Any]:
    stream = boolean(body, "stream")
    made, words = sampling.sampling(body, logprobs)
    return {
        "sampling": made,
        "words": words,
        "max_tokens": max_tokens,
        "stop": _stop(body.get("stop")),
        "stream": stream,
        "include_usage": _stream_options(body.get("stream_options"), stream),
        "n": integer(body, "n", 1, MAX_N) or 1,
        "ignore_eos": boolean(body, "ignore_eos"),
        "cache_prompt": boolean(body, "cache_prompt", default=True),
        "truncate": one_of(body, "truncation", ("auto", "disabled")) == "auto",
        "format": formats.wanted(body),
    }


def _effort(body: Body) -> dict[str, Any]:
    """reasoning_effort as the variables that templates know: gpt-oss's and Qwen's."""
    effort = one_of(body, "reasoning_effort", EFFORTS)
    if effort is None:
        return {}
    level = {"none": "low", "minimal": "low", "xhigh": "high"}.get(effort, effort)
    return {"reasoning_effort": level, "enable_thinking": effort not in ("none", "minimal")}


def _stream_options(options: Any, stream: bool) -> bool:
    if options is None:
        return False
    if not isinstance(options, dict):
        raise wrong_type("stream_options", "an object", options)
    if not stream:
        raise wrong_value("stream_options is only allowed with stream: true.", "stream_options")
    for name in options:
        if name not in ("include_usage", "include_obfuscation"):
            param = f"stream_options.{name}"
            raise unsupported(f"Unrecognized request argument supplied: {param}", param)
    return boolean(options, "include_usage", param="stream_options.include_usage")


def _stop(stop: Any) -> tuple[str, ...]:
    if stop is None:
        return ()
    stops = stop if isinstance(stop, list) else [stop]
    for s in stops:
        if not isinstance(s, str):
            raise wrong_type("stop", "a string or a list of strings", stop)
        if not s:
            raise wrong_value("stop has an empty string, which would end every answer at once.", "stop")
    if len(stops) > MAX_STOPS:
        raise wrong_value(f"stop has {len(stops)} strings; at most {MAX_STOPS} are allowed.", "stop")
    return tuple(stops)
