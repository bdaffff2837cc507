"""Build OpenAI's answers: whole answers, chunks, usage and logprobs."""

import os
import random
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from app.openai.fields import Json
from py_engine import json_input
from py_engine.plan.sampling import TokenLogprob

Delta = dict[str, Json]  # what a chunk appends to a message: content, reasoning_content, tool_calls
BytesOf = Callable[[int], bytes]  # token id -> its bytes
RandomBytes = Callable[[int], bytes]  # so many random bytes


@dataclass(frozen=True)
class Identity:
    """What an answer's ids and times are made of. A worker that continues the answer of another one has the same."""

    root: str
    created: int  # seconds since 1970

    @classmethod
    def new(cls, now: Callable[[], float] = time.time) -> "Identity":
        """The identity of a new answer."""
        return cls(os.urandom(12).hex(), int(now()))

    def random_bytes(self, purpose: object) -> RandomBytes:
        """A source of random bytes for ids: the same ones in the same order."""
        return random.Random(f"{self.root} {purpose}").randbytes


@dataclass
class Usage:
    """Token counts of one answer, and llama.cpp's timings in milliseconds."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0  # after the first batch of tokens
    ttft_ms: float = 0.0
    first_tokens: int = 1  # tokens of the first batch; predicted_ms excludes them
    truncated_tokens: int | None = None  # dropped from the conversation; None: truncation was not allowed
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        """Add the usage of another choice of the same request. The prompt counts once per choice."""
        truncated = None if self.truncated_tokens is None else self.truncated_tokens + (other.truncated_tokens or 0)
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.prompt_ms + other.prompt_ms,
            self.predicted_ms + other.predicted_ms,
            self.ttft_ms,
            self.first_tokens + other.first_tokens,
            truncated,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    def as_dict(self) -> dict[str, Json]:
        """Return OpenAI's usage object."""
        details: dict[str, Json] = {"cached_tokens": self.cached_tokens}
        if self.truncated_tokens is not None:
            details["truncated_tokens"] = self.truncated_tokens
        made = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": details,
        }
        if self.reasoning_tokens:
            made["completion_tokens_details"] = {"reasoning_tokens": self.reasoning_tokens}
        return made

    def timings(self) -> dict[str, Json]:
        """Return the timings object of llama.cpp's server. prompt_n excludes cached tokens."""
        prompt_n = self.prompt_tokens - self.cached_tokens
        later = self.completion_tokens - self.first_tokens
        counted, took_ms = (later, self.predicted_ms) if later > 0 else (self.completion_tokens, self.prompt_ms)
        return {
            "cache_n": self.cached_tokens,
            "prompt_n": prompt_n,
            "prompt_ms": self.prompt_ms,
            "predicted_n": self.completion_tokens,
            "predicted_ms": self.predicted_ms,
            "prompt_per_token_ms": self.prompt_ms / prompt_n if prompt_n else 0.0,
            "prompt_per_second": 1000 * prompt_n / self.prompt_ms if self.prompt_ms else 0.0,
            "predicted_per_token_ms": took_ms / counted if counted else 0.0,
            "predicted_per_second": 1000 * counted / took_ms if took_ms else 0.0,
            "ttft_ms": self.ttft_ms,
        }


class Message:
    """A chat message, assembled from deltas."""

    def __init__(self) -> None:
        self._text: dict[str, list[str]] = {}
        self.tool_calls: list[dict[str, Json]] = []

    def add(self, delta: Delta) -> None:
        """Append the delta of one chunk."""
        for name in ("content", "reasoning_content"):
            if delta.get(name):
                self._text.setdefault(name, []).append(delta[name])
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(self.tool_calls):
                self.tool_calls.append(
                    {"id": call["id"], "type": "function", "function": {"name": "", "arguments": ""}}
                )
            function = self.tool_calls[call["index"]]["function"]
            for name, part in call["function"].items():
                function[name] += part

    def calls_whole(self, *, cut: bool) -> bool:
        """Whether it has calls that may run. `cut`: a limit, a stop string or a rule may have cut the last one."""
        if not self.tool_calls:
            return False
        arguments = self.tool_calls[-1]["function"]["arguments"]
        try:
            json_input.parse(arguments if cut else arguments or "{}", strict=True)
        except ValueError:
            return False
        return True

    def text(self, name: str = "content") -> str:
        """Return the text so far of content, or of reasoning_content."""
        return "".join(self._text.get(name, ()))

    def as_dict(self) -> dict[str, Json]:
        """Return OpenAI's message object."""
        content: str | None = self.text()
        if self.tool_calls and not content:
            content = None
        made: dict[str, Json] = {"role": "assistant", "content": content, "refusal": None}
        if self._text.get("reasoning_content"):
            made["reasoning_content"] = self.text("reasoning_content")
        if self.tool_calls:
            made["tool_calls"] = self.tool_calls
        return made


class Answer:
    """A builder of the objects of one answer, which share an id and a time."""

    def __init__(self, model: str, chat: bool, identity: Identity | None = None, include_usage: bool = False) -> None:
        self.chat = chat
        self._usage: dict[str, Json] = {"usage": None} if include_usage else {}  # of chunks but the last
        identity = identity or Identity.new()
        self._head = {
            "id": ("chatcmpl-" if chat else "cmpl-") + identity.root,
            "object": "chat.completion" if chat else "text_completion",
            "created": identity.created,
            "model": model,
            "system_fingerprint": "wisp",
        }

    def choice(
        self, index: int, message: Message, logprobs: Json, finish_reason: str, stopped: str | None = None
    ) -> dict[str, Json]:
        """Return one element of `choices`. `stopped`: the stop string that ended it, vLLM's `stop_reason`."""
        content = {"message": message.as_dict()} if self.chat else {"text": message.text()}
        made = {"index": index, **content, "logprobs": logprobs, "finish_reason": finish_reason}
        return made if stopped is None else made | {"stop_reason": stopped}

    def whole(self, choices: list[dict[str, Json]], usage: Usage) -> dict[str, Json]:
        """Return the answer as one object."""
        return {**self._head, "choices": choices, "usage": usage.as_dict(), "timings": usage.timings()}

    def opening(self, index: int = 0, prompt_tokens: int | None = None) -> dict[str, Json] | None:
        """Return the first chunk of a choice, which names the role; None for completions.

        `prompt_tokens`, where they are asked for: the chunk has them, and completions have it, too.
        """
        if prompt_tokens is None:
            return self.piece({"role": "assistant", "content": ""}, index) if self.chat else None
        return {**self.piece({"role": "assistant", "content": ""}, index), "prompt_tokens": prompt_tokens}

    def piece(
        self, delta: Delta, index: int = 0, logprobs: Json = None, ids: list[int] | None = None
    ) -> dict[str, Json]:
        """Return a chunk with text, or with part of a tool call. `ids`: its tokens, where they are asked for."""
        return _with_ids(self._chunk(index, delta, logprobs, None), ids)

    def closing(
        self,
        finish_reason: str,
        usage: Usage,
        index: int = 0,
        stopped: str | None = None,
        ids: list[int] | None = None,
    ) -> dict[str, Json]:
        """Return the chunk that says why a choice ended, as choice() does. `ids`: tokens of no piece."""
        chunk = {**self._chunk(index, {}, None, finish_reason), "timings": usage.timings()}
        if stopped is not None:
            chunk["choices"][0]["stop_reason"] = stopped
        return _with_ids(chunk, ids)

    def usage(self, usage: Usage) -> dict[str, Json]:
        """Return the last chunk, for stream_options.include_usage."""
        chunk = {**self._chunk(0, {}, None, None), "choices": []}
        return {**chunk, "usage": usage.as_dict(), "timings": usage.timings()}

    def _chunk(self, index: int, delta: Delta, logprobs: Json, finish_reason: str | None) -> dict[str, Json]:
        content: dict[str, Json] = {"delta": delta} if self.chat else {"text": delta.get("content", "")}
        head = {**self._head, "object": "chat.completion.chunk"} if self.chat else self._head
        choice = {"index": index, **content, "logprobs": logprobs, "finish_reason": finish_reason}
        return {**head, "choices": [choice], **self._usage}


def _with_ids(chunk: dict[str, Json], ids: list[int] | None) -> dict[str, Json]:
    if ids is not None:
        chunk["choices"][0]["token_ids"] = ids
    return chunk


class Logprobs:
    """The logprobs of one choice so far, in the shape of its endpoint."""

    def __init__(self, chat: bool, token_bytes: BytesOf, adds: BytesOf | None = None) -> None:
        """`adds`: the bytes that a token adds to the text. By default: `token_bytes`."""
        self._chat, self._token_bytes, self._adds = chat, token_bytes, adds or token_bytes
        self._all: list[TokenLogprob] = []
        self._begin()

    def add(self, entries: Iterable[TokenLogprob]) -> Json:
        """Add tokens and return the object for their chunk; None without tokens."""
        new = list(entries)
        self._all += new
        return self._shape(new) if new else None

    def whole(self) -> Json:
        """Return the object for all tokens."""
        self._begin()
        return self._shape(self._all)

    def _begin(self) -> None:
        """Count from the first token again; for completions only."""
        self._offset = 0  # characters before the next token
        self._decoder = getincrementaldecoder("utf-8")("replace")  # a character may have several tokens

    def _shape(self, entries: list[TokenLogprob]) -> dict[str, Json]:
        if self._chat:
            return {"content": [self._entry(e) for e in entries], "refusal": None}
        offsets = []
        for entry in entries:
            offsets.append(self._offset)
            self._offset += len(self._decoder.decode(self._adds(entry.token)))
        return {
            "tokens": [self._name(e.token) for e in entries],
            "token_logprobs": [e.logprob for e in entries],
            "top_logprobs": [{self._name(t): logprob for t, logprob in e.top} for e in entries],
            "text_offset": offsets,
        }

    def _name(self, token: int) -> str:
        """A token's text; if that is only a part of a character, its bytes as OpenAI writes them."""
        data = self._token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def _entry(self, entry: TokenLogprob) -> dict[str, Json]:
        return {
            **self._token(entry.token, entry.logprob),
            "top_logprobs": [self._token(token, logprob) for token, logprob in entry.top],
        }

    def _token(self, token: int, logprob: float) -> dict[str, Json]:
        return {"id": token, "token": self._text(token), "logprob": logprob, "bytes": list(self._token_bytes(token))}

    def _text(self, token: int) -> str:
        return self._token_bytes(token).decode("utf-8", "replace")
