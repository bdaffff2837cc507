"""Ollama's API: its requests as chats, completions and embeddings, and its answers made of their chunks.

Source: Ollama's docs/api.md. Options of its load (`num_ctx` ...) have no effect: Wisp's own load has decided them.
Temperature, top_k and top_p have Ollama's defaults.
"""

import re
import time
from datetime import UTC, datetime
from functools import partial

from app.compatible.samplers import with_any_temperature
from app.openai.answers import Identity
from app.openai.converted import MAX_STOPS, Converted, Emit
from app.openai.fields import (
    Body,
    Json,
    boolean,
    mapping,
    parsed,
    text,
    unsupported,
    whole,
    with_known_fields,
    wrong_type,
    wrong_value,
)
from app.openai.llama_parameters import UNLIMITED, changes_nothing
from app.openai.requests import ChatRequest, chat_request, completion_request
from app.openai.sampling import chat_logprobs

_LATEST = ":latest"
_NO_TIME = re.compile(r"0+(\.0+)?(ns|us|ms|s|m|h)?")
VERSION = "0.12.11"  # of Ollama, whose API this is
_SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "stop", "repeat_penalty", "repeat_last_n",
    "presence_penalty", "frequency_penalty",
)  # fmt: skip
_DEFAULTS: Body = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}
_OF_LOAD = frozenset(
    ["num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "use_mmap", "use_mlock", "numa",
     "low_vram", "vocab_only", "f16_kv", "logits_all", "embedding_only"]
)  # fmt: skip
_COMMON = frozenset(
    ["model", "stream", "format", "options", "keep_alive", "think", "logprobs", "top_logprobs", "truncate", "shift"]
)  # fmt: skip
_CHAT = _COMMON | {"messages", "tools"}
_GENERATE = _COMMON | {"prompt", "suffix", "images", "system", "template", "context", "raw"}
_EMBEDDINGS = frozenset(["model", "prompt", "options", "keep_alive"])
_EMBED = frozenset(["model", "input", "truncate", "dimensions", "options", "keep_alive"])


def chat(body: Json) -> Converted:
    """Check a request to /api/chat."""
    body = with_known_fields(body, _CHAT)
    given = body.get("messages")
    if not isinstance(given, list):
        raise wrong_type("messages", "a list of messages", given)
    request = _common(body) | {"messages": [_message(m, f"messages[{i}]") for i, m in enumerate(given)]}
    last = request["messages"][-1]
    if last["role"] == "assistant" and last["content"] and "tool_calls" not in last:
        request["continue_final_message"] = True
    if body.get("tools"):
        request["tools"] = body["tools"]
    return Converted(body, _chat_request(body, request), boolean(body, "stream", True), partial(Answer, "message"))


def _chat_request(body: Body, request: Body) -> ChatRequest:
    """A chat that drops its oldest turns where it does not fit, unless `truncate` is false."""
    if boolean(body, "truncate", True):
        request["truncation"] = "auto"
    return with_any_temperature(chat_request, request, MAX_STOPS)


def generate(body: Json) -> Converted:
    """Check a request to /api/generate: a chat with one message, or with `raw` a completion."""
    body = with_known_fields(body, _GENERATE)
    for name in ("template", "context"):
        if body.get(name):
            raise unsupported(f"{name} is not supported by this engine; leave it out.", name)
    prompt, streamed = text(body, "prompt") or "", boolean(body, "stream", True)
    if not prompt:
        raise wrong_value("prompt is empty.", "prompt")
    answer = partial(Answer, "response")
    suffix = text(body, "suffix")
    if boolean(body, "raw") or suffix:
        if body.get("images") or body.get("system"):
            given = "suffix" if suffix else "raw"
            raise unsupported("Prompts that are raw or have a suffix have neither images nor a system message.", given)
        request = _common(body) | {"prompt": prompt, "suffix": suffix}
        request.pop("chat_template_kwargs", None)
        if request["max_tokens"] is None:
            request["max_tokens"] = UNLIMITED
        request = {name: value for name, value in request.items() if name not in ("logprobs", "top_logprobs")}
        if (top := chat_logprobs(body)) >= 0:
            request["logprobs"] = top
        made = with_any_temperature(completion_request, request, MAX_STOPS)
        made.detailed = True
        return Converted(body, made, streamed, answer)
    messages = [_message({"role": "user", "content": prompt, "images": body.get("images")}, "prompt")]
    if system := text(body, "system"):
        messages.insert(0, {"role": "system", "content": system})
    return Converted(body, _chat_request(body, _common(body) | {"messages": messages}), streamed, answer)


def named(body: Json) -> Json:
    """A request without the tag of its model's name that Ollama adds to names without one."""
    name = body.get("model") if isinstance(body, dict) else None
    return body | {"model": name.removesuffix(_LATEST)} if isinstance(name, str) else body


def frees(body: Body) -> bool:
    """Whether a request without a prompt asks to free the model's memory. `keep_alive`: seconds, or such as "5m"."""
    alive = body.get("keep_alive")
    return bool(_NO_TIME.fullmatch(alive)) if isinstance(alive, str) else whole(alive) == 0


def only_loads(body: Json, field: str) -> bool:
    """Whether a request has nothing to answer: it asks to load the model.

    `field`: the name of the field with the prompt or input.
    """
    return isinstance(body, dict) and body.get(field) in (None, "", []) and not body.get("images")


def loaded(model: str, empty: dict[str, Json], reason: str = "load") -> dict[str, Json]:
    """The answer when a model is loaded, or its memory is freed (`reason` "unload")."""
    return {"model": model, "created_at": iso_time(time.time()), **empty, "done": True, "done_reason": reason}


def embed_request(body: Json) -> Body:
    """Check a request to /api/embed; returns OpenAI's."""
    body = with_known_fields(body, _EMBED)
    request = {"input": body.get("input")}
    if body.get("dimensions") is not None:
        request["dimensions"] = body["dimensions"]
    return request


def embeddings_request(body: Json) -> Body:
    """Check a request to /api/embeddings, the older endpoint; returns that of /api/embed."""
    body = with_known_fields(body, _EMBEDDINGS)
    return {"input": text(body, "prompt") or ""}


def embedded(answer: dict[str, Json], seconds: float) -> dict[str, Json]:
    """The answer of /api/embed, from OpenAI's. `seconds`: what it took."""
    vectors = [list(entry["embedding"]) for entry in answer["data"]]
    return {
        "model": answer["model"],
        "embeddings": vectors,
        "total_duration": int(1e9 * seconds),
        "load_duration": 0,
        "prompt_eval_count": answer["usage"]["prompt_tokens"],
    }


def _common(body: Body) -> Body:
    """The fields of OpenAI's request that a chat and a prompt share."""
    options = mapping(body, "options") or {}
    for name in options:
        if name in _SAMPLING or name in _OF_LOAD or name == "num_predict":
            continue
        if not changes_nothing(name, options[name]):
            raise unsupported(f"options.{name} is not supported by this engine; leave it out.", f"options.{name}")
    request = _DEFAULTS | {name: options[name] for name in _SAMPLING if options.get(name) is not None}
    request |= {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": _num_predict(options)}
    think = body.get("think")
    if think is not None:
        if not isinstance(think, bool) and think not in ("low", "medium", "high", "max"):
            raise wrong_value("think must be true, false, 'low', 'medium', 'high' or 'max'.", "think")
        request["chat_template_kwargs"] = {"enable_thinking": think is not False}
        if isinstance(think, str):
            request["chat_template_kwargs"]["reasoning_effort"] = think
    form = body.get("format")
    if form == "json":
        request["response_format"] = {"type": "json_object"}
    elif isinstance(form, dict):
        request["response_format"] = {"type": "json_schema", "json_schema": {"name": "format", "schema": form}}
    elif form not in (None, ""):
        raise wrong_value("format must be 'json' or a JSON schema.", "format")
    return request | {name: body[name] for name in ("logprobs", "top_logprobs") if body.get(name) is not None}


def _num_predict(options: Body) -> int | None:
    value = options.get("num_predict")
    if value is None:
        return None
    found = whole(value)
    if found is None:
        raise wrong_type("options.num_predict", "an integer", value)
    return found if found > 0 else None  # -1 and -2: until the answer ends


def _message(message: Json, path: str) -> dict[str, Json]:
    if not isinstance(message, dict):
        raise wrong_type(path, "an object", message)
    made = {"role": message.get("role"), "content": message.get("content")}
    if message.get("thinking"):
        made["reasoning_content"] = message["thinking"]
    images = message.get("images")
    if images:
        if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
            raise wrong_type(f"{path}.images", "a list of Base64 texts", images)
        pictures = [{"type": "image_url", "image_url": {"url": f"data:;base64,{image}"}} for image in images]
        made["content"] = [*pictures, {"type": "text", "text": message.get("content") or ""}]
    calls = message.get("tool_calls")
    if calls:
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise wrong_type(f"{path}.tool_calls", "a list of objects", calls)
        made["tool_calls"] = [{"id": f"call_{i}", "type": "function", **_call(call)} for i, call in enumerate(calls)]
    for name, renamed in (("tool_name", "name"), ("tool_call_id", "tool_call_id")):
        if message.get(name) is not None:
            made[renamed] = message[name]
    return made


def _call(call: dict[str, Json]) -> dict[str, Json]:
    """A call without its place among the calls of its message."""
    function = call.get("function")
    if not isinstance(function, dict):
        return call
    return call | {"function": {name: value for name, value in function.items() if name != "index"}}


def iso_time(seconds: float) -> str:
    """A time as Ollama writes it; `seconds` since 1970."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class Answer:
    """A builder of one answer from chunks. `kind`: "message" of a chat, "response" of a prompt."""

    def __init__(self, kind: str, model: str, emit: Emit | None, identity: Identity) -> None:
        self._kind, self._emit = kind, emit
        self._head = {"model": model, "created_at": iso_time(identity.created)}
        self._text, self._thought = "", ""
        self._calls: list[dict[str, Json]] = []
        self._logprobs: list[dict[str, Json]] = []
        self._reason = "stop"
        self.body: dict[str, Json] = {}

    def chunk(self, chunk: dict[str, Json]) -> None:
        """Add the next chunk."""
        for choice in chunk["choices"]:
            delta = choice.get("delta") or {"content": choice.get("text")}
            said, thought = delta.get("content") or "", delta.get("reasoning_content") or ""
            self._text, self._thought = self._text + said, self._thought + thought
            found = [_logprob(one) for one in (choice.get("logprobs") or {}).get("content", ())]
            self._logprobs += found
            for call in delta.get("tool_calls", ()):
                self._add_call(call)
            if choice["finish_reason"]:
                self._reason = "length" if choice["finish_reason"] == "length" else "stop"
            if said or thought or found:
                self._send(self._content(said, thought) | _listed("logprobs", found) | {"done": False})
        if not chunk.get("usage"):
            return
        calls = [
            {"id": one["id"], "function": {"index": i, "name": one["name"], "arguments": parsed(one["arguments"])}}
            for i, one in enumerate(self._calls)
        ]
        if calls:
            self._send(self._content("", "", calls) | {"done": False})
        end = {"done": True, "done_reason": self._reason} | _figures(chunk["usage"], chunk["timings"])
        self._send(self._content("", "") | end)
        whole = self._content(self._text, self._thought, calls)
        self.body = self._head | whole | _listed("logprobs", self._logprobs) | end

    def _add_call(self, call: dict[str, Json]) -> None:
        function = call["function"]
        if "id" in call:
            self._calls.append({"id": call["id"], "name": function["name"], "arguments": ""})
        self._calls[-1]["arguments"] += function.get("arguments") or ""

    def _content(self, said: str, thought: str, calls: list[dict[str, Json]] | None = None) -> dict[str, Json]:
        thinking = {"thinking": thought} if thought else {}
        if self._kind == "response":
            return {"response": said} | thinking
        return {"message": {"role": "assistant", "content": said} | thinking | ({"tool_calls": calls} if calls else {})}

    def _send(self, fields: dict[str, Json]) -> None:
        if self._emit is not None:
            self._emit(self._head | fields)


def _listed(name: str, values: list[dict[str, Json]]) -> dict[str, Json]:
    return {name: values} if values else {}


def _logprob(entry: dict[str, Json]) -> dict[str, Json]:
    """A token's log-probability and those of its alternatives, without ids."""
    found = {name: entry[name] for name in ("token", "logprob", "bytes")}
    return found | _listed("top_logprobs", [_logprob(one) for one in entry.get("top_logprobs", ())])


def _figures(usage: dict[str, Json], timings: dict[str, Json]) -> dict[str, Json]:
    """Counts, and durations in nanoseconds."""
    prompt, answer = (int(1e6 * timings[name]) for name in ("prompt_ms", "predicted_ms"))
    return {
        "total_duration": prompt + answer,
        "load_duration": 0,
        "prompt_eval_count": usage["prompt_tokens"],
        "prompt_eval_duration": prompt,
        "eval_count": usage["completion_tokens"],
        "eval_duration": answer,
    }
