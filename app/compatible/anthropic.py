"""Anthropic's Messages API: its requests as chats, and its answers and events made of a chat's chunks.

Source: Anthropic's API reference, version 2023-06-01. `thinking` blocks have no signature that another server would
accept; they are accepted back as they were sent.
"""

import json
from functools import partial

from app.compatible.documents import document_part, search_result_part
from app.openai.answers import Identity
from app.openai.converted import MAX_STOPS, Converted, Emit
from app.openai.fields import (
    Body,
    Json,
    integer,
    mapping,
    parsed,
    text,
    unsupported,
    with_known_fields,
    wrong_type,
    wrong_value,
)
from app.openai.requests import ChatRequest, chat_request
from py_engine.errors import WispError

_SAME = ("model", "temperature", "top_p", "top_k")
_NO_EFFECT = frozenset(["metadata", "service_tier", "inference_geo", "cache_control"])  # on this machine
_KNOWN = frozenset(
    [*_SAME, *_NO_EFFECT, "messages", "system", "max_tokens", "stop_sequences", "stream", "tools", "tool_choice",
     "thinking", "output_format", "output_config"]
)  # fmt: skip
EFFORTS = ("low", "medium", "high", "xhigh", "max")
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_TOOL_FIELDS = {"name": "name", "description": "description", "input_schema": "parameters", "strict": "strict"}
_RENAMED = (("response_format", "output_format"), ("stop", "stop_sequences"))  # a chat's field, the request's


def messages_request(body: Json) -> Converted:
    """Check a request to create a message."""
    if isinstance(body, dict) and body.get("max_tokens") is None:
        raise wrong_type("max_tokens", "an integer", None)
    request = _chat(body)
    request.detailed = True
    return Converted(body, request, body.get("stream") is True, partial(Message, body))


def count_request(body: Json) -> ChatRequest:
    """Check a request to count a message's tokens."""
    if isinstance(body, dict) and "stream" in body:
        raise unsupported("stream is not a parameter of this endpoint.", "stream")
    return _chat(body)


def _chat(body: Json) -> ChatRequest:
    body = with_known_fields(body, _KNOWN)
    if not isinstance(body.get("stream", False), bool | None):
        raise wrong_type("stream", "true or false", body["stream"])
    chat: Body = {name: body[name] for name in _SAME if name in body}
    chat |= {"stream": True, "stream_options": {"include_usage": True}}
    chat["max_tokens"] = integer(body, "max_tokens", 1)
    chat["stop"] = body.get("stop_sequences") or None
    chat["messages"] = [*_system(body.get("system")), *_messages(body.get("messages"))]
    chat["tools"] = _tools(body.get("tools"))
    choice = mapping(body, "tool_choice") or {}
    chat["tool_choice"] = _tool_choice(choice)
    if choice.get("disable_parallel_tool_use") is True:
        chat["parallel_tool_calls"] = False
    chat["chat_template_kwargs"] = _thinking(body)
    chat["response_format"] = _format(body)
    if _is_prefill(chat["messages"]):
        chat["continue_final_message"] = True
    try:
        return chat_request({name: value for name, value in chat.items() if value is not None}, MAX_STOPS)
    except WispError as error:
        for name, renamed in _RENAMED:
            if (error.param or "").split(".")[0] == name:
                raise error.reworded(error.message.replace(name, renamed), renamed) from None
        raise


def _thinking(body: Body) -> Body:
    """Variables of chat templates. A model thinks only where the request says so, if its template has a switch."""
    kind = text(mapping(body, "thinking") or {}, "type", "thinking.type") or "disabled"
    if kind not in ("enabled", "adaptive", "disabled"):
        raise wrong_value("thinking.type must be 'enabled', 'adaptive' or 'disabled'.", "thinking.type")
    made: Body = {"enable_thinking": kind != "disabled"}
    effort = text(mapping(body, "output_config") or {}, "effort", "output_config.effort")
    if effort is None:
        return made
    if effort not in EFFORTS:
        raise wrong_value(f"output_config.effort must be one of {', '.join(EFFORTS)}.", "output_config.effort")
    return made | {"reasoning_effort": effort}


def _is_prefill(messages: list[dict[str, Json]]) -> bool:
    """Whether the last message is the beginning of the answer."""
    last = messages[-1] if messages else {}
    return last.get("role") == "assistant" and isinstance(last.get("content"), str) and "tool_calls" not in last


def _system(given: Json) -> list[dict[str, Json]]:
    if given is None or given in ("", []):
        return []
    return [{"role": "system", "content": given if isinstance(given, str) else _parts(given, "system")}]


def _messages(given: Json) -> list[dict[str, Json]]:
    if not isinstance(given, list):
        raise wrong_type("messages", "a list of messages", given)
    messages: list[dict[str, Json]] = []
    for i, message in enumerate(given):
        path = f"messages[{i}]"
        if not isinstance(message, dict):
            raise wrong_type(path, "an object", message)
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant"):
            raise wrong_value(f"{path}.role must be 'user' or 'assistant'.", f"{path}.role")
        if isinstance(content, str):
            messages.append({"role": role, "content": content})
        elif not isinstance(content, list):
            raise wrong_type(f"{path}.content", "a string or a list of blocks", content)
        else:
            messages += (_of_user if role == "user" else _of_assistant)(content, f"{path}.content")
    return messages


def _of_user(blocks: list[Json], path: str) -> list[dict[str, Json]]:
    """The messages of a user's blocks: the results of tools, then what the user says."""
    results, rest = [], []
    for j, block in enumerate(blocks):
        if _type(block, f"{path}[{j}]") != "tool_result":
            rest.append(_part(block, f"{path}[{j}]"))
            continue
        content = block.get("content") or ""
        content = content if isinstance(content, str) else _parts(content, f"{path}[{j}].content")
        if block.get("is_error") is True:
            content = (
                f"Error: {content}" if isinstance(content, str) else [{"type": "text", "text": "Error:"}, *content]
            )
        results.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content})
    return [*results, {"role": "user", "content": rest}] if rest else results


def _of_assistant(blocks: list[Json], path: str) -> list[dict[str, Json]]:
    """One message with the text, the reasoning and the calls of an assistant's blocks."""
    said, thought, calls = "", "", []
    for j, block in enumerate(blocks):
        kind = _type(block, f"{path}[{j}]")
        if kind == "text":
            said += _string(block, "text", f"{path}[{j}]")
        elif kind == "thinking":
            thought += _string(block, "thinking", f"{path}[{j}]")
        elif kind == "tool_use":
            function = {"name": block.get("name"), "arguments": json.dumps(block.get("input") or {})}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif kind != "redacted_thinking":
            raise _not_read(kind, f"{path}[{j}]")
    message: dict[str, Json] = {"role": "assistant", "content": said or None}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    return [message]


def _parts(blocks: Json, path: str) -> list[dict[str, Json]]:
    if not isinstance(blocks, list):
        raise wrong_type(path, "a string or a list of blocks", blocks)
    return [_part(block, f"{path}[{j}]") for j, block in enumerate(blocks)]


def _part(block: Json, path: str) -> dict[str, Json]:
    """A text, a picture or a document as the part of a chat's message."""
    kind = _type(block, path)
    if kind == "text":
        return {"type": "text", "text": _string(block, "text", path)}
    if kind == "document":
        return document_part(block, path)
    if kind == "search_result":
        return search_result_part(block, path)
    if kind != "image":
        raise _not_read(kind, path)
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") not in ("base64", "url"):
        raise wrong_value(f"{path}.source.type must be 'base64' or 'url'.", f"{path}.source.type")
    if source["type"] == "url":
        return {"type": "image_url", "image_url": {"url": source.get("url")}}
    data = _string(source, "data", f"{path}.source")
    return {"type": "image_url", "image_url": {"url": f"data:{source.get('media_type') or ''};base64,{data}"}}


def _type(block: Json, path: str) -> Json:
    if not isinstance(block, dict):
        raise wrong_type(path, "an object", block)
    return block.get("type")


def _string(block: Body, name: str, path: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise wrong_type(f"{path}.{name}", "a string", value)
    return value


def _not_read(kind: Json, path: str) -> WispError:
    return unsupported(f"{path} is of type {kind!r}, which this engine does not read.", f"{path}.type")


def _tools(given: Json) -> Json:
    if not isinstance(given, list):
        return given
    found = []
    for i, tool in enumerate(given):
        if not isinstance(tool, dict) or tool.get("type") not in (None, "custom"):
            raise unsupported(f"tools[{i}] is a tool of Anthropic's servers; give your own tools.", f"tools[{i}].type")
        # In the order of OpenAI's fields, as templates write them and models have learned them.
        function = {ours: tool[name] for name, ours in _TOOL_FIELDS.items() if tool.get(name) is not None}
        found.append({"type": "function", "function": function})
    return found


def _tool_choice(choice: Body) -> Json:
    kind = text(choice, "type", "tool_choice.type")
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    choices = {None: None, "auto": "auto", "any": "required", "none": "none"}
    if kind not in choices:
        raise wrong_value("tool_choice.type must be 'auto', 'any', 'tool' or 'none'.", "tool_choice.type")
    return choices[kind]


def _format(body: Body) -> Json:
    form = mapping(body, "output_format") or (mapping(body, "output_config") or {}).get("format")
    if form is None:
        return None
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        raise wrong_value("output_format.type must be 'json_schema'.", "output_format.type")
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": form.get("schema"), "strict": True}}


class Message:
    """A builder of one message from the chunks of a chat. `emit` receives its events."""

    def __init__(self, body: Body, model: str, emit: Emit | None, identity: Identity) -> None:
        self._emit, self._begun, self._opened = emit, False, False
        self._arguments = ""  # of the open call
        self.body: dict[str, Json] = {
            "id": f"msg_{identity.root}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage({}),
        }

    def chunk(self, chunk: dict[str, Json]) -> None:
        """Add the next chunk of the chat."""
        if not self._begun:
            self._begun = True
            usage = _usage({"prompt_tokens": chunk.get("prompt_tokens", 0)})
            self._event("message_start", message={**self.body, "content": [], "usage": usage})
        for choice in chunk["choices"]:
            self._delta(choice["delta"])
            if choice["finish_reason"]:
                self._close()
                self.body["stop_reason"] = _REASONS[choice["finish_reason"]]
                if choice.get("stop_reason") is not None:
                    self.body |= {"stop_reason": "stop_sequence", "stop_sequence": choice["stop_reason"]}
        if chunk.get("usage"):
            self.body["usage"] = _usage(chunk["usage"])
            ended = {name: self.body[name] for name in ("stop_reason", "stop_sequence")}
            self._event("message_delta", delta=ended, usage=self.body["usage"])
            self._event("message_stop")

    def _event(self, kind: str, **fields: Json) -> None:
        if self._emit is not None:
            self._emit({"type": kind, **fields})

    def _delta(self, delta: dict[str, Json]) -> None:
        if delta.get("reasoning_content"):
            self._text("thinking", delta["reasoning_content"])
        if delta.get("content"):
            self._text("text", delta["content"])
        for call in delta.get("tool_calls", ()):
            function = call["function"]
            if "id" in call:
                self._open({"type": "tool_use", "id": call["id"], "name": function["name"], "input": {}})
            if piece := function.get("arguments"):
                self._arguments += piece
                self._piece({"type": "input_json_delta", "partial_json": piece})

    def _open(self, block: dict[str, Json]) -> None:
        self._close()
        self._event("content_block_start", index=len(self.body["content"]), content_block=dict(block))
        self.body["content"].append(block)
        self._opened = True

    def _text(self, kind: str, piece: str) -> None:
        if not self._opened or self.body["content"][-1]["type"] != kind:
            self._open({"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {}))
        self.body["content"][-1][kind] += piece
        self._piece({"type": f"{kind}_delta", kind: piece})

    def _piece(self, delta: dict[str, Json]) -> None:
        self._event("content_block_delta", index=len(self.body["content"]) - 1, delta=delta)

    def _close(self) -> None:
        if not self._opened:
            return
        self._opened = False
        block = self.body["content"][-1]
        if block["type"] == "tool_use":
            block["input"], self._arguments = parsed(self._arguments), ""
        self._event("content_block_stop", index=len(self.body["content"]) - 1)


def _usage(usage: dict[str, Json]) -> dict[str, Json]:
    """Tokens that were read from the KV cache do not count as input tokens."""
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return {
        "input_tokens": usage.get("prompt_tokens", 0) - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.get("completion_tokens", 0),
    }
