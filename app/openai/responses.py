"""The responses endpoint: convert its requests to chat requests, and chat chunks to its items and events."""

from functools import partial

from app.openai.answers import Identity
from app.openai.converted import Converted, Emit
from app.openai.fields import Body, Json, integer, mapping, text, unsupported, wrong_type, wrong_value
from app.openai.files import input_file
from app.openai.media import MediaPart
from app.openai.requests import ChatRequest, chat_request
from app.openai.sampling import PARAMETERS
from app.openai.video import TYPES as VIDEO_TYPES
from py_engine.errors import WispError

# Fields of a chat request that a response request has under the same name.
_PASSED_ON = (
    "stream", "user", "metadata", "store", "model", "parallel_tool_calls", "truncation",
    "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_options", "stop",
    "chat_template_kwargs", "top_logprobs", "lora",
    *(name for name, parameter in PARAMETERS.items() if parameter.range.responses),
)  # fmt: skip
_KNOWN = frozenset(
    [*_PASSED_ON, "input", "instructions", "max_output_tokens", "tools", "tool_choice", "text", "reasoning",
     "include", "stream_options", "prompt_cache_retention", "max_tool_calls"]
)  # fmt: skip
# Parameters that are not implemented: name -> the values that have no effect, and are accepted.
_NEUTRAL: dict[str, tuple[Json, ...]] = {
    "background": (False,),
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
}
# (start of the chat request's field, start of the response request's), for the `param` of errors
_RENAMED = (
    ("messages", "input"), ("response_format", "text.format"), ("reasoning_", "reasoning."),
    ("max_tokens", "max_output_tokens"), ("verbosity", "text.verbosity"),
)  # fmt: skip
LOGPROBS = "message.output_text.logprobs"  # the element of `include` that requests logprobs


def responses_request(body: Json) -> Converted:
    """Check a request."""
    request = _chat_request(body)
    return Converted(body, request, bool(body.get("stream")), partial(Response, body))


def _chat_request(body: Json) -> ChatRequest:
    if not isinstance(body, dict):
        raise wrong_type(None, "a JSON object as the request", body)
    for name, value in body.items():
        if name in _KNOWN or value is None or value in _NEUTRAL.get(name, ()):
            continue
        if name in _NEUTRAL:
            raise unsupported(
                f"{name} is not supported: nothing is stored that a later request could name; leave it out.", name
            )
        raise unsupported(f"Unrecognized request argument supplied: {name}", name)
    chat: Body = {name: body[name] for name in _PASSED_ON if name in body}
    chat |= {"messages": _messages(body), "stream_options": {"include_usage": True}, "stream": True}
    if not isinstance(body.get("stream", False), bool | None):
        raise wrong_type("stream", "true or false", body["stream"])
    chat["max_tokens"] = integer(body, "max_output_tokens", 1)
    chat["tools"] = _tools(body.get("tools"))
    chat["tool_choice"] = body.get("tool_choice")
    written = mapping(body, "text") or {}
    chat["response_format"], chat["verbosity"] = _format(written), written.get("verbosity")
    reasoning = mapping(body, "reasoning") or {}
    chat["reasoning_effort"] = reasoning.get("effort")
    include = body.get("include") or []
    if not isinstance(include, list):
        raise wrong_type("include", "a list", include)
    chat["logprobs"] = LOGPROBS in include or None
    if not chat["logprobs"]:
        chat.pop("top_logprobs", None)
    try:
        return chat_request(chat)
    except WispError as error:
        param = error.param or ""
        for chat_name, name in _RENAMED:
            if param.startswith(chat_name):
                renamed = name + param[len(chat_name) :]
                raise error.reworded(error.message.replace(param, renamed), renamed) from None
        raise


def _messages(body: Body) -> list[dict[str, Json]]:
    messages = []
    instructions = text(body, "instructions")
    if instructions:
        messages.append({"role": "system", "content": instructions})
    given = body.get("input")
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    if not isinstance(given, list):
        raise wrong_type("input", "a string or a list of items", given)
    if not given:
        raise WispError("input is empty: give at least one item.", "empty_messages", param="input")
    for i, item in enumerate(given):
        _add_item(messages, item, f"input[{i}]")
    return messages


def _add_item(messages: list[dict[str, Json]], item: Json, path: str) -> None:
    if not isinstance(item, dict):
        raise wrong_type(path, "an object", item)
    kind = item.get("type", "message")
    if kind == "message":
        role, content = item.get("role"), _content(item.get("content"), path)
        if role == "assistant" and messages and "reasoning_content" in messages[-1] and not messages[-1]["content"]:
            messages[-1]["content"] = content  # reasoning and the message after it are one message
        else:
            messages.append({"role": role, "content": content})
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": None})
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        output = _content(item.get("output"), path)
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
    elif kind == "reasoning":
        thought = _reasoning(item.get("content"), f"{path}.content")
        messages.append({"role": "assistant", "content": None, "reasoning_content": thought})
    else:
        raise unsupported(f"{path} is of type {kind!r}, which is not supported; leave it out.", f"{path}.type")


def _reasoning(content: Json, path: str) -> str:
    """The text of a reasoning item's content; a server may have sent it without any."""
    if content is not None and not isinstance(content, list):
        raise wrong_type(path, "a list of parts", content)
    thought = ""
    for j, part in enumerate(content or ()):
        if not isinstance(part, dict):
            raise wrong_type(f"{path}[{j}]", "an object", part)
        said = part.get("text", "")
        if not isinstance(said, str):
            raise wrong_type(f"{path}[{j}].text", "a string", said)
        thought += said
    return thought


def _content(content: Json, path: str) -> Json:
    if not isinstance(content, list):
        return content
    parts: list[Json] = []
    for j, part in enumerate(content):
        if not isinstance(part, dict):
            raise wrong_type(f"{path}.content[{j}]", "an object", part)
        kind = part.get("type")
        if kind == "input_image" and part.get("image_url") is not None:
            parts.append({"type": "image_url", "image_url": {"url": part["image_url"], "detail": part.get("detail")}})
        elif kind == "image_url" and isinstance(part.get("image_url"), MediaPart):  # of a video
            parts.append(part)
        elif kind == "input_audio":
            parts.append({"type": "input_audio", "input_audio": part.get("input_audio")})
        elif kind == "input_file":
            parts.append(input_file(part))
        elif kind == "refusal":
            parts.append({"type": "refusal", "refusal": part.get("refusal")})
        elif kind in VIDEO_TYPES:
            what = "a video, which only messages of users and results of functions have, and only Wisp's pages decode"
            raise unsupported(f"{path}.content[{j}] is {what}: send pictures of it.", f"{path}.content[{j}]")
        elif kind in ("input_text", "output_text", "text"):
            parts.append({"type": "text", "text": part.get("text")})
        else:
            raise unsupported(
                f"{path}.content[{j}] is of type {kind!r}; this engine reads text, image addresses, sound, videos, "
                "text files and PDF files.",
                f"{path}.content[{j}]",
            )
    return parts


def _tools(given: Json) -> Json:
    if not isinstance(given, list):
        return given
    out = []
    for i, tool in enumerate(given):
        if not isinstance(tool, dict) or tool.get("type") != "function":
            what = "must be 'function'; MCP servers are for the SDK and the API in the terminal"
            raise wrong_value(f"tools[{i}].type {what}.", f"tools[{i}].type")
        out.append({"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}})
    return out


def _format(given: Body) -> Json:
    form = given.get("format")
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return form
    return {"type": "json_schema", "json_schema": {k: v for k, v in form.items() if k != "type"}}


class Response:
    """A builder of one response from the chunks of a chat. `emit` receives its events."""

    def __init__(self, body: Body, model: str, emit: Emit | None, identity: Identity | None = None) -> None:
        identity = identity or Identity.new()
        self._emit, self._count, self._random = emit, 0, identity.random_bytes("response")
        self._item: dict[str, Json] | None = None
        self.body: dict[str, Json] = {
            "id": self._id("resp"),
            "object": "response",
            "created_at": identity.created,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "metadata": body.get("metadata") or {},
            "model": model,
            "output": [],
            "parallel_tool_calls": body.get("parallel_tool_calls", True) is not False,
            "previous_response_id": None,
            "reasoning": {"effort": (body.get("reasoning") or {}).get("effort"), "summary": None},
            "store": False,
            "temperature": body.get("temperature", 1.0),
            "text": {"format": (body.get("text") or {}).get("format") or {"type": "text"}},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "top_p": body.get("top_p", 1.0),
            "truncation": body.get("truncation") or "disabled",
            "usage": None,
            "user": body.get("user"),
        }

    def chunk(self, chunk: dict[str, Json]) -> None:
        """Add the next chunk of the chat."""
        if not self._count:
            self._count = 1
            for kind in ("created", "in_progress"):
                self._event(f"response.{kind}", response=dict(self.body))
        for choice in chunk["choices"]:
            self._delta(choice["delta"], choice["logprobs"])
            if choice["finish_reason"]:
                self._end(choice["finish_reason"])
        if chunk.get("usage"):
            self._complete(chunk["usage"])

    def _id(self, kind: str) -> str:
        return f"{kind}_{self._random(16).hex()}"

    def _event(self, kind: str, **fields: Json) -> None:
        if self._emit is not None:
            self._emit({"type": kind, "sequence_number": self._count - 1, **fields})
        self._count += 1

    def _delta(self, delta: dict[str, Json], logprobs: Json) -> None:
        if delta.get("reasoning_content"):
            self._text("reasoning", delta["reasoning_content"], None)
        if delta.get("content"):
            self._text("message", delta["content"], logprobs)
        for call in delta.get("tool_calls", ()):
            self._call(call)

    def _where(self) -> dict[str, Json]:
        assert self._item is not None
        return {"item_id": self._item["id"], "output_index": len(self.body["output"]) - 1}

    def _open(self, item: dict[str, Json]) -> None:
        self._close()
        self._item = item
        self.body["output"].append(item)
        self._event("response.output_item.added", output_index=len(self.body["output"]) - 1, item=_copy(item))

    def _text(self, kind: str, piece: str, logprobs: Json) -> None:
        if self._item is None or self._item["type"] != kind:
            if kind == "message":
                item = {
                    "id": self._id("msg"),
                    "type": kind,
                    "role": "assistant",
                    "status": "in_progress",
                    "content": [],
                }
                part: dict[str, Json] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            else:
                item = {
                    "id": self._id("rs"),
                    "type": kind,
                    "status": "in_progress",
                    "summary": [],
                    "content": [],
                }
                part = {"type": "reasoning_text", "text": ""}
            self._open(item)
            content: list[Json] = [part]
            item["content"] = content
            self._event("response.content_part.added", **self._where(), content_index=0, part=dict(part))
        assert self._item is not None
        part = self._item["content"][0]
        part["text"] += piece
        entries = (logprobs or {}).get("content", [])
        if kind == "message":
            part["logprobs"] += entries
            extra = {"logprobs": entries}
        else:
            extra = {}
        self._event(f"response.{part['type']}.delta", **self._where(), content_index=0, delta=piece, **extra)

    def _call(self, call: dict[str, Json]) -> None:
        function = call["function"]
        if "id" in call:
            self._open(
                {
                    "id": self._id("fc"),
                    "type": "function_call",
                    "status": "in_progress",
                    "call_id": call["id"],
                    "name": function["name"],
                    "arguments": "",
                }
            )
        piece = function.get("arguments")
        if piece and self._item is not None:
            self._item["arguments"] += piece
            self._event("response.function_call_arguments.delta", **self._where(), delta=piece)

    def _close(self, status: str = "completed") -> None:
        item = self._item
        if item is None:
            return
        item["status"] = status
        where = self._where()
        if item["type"] == "function_call":
            done = {"arguments": item["arguments"], "name": item["name"]}
            self._event("response.function_call_arguments.done", **where, **done)
        else:
            part = item["content"][0]
            extra = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
            self._event(f"response.{part['type']}.done", **where, content_index=0, text=part["text"], **extra)
            self._event("response.content_part.done", **where, content_index=0, part=dict(part))
        self._event("response.output_item.done", output_index=where["output_index"], item=_copy(item))
        self._item = None

    def _end(self, reason: str) -> None:
        self._close("incomplete" if reason == "length" else "completed")
        self.body["status"] = "incomplete" if reason == "length" else "completed"
        if reason == "length":
            self.body["incomplete_details"] = {"reason": "max_output_tokens"}

    def _complete(self, usage: dict[str, Json]) -> None:
        details = usage.get("completion_tokens_details") or {}
        self.body["usage"] = {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cache_write_tokens": 0, **usage["prompt_tokens_details"]},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": details.get("reasoning_tokens", 0)},
            "total_tokens": usage["total_tokens"],
        }
        self._event(f"response.{self.body['status']}", response=self.body)


def _copy(item: dict[str, Json]) -> dict[str, Json]:
    return {**item, "content": list(item["content"])} if "content" in item else dict(item)
