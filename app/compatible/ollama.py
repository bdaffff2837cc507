"""Ollama's API: its requests as chats, completions and embeddings, and its answers made of their chunks.

Source: Ollama's docs/api.md. Options of its load (`num_ctx`, `keep_alive` ...) have no effect: Wisp's own load has
decided them. Sampling parameters that a request leaves out have Ollama's defaults.
"""

import time
from datetime import UTC, datetime
from functools import partial

from app.openai.answers import Identity
from app.openai.converted import Converted, Emit
from app.openai.fields import Body, Json, boolean, mapping, parsed, text, unsupported, whole, wrong_type, wrong_value
from app.openai.requests import chat_request, completion_request

VERSION = "0.6.0"  # of Ollama, whose API this is
_SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "stop", "repeat_penalty", "repeat_last_n",
    "presence_penalty", "frequency_penalty",
)  # fmt: skip
_DEFAULTS: Body = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}
_OF_LOAD = frozenset(
    ["num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "use_mmap", "use_mlock", "numa",
     "low_vram", "vocab_only", "penalize_newline"]
)  # fmt: skip
_COMMON = frozenset(["model", "stream", "format", "options", "keep_alive", "think", "logprobs", "top_logprobs"])
_CHAT = _COMMON | {"messages", "tools"}
_GENERATE = _COMMON | {"prompt", "suffix", "images", "system", "template", "context", "raw"}
_DETAILS = {"parent_model": "", "format": "gguf", "family": "", "families": [], "parameter_size": "",
            "quantization_level": ""}  # fmt: skip
_EMBED = frozenset(["model", "input", "truncate", "dimensions", "options", "keep_alive"])


def chat(body: Json) -> Converted:
    """Check a request to /api/chat."""
    body = _object(body, _CHAT)
    given = body.get("messages")
    if not isinstance(given, list):
        raise wrong_type("messages", "a list of messages", given)
    request = _common(body) | {"messages": [_message(m, f"messages[{i}]") for i, m in enumerate(given)]}
    last = request["messages"][-1]
    if last["role"] == "assistant" and last["content"] and "tool_calls" not in last:
        request["continue_final_message"] = True
    if body.get("tools"):
        request["tools"] = body["tools"]
    return Converted(body, chat_request(request), boolean(body, "stream", True), partial(Answer, "message"))


def generate(body: Json) -> Converted:
    """Check a request to /api/generate: a chat with one message, or with `raw` a completion."""
    body = _object(body, _GENERATE)
    for name in ("suffix", "template", "context"):
        if body.get(name):
            raise unsupported(f"{name} is not supported by this engine; leave it out.", name)
    prompt, streamed = text(body, "prompt") or "", boolean(body, "stream", True)
    if not prompt:
        raise wrong_value("prompt is empty.", "prompt")
    answer = partial(Answer, "response")
    if boolean(body, "raw"):
        if body.get("images") or body.get("system"):
            raise unsupported("raw prompts have neither images nor a system message.", "raw")
        request = _common(body) | {"prompt": prompt}
        request.pop("chat_template_kwargs", None)
        if request["max_tokens"] is None:
            request["max_tokens"] = (1 << 31) - 1  # up to the end of the context
        return Converted(body, completion_request(request), streamed, answer)
    messages = [_message({"role": "user", "content": prompt, "images": body.get("images")}, "prompt")]
    if system := text(body, "system"):
        messages.insert(0, {"role": "system", "content": system})
    return Converted(body, chat_request(_common(body) | {"messages": messages}), streamed, answer)


def only_loads(body: Json, field: str) -> bool:
    """Whether a request has nothing to answer: it asks to load the model. `field`: "messages" or "prompt"."""
    return isinstance(body, dict) and body.get(field) in (None, "", []) and not body.get("images")


def loaded(model: str, empty: dict[str, Json]) -> dict[str, Json]:
    """The answer when a model is loaded."""
    return {"model": model, "created_at": _time(time.time()), **empty, "done": True, "done_reason": "load"}


def embed_request(body: Json) -> Body:
    """Check a request to /api/embed; returns OpenAI's."""
    body = _object(body, _EMBED)
    request = {"input": body.get("input")}
    if body.get("dimensions") is not None:
        request["dimensions"] = body["dimensions"]
    return request


def embedded(answer: dict[str, Json]) -> dict[str, Json]:
    """The answer of /api/embed, from OpenAI's."""
    vectors = [list(entry["embedding"]) for entry in answer["data"]]
    return {
        "model": answer["model"],
        "embeddings": vectors,
        "total_duration": 0,
        "load_duration": 0,
        "prompt_eval_count": answer["usage"]["prompt_tokens"],
    }


def tag(model: dict[str, Json]) -> dict[str, Json]:
    """An entry of /api/tags and /api/ps, from OpenAI's list of models with the catalog's fields."""
    digest = str(model.get("sha256") or "")
    return {
        "name": model["id"],
        "model": model["id"],
        "modified_at": _time(model.get("created") or 0),
        "size": model.get("size") or 0,
        "digest": digest,
        "details": _DETAILS,
    }


def shown(metadata: dict[str, Json], template: str, capabilities: list[str]) -> dict[str, Json]:
    """The answer of /api/show: what the file says, without its vocabulary."""
    info = {name: value for name, value in metadata.items() if isinstance(value, str | int | float | bool)}
    info.pop("tokenizer.chat_template", None)
    return {"template": template, "model_info": info, "capabilities": capabilities, "details": _DETAILS}


def _object(body: Json, known: frozenset[str]) -> Body:
    if not isinstance(body, dict):
        raise wrong_type(None, "a JSON object as the request", body)
    for name, value in body.items():
        if name not in known and value is not None:
            raise unsupported(f"{name} is not a parameter that this engine knows; leave it out.", name)
    return body


def _common(body: Body) -> Body:
    """The fields of OpenAI's request that a chat and a prompt share."""
    options = mapping(body, "options") or {}
    for name in options:
        if name not in _SAMPLING and name not in _OF_LOAD and name != "num_predict":
            raise unsupported(f"options.{name} is not supported by this engine; leave it out.", f"options.{name}")
    request = _DEFAULTS | {name: options[name] for name in _SAMPLING if options.get(name) is not None}
    request |= {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": _num_predict(options)}
    think = body.get("think")
    if think is not None:
        if not isinstance(think, bool) and think not in ("low", "medium", "high"):
            raise wrong_value("think must be true, false, 'low', 'medium' or 'high'.", "think")
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
    if body.get("logprobs") or body.get("top_logprobs"):
        raise unsupported("logprobs are not supported here; use /v1/chat/completions.", "logprobs")
    return request


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
        made["tool_calls"] = [{"id": f"call_{i}", "type": "function", **call} for i, call in enumerate(calls)]
    return made


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class Answer:
    """A builder of one answer from chunks. `kind`: "message" of a chat, "response" of a prompt."""

    def __init__(self, kind: str, model: str, emit: Emit | None, identity: Identity) -> None:
        self._kind, self._emit = kind, emit
        self._head = {"model": model, "created_at": _time(identity.created)}
        self._text, self._thought = "", ""
        self._calls: list[dict[str, Json]] = []
        self._reason = "stop"
        self.body: dict[str, Json] = {}

    def chunk(self, chunk: dict[str, Json]) -> None:
        """Add the next chunk."""
        for choice in chunk["choices"]:
            delta = choice.get("delta") or {"content": choice.get("text")}
            said, thought = delta.get("content") or "", delta.get("reasoning_content") or ""
            self._text, self._thought = self._text + said, self._thought + thought
            for call in delta.get("tool_calls", ()):
                self._add_call(call["function"], new="id" in call)
            if choice["finish_reason"]:
                self._reason = "length" if choice["finish_reason"] == "length" else "stop"
            if said or thought:
                self._send(self._content(said, thought) | {"done": False})
        if "usage" not in chunk:
            return
        calls = [{"function": {"name": one["name"], "arguments": parsed(one["arguments"])}} for one in self._calls]
        if calls:
            self._send(self._content("", "", calls) | {"done": False})
        end = {"done": True, "done_reason": self._reason} | _figures(chunk["usage"], chunk["timings"])
        self._send(self._content("", "") | end)
        self.body = self._head | self._content(self._text, self._thought, calls) | end

    def _add_call(self, function: dict[str, Json], *, new: bool) -> None:
        if new:
            self._calls.append({"name": function["name"], "arguments": ""})
        self._calls[-1]["arguments"] += function.get("arguments") or ""

    def _content(self, said: str, thought: str, calls: list[dict[str, Json]] | None = None) -> dict[str, Json]:
        thinking = {"thinking": thought} if thought else {}
        if self._kind == "response":
            return {"response": said} | thinking
        return {"message": {"role": "assistant", "content": said} | thinking | ({"tool_calls": calls} if calls else {})}

    def _send(self, fields: dict[str, Json]) -> None:
        if self._emit is not None:
            self._emit(self._head | fields)


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
