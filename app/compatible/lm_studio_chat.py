"""LM Studio's chats of version 1, which the server stores: their requests as OpenAI's, and their answers.

Source: lmstudio.ai/docs/developer/rest/chat, /stateful-chats and /streaming-events.
"""

import re

from app.compatible.stored_chats import Messages, StoredChats
from app.openai.answers import Identity
from app.openai.converted import Converted, Emit
from app.openai.fields import Body, Json, boolean, integer, one_of, text, unsupported, wrong_type, wrong_value
from app.openai.requests import ChatRequest, CompletionRequest, chat_request
from py_engine.errors import WispError

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty")
_KNOWN = frozenset(
    ["model", "input", "system_prompt", "integrations", "stream", "max_output_tokens", "reasoning", "context_length",
     "store", "previous_response_id", *_SAMPLING]
)  # fmt: skip
_EFFORTS = ("off", "low", "medium", "high", "on")
_PREFIX = "resp_"  # of an answer's id
_MESSAGE = re.compile(r"messages\[(\d+)\]\.content")
# The end of a path in a chat request -> in this API's.
_RENAMED = ((".image_url.url", ".data_url"), (".image_url", ".data_url"), (".text", ".content"))


def chat(body: Json, stored: StoredChats) -> Converted:
    """Check a request. `stored`: the chats that requests continue, and that it adds to."""
    if not isinstance(body, dict):
        raise wrong_type(None, "a JSON object as the request", body)
    if unknown := next((name for name in body if name not in _KNOWN), None):
        raise unsupported(f"Unrecognized request argument supplied: {unknown}", unknown)
    if body.get("integrations") not in (None, []):
        raise unsupported(
            "integrations are not supported by this engine, which runs no tools; leave them out.", "integrations"
        )
    integer(body, "context_length", 1)  # an option of the load
    messages, store = _messages(body, stored), boolean(body, "store", default=True)
    request: Body = {name: body[name] for name in _SAMPLING if body.get(name) is not None}
    request |= {"messages": messages, "max_tokens": integer(body, "max_output_tokens", 1)} | _reasoning(body)
    request |= {"stream": True, "stream_options": {"include_usage": True}}
    try:
        made = chat_request({name: value for name, value in request.items() if value is not None})
    except WispError as error:
        raise _reworded(error, len(messages)) from None

    def answer(model: str, emit: Emit | None, identity: Identity) -> ChatAnswer:
        return ChatAnswer(model, emit, f"{_PREFIX}{identity.root}" if store else None, messages, stored)

    return Converted(body, made, boolean(body, "stream"), answer)


def reworded(error: WispError, request: ChatRequest | CompletionRequest) -> WispError:
    """The error of a chat request that this module has made, with the fields that the client has sent."""
    return _reworded(error, len(request.messages)) if isinstance(request, ChatRequest) else error


def _reworded(error: WispError, n_messages: int) -> WispError:
    param, message = error.param or "", error.message
    if param == "messages":
        if error.code == "context_length_exceeded":
            message = message.replace("Shorten the conversation,", "Begin a new chat, shorten the input,")
        return error.reworded(message, "input")
    found = _MESSAGE.match(param)
    if found is None:
        return error
    if int(found[1]) < n_messages - 1:  # of an earlier message, which the server has stored
        return error.reworded(message.replace(param, "previous_response_id"), "previous_response_id")
    name = "input" + param[found.end() :]
    for end, ours in _RENAMED:
        if name.endswith(end):
            name = name.removesuffix(end) + ours
            break
    return error.reworded(message.replace(param, name), name)


def _messages(body: Body, stored: StoredChats) -> Messages:
    """The messages so far, and the input. A system prompt replaces the earlier one."""
    previous, system = text(body, "previous_response_id"), text(body, "system_prompt")
    if previous is not None and not previous.startswith(_PREFIX):
        raise wrong_value(f"previous_response_id must begin with {_PREFIX!r}.", "previous_response_id")
    earlier = stored.until(previous, "previous_response_id") if previous is not None else []
    if system is not None:
        begun = [one for one in earlier if one["role"] != "system"]
        earlier = [{"role": "system", "content": system}, *begun] if system else begun
    return [*earlier, {"role": "user", "content": _content(body.get("input"))}]


def _content(given: Json) -> Json:
    if given == "":
        raise wrong_value("input is empty; say something.", "input")
    if isinstance(given, str):
        return given
    if not isinstance(given, list) or not given:
        raise wrong_type("input", "a string or a list of texts and pictures", given)
    return [_part(one, f"input[{i}]") for i, one in enumerate(given)]


def _part(given: Json, path: str) -> dict[str, Json]:
    if not isinstance(given, dict):
        raise wrong_type(path, "an object", given)
    if given.get("type") in ("message", "text"):  # the documentation's table has the one, its example the other
        if (content := text(given, "content", f"{path}.content")) is None:
            raise wrong_type(f"{path}.content", "a string", None)
        return {"type": "text", "text": content}
    if given.get("type") != "image":
        raise wrong_value(f"{path}.type must be 'message', 'text' or 'image'.", f"{path}.type")
    url = text(given, "data_url", f"{path}.data_url")
    if not (url or "").startswith("data:"):
        raise wrong_value(f"{path}.data_url must be a data URL.", f"{path}.data_url")
    return {"type": "image_url", "image_url": {"url": url}}


def _reasoning(body: Body) -> Body:
    effort = one_of(body, "reasoning", _EFFORTS)
    if effort == "on":
        return {"chat_template_kwargs": {"enable_thinking": True}}
    return {} if effort is None else {"reasoning_effort": "none" if effort == "off" else effort}


class ChatAnswer:
    """A builder of one answer from the chunks of a chat. `emit` receives its events; `id`: None if it is not stored."""

    def __init__(self, model: str, emit: Emit | None, id: str | None, messages: Messages, stored: StoredChats) -> None:
        self._emit, self._messages, self._stored = emit, messages, stored
        self._begun = self._read = self._open = False  # the answer; the prompt was read; an item of the output
        self.body: dict[str, Json] = {"model_instance_id": model, "output": [], "stats": {}}
        if id is not None:
            self.body["response_id"] = id

    def chunk(self, chunk: dict[str, Json]) -> None:
        """Add the next chunk of the chat."""
        if not self._begun:
            self._begun = True
            self._event("chat.start", model_instance_id=self.body["model_instance_id"])
            self._event("prompt_processing.start")
        for choice in chunk["choices"]:
            delta = choice["delta"]
            self._text("reasoning", delta.get("reasoning_content"))
            self._text("message", delta.get("content"))
            if choice["finish_reason"]:
                self._end_prompt()
                self._close()
        if chunk.get("usage"):
            self._end(chunk)

    def _event(self, kind: str, **fields: Json) -> None:
        if self._emit is not None:
            self._emit({"type": kind, **fields})

    def _end_prompt(self) -> None:
        if not self._read:
            self._read = True
            self._event("prompt_processing.end")

    def _text(self, kind: str, piece: str | None) -> None:
        if not piece:
            return
        self._end_prompt()
        output = self.body["output"]
        if not self._open or output[-1]["type"] != kind:
            self._close()
            self._open = True
            output.append({"type": kind, "content": ""})
            self._event(f"{kind}.start")
        output[-1]["content"] += piece
        self._event(f"{kind}.delta", content=piece)

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._event(f"{self.body['output'][-1]['type']}.end")

    def _end(self, chunk: dict[str, Json]) -> None:
        usage, timings = chunk["usage"], chunk["timings"]
        self.body["stats"] = {
            "input_tokens": usage["prompt_tokens"],
            "total_output_tokens": usage["completion_tokens"],
            "reasoning_output_tokens": (usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0),
            "tokens_per_second": timings["predicted_per_second"],
            "time_to_first_token_seconds": timings["ttft_ms"] / 1000,
        }
        id = self.body.get("response_id")
        if id is not None and not self._stored.add(id, [*self._messages, self._said()]):
            del self.body["response_id"]  # no request could continue it
        self._event("chat.end", result=self.body)

    def _said(self) -> dict[str, Json]:
        """The answer as a message of the chat."""
        texts = {"reasoning": "", "message": ""}
        for item in self.body["output"]:
            texts[item["type"]] += item["content"]
        thought = {"reasoning_content": texts["reasoning"]} if texts["reasoning"] else {}
        return {"role": "assistant", "content": texts["message"], **thought}
