"""OpenAI's requests, checked field by field, and OpenAI's answers, built.

A wrong type or value is refused with `param` naming it. A parameter that means something but is not implemented is
refused too unless it has its neutral value; it is never dropped silently.
"""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from py_engine.errors import WispError
from py_engine.sampling import Sampling

MAX_STOPS = 4
ROLES = ("system", "developer", "user", "assistant", "tool", "function")

# Known parameters without an effect here: name -> the values that change nothing (any value where empty).
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repeat_penalty": (1,),
    "repeat_last_n": (0, -1, 64),
    "typical_p": (1,),
    "mirostat": (0,),
    "dry_multiplier": (0,),
    "xtc_probability": (0,),
    "n_probs": (0,),
    "top_logprobs": (0,),
    "logprobs": (False,),
    "logit_bias": ({}, []),
    "ignore_eos": (False,),
    "cache_prompt": (True,),
    "echo": (False,),
    "suffix": ("",),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "grammar": ("",),
    "regex": ("",),
    "json_schema": (),
}
_REFUSED_ALWAYS = frozenset(
    ["audio", "prediction", "reasoning_effort", "verbosity", "web_search_options", "json_schema"]
)
# Parameters about accounts and storage elsewhere: accepted, without a meaning on this machine.
_IGNORED = frozenset(
    [
        "model",
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
    ]
)
_COMMON = frozenset(
    ["stream", "stream_options", "max_tokens", "stop", "temperature", "top_p", "top_k", "min_p", "seed"]
)
_CHAT = _COMMON | {"messages", "max_completion_tokens", "chat_template_kwargs"}
_COMPLETION = _COMMON | {"prompt"}


@dataclass
class Request:
    """What chats and completions have in common."""

    sampling: Sampling
    max_tokens: int | None
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool


@dataclass
class ChatRequest(Request):
    """A checked chat completion request; the messages are OpenAI's, with text parts only."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    template_variables: dict[str, Any] = field(default_factory=dict)


@dataclass
class CompletionRequest(Request):
    """A checked completion request: a text or token ids."""

    prompt: str | list[int] = ""


# -- checking


def chat_request(body: Any) -> ChatRequest:
    """Checks a chat completion request."""
    body = _object(body, _CHAT)
    variables = body.get("chat_template_kwargs")
    if variables is not None and not isinstance(variables, dict):
        raise _wrong_type("chat_template_kwargs", "an object", variables)
    limit = _integer(body, "max_completion_tokens", 1)
    return ChatRequest(
        **_common(body, _integer(body, "max_tokens", 1) if limit is None else limit),
        messages=_messages(body.get("messages")),
        template_variables=variables or {},
    )


def completion_request(body: Any) -> CompletionRequest:
    """Checks a completion request; max_tokens is 16 where it is absent, as OpenAI has it."""
    body = _object(body, _COMPLETION)
    limit = _integer(body, "max_tokens", 1)
    return CompletionRequest(**_common(body, 16 if limit is None else limit), prompt=_prompt(body.get("prompt")))


def _object(body: Any, known: frozenset[str]) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise _wrong_type(None, "a JSON object as the request", body)
    for name, value in body.items():
        if name in known or name in _IGNORED or value is None:
            continue
        if name not in _NEUTRAL:
            raise WispError(f"Unrecognized request argument supplied: {name}", "unsupported_parameter", param=name)
        if name in _REFUSED_ALWAYS or not any(_same(value, neutral) for neutral in _NEUTRAL[name]):
            _refuse(name, value)
    return body


def _same(value: Any, neutral: Any) -> bool:
    """Equal, where true is not 1."""
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)


def _refuse(name: str, value: Any) -> NoReturn:
    """The error for a known parameter at a value without support: is the value wrong, or the support missing?"""
    numbers = {
        "n": (1, 128),
        "best_of": (1, 20),
        "presence_penalty": (-2, 2),
        "frequency_penalty": (-2, 2),
        "top_logprobs": (0, 20),
    }
    if name in numbers:
        low, high = numbers[name]
        _number({name: value}, name, low, high)
    raise WispError(f"{name} is not supported by this engine yet; leave it out.", "unsupported_parameter", param=name)


def _common(body: dict[str, Any], max_tokens: int | None) -> dict[str, Any]:
    top_k = _integer(body, "top_k", -1)
    stream = _boolean(body, "stream")
    return {
        "sampling": Sampling(
            temperature=_number(body, "temperature", 0, 2, 1.0),
            top_k=max(top_k or 0, 0),
            top_p=_number(body, "top_p", 0, 1, 1.0),
            min_p=_number(body, "min_p", 0, 1, 0.0),
            seed=_integer(body, "seed", -(1 << 63), (1 << 64) - 1),
        ),
        "max_tokens": max_tokens,
        "stop": _stop(body.get("stop")),
        "stream": stream,
        "include_usage": _stream_options(body.get("stream_options"), stream),
    }


def _stream_options(options: Any, stream: bool) -> bool:
    if options is None:
        return False
    if not isinstance(options, dict):
        raise _wrong_type("stream_options", "an object", options)
    if not stream:
        raise WispError("stream_options is only allowed with stream: true.", "invalid_value", param="stream_options")
    for name in options:
        if name not in ("include_usage", "include_obfuscation"):
            param = f"stream_options.{name}"
            raise WispError(f"Unrecognized request argument supplied: {param}", "unsupported_parameter", param=param)
    return _boolean(options, "include_usage", "stream_options.include_usage")


def _stop(stop: Any) -> tuple[str, ...]:
    if stop is None:
        return ()
    stops = stop if isinstance(stop, list) else [stop]
    for s in stops:
        if not isinstance(s, str):
            raise _wrong_type("stop", "a string or a list of strings", stop)
        if not s:
            raise WispError(
                "stop has an empty string, which would end every answer at once.", "invalid_value", param="stop"
            )
    if len(stops) > MAX_STOPS:
        raise WispError(
            f"stop has {len(stops)} strings; at most {MAX_STOPS} are allowed.", "invalid_value", param="stop"
        )
    return tuple(stops)


def _messages(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list):
        raise _wrong_type("messages", "a list of messages", messages)
    if not messages:
        raise WispError("messages is empty: give at least one message.", "empty_messages", param="messages")
    for i, message in enumerate(messages):
        _check_message(message, f"messages[{i}]")
    return messages


def _check_message(message: Any, path: str) -> None:
    if not isinstance(message, dict):
        raise _wrong_type(path, "an object", message)
    role = message.get("role")
    if not isinstance(role, str):
        raise _wrong_type(f"{path}.role", "a string", role)
    if role not in ROLES:
        known = ", ".join(ROLES)
        raise WispError(f"{path}.role is {role!r}; it must be one of {known}.", "invalid_value", param=f"{path}.role")
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(isinstance(c, dict) for c in calls)):
        raise _wrong_type(f"{path}.tool_calls", "a list of objects", calls)
    content = message.get("content")
    if content is None and role == "assistant":
        return  # an answer that was only tool calls, or a refusal
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise _wrong_type(f"{path}.content", "a string or a list of parts", content)
    for j, part in enumerate(content):
        _check_part(part, f"{path}.content[{j}]")


def _check_part(part: Any, path: str) -> None:
    if not isinstance(part, dict):
        raise _wrong_type(path, "an object", part)
    kind = part.get("type")
    if kind in ("image_url", "input_audio", "file", "refusal"):
        raise WispError(f"{path} is of type {kind!r}; this engine reads text.", "unsupported_parameter", param=path)
    if kind != "text":
        raise WispError(f"{path}.type is {kind!r}; it must be 'text'.", "invalid_value", param=f"{path}.type")
    if not isinstance(part.get("text"), str):
        raise _wrong_type(f"{path}.text", "a string", part.get("text"))


def _prompt(prompt: Any) -> str | list[int]:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and prompt:
        if all(isinstance(p, str | list) for p in prompt):
            raise WispError("Only one prompt at a time is supported.", "unsupported_parameter", param="prompt")
        ids = [_whole(p) for p in prompt]
        if all(i is not None and i >= 0 for i in ids):
            return [i for i in ids if i is not None]
    if prompt == []:
        raise WispError("prompt is empty.", "invalid_value", param="prompt")
    raise _wrong_type("prompt", "a string or a list of token ids", prompt)


def _boolean(body: dict[str, Any], name: str, param: str | None = None) -> bool:
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _wrong_type(param or name, "true or false", value)
    return value


def _whole(value: Any) -> int | None:
    """The value as an integer if it is one (JavaScript does not tell 3 from 3.0)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or math.isinf(value):
        return None
    return int(value)


def _integer(body: dict[str, Any], name: str, low: int, high: int = 1 << 31) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type(name, "an integer", value)
    whole = _whole(value)
    if whole is None:
        raise _wrong_type(name, "an integer", value)
    if not low <= whole <= high:
        raise WispError(f"{name} is {whole}; it must be from {low} to {high}.", "invalid_value", param=name)
    return whole


def _number(body: dict[str, Any], name: str, low: float, high: float, default: float = 0.0) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type(name, "a number", value)
    if not low <= value <= high:  # false for NaN too
        raise WispError(f"{name} is {value}; it must be from {low} to {high}.", "invalid_value", param=name)
    return float(value)


def _wrong_type(param: str | None, expected: str, value: Any) -> WispError:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    got = "nothing" if value is None else kinds.get(type(value), "something else")
    where = f"{param} must be" if param else "Expected"
    return WispError(f"{where} {expected}, not {got}.", "invalid_type", param=param)


# -- answers


@dataclass
class Usage:
    """Token counts and llama.cpp's timings of one answer; times in milliseconds."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0  # from the first batch of tokens on
    ttft_ms: float = 0.0
    first_tokens: int = 1  # tokens of the first batch, which predicted_ms does not cover

    def as_dict(self) -> dict[str, Any]:
        """OpenAI's usage object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    def timings(self) -> dict[str, Any]:
        """llama.cpp's server's timings object; prompt_n counts what was computed, not what was cached."""
        prompt_n = self.prompt_tokens - self.cached_tokens
        later = self.completion_tokens - self.first_tokens
        counted, took = (later, self.predicted_ms) if later > 0 else (self.completion_tokens, self.prompt_ms)
        return {
            "prompt_n": prompt_n,
            "prompt_ms": self.prompt_ms,
            "predicted_n": self.completion_tokens,
            "predicted_ms": self.predicted_ms,
            "prompt_per_second": 1000 * prompt_n / self.prompt_ms if self.prompt_ms else 0.0,
            "predicted_per_second": 1000 * counted / took if took else 0.0,
            "ttft_ms": self.ttft_ms,
        }


class Answer:
    """Builds the objects of one answer, all with one id and time."""

    def __init__(self, model: str, chat: bool, now: Callable[[], float] = time.time) -> None:
        self._chat = chat
        self._head = {
            "id": ("chatcmpl-" if chat else "cmpl-") + os.urandom(12).hex(),
            "object": "chat.completion" if chat else "text_completion",
            "created": int(now()),
            "model": model,
            "system_fingerprint": "wisp",
        }

    def whole(self, text: str, finish_reason: str, usage: Usage) -> dict[str, Any]:
        """The answer in one object."""
        choice: dict[str, Any] = {"index": 0}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        choice.update(logprobs=None, finish_reason=finish_reason)
        return {**self._head, "choices": [choice], "usage": usage.as_dict(), "timings": usage.timings()}

    def opening(self) -> dict[str, Any] | None:
        """The first chunk of a chat, which only names the role; a completion has none."""
        return self._chunk({"role": "assistant", "content": ""}, None) if self._chat else None

    def piece(self, text: str) -> dict[str, Any]:
        """A chunk with text."""
        return self._chunk({"content": text} if self._chat else text, None)

    def closing(self, finish_reason: str, usage: Usage) -> dict[str, Any]:
        """The chunk that says why the answer ended."""
        return {**self._chunk({} if self._chat else "", finish_reason), "timings": usage.timings()}

    def usage(self, usage: Usage) -> dict[str, Any]:
        """The last chunk, for stream_options.include_usage."""
        return {**self._chunk("", None), "choices": [], "usage": usage.as_dict(), "timings": usage.timings()}

    def _chunk(self, content: Any, finish_reason: str | None) -> dict[str, Any]:
        choice = {
            "index": 0,
            "delta" if self._chat else "text": content,
            "logprobs": None,
            "finish_reason": finish_reason,
        }
        head = {**self._head, "object": "chat.completion.chunk"} if self._chat else self._head
        return {**head, "choices": [choice]}
