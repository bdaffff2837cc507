"""Find the forms of messages that a chat template accepts, and bring OpenAI's messages into them.

The forms are found by rendering short conversations.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

from py_engine import json_input
from py_engine.errors import WispError

Message = dict[str, Any]
Render = Callable[..., str]  # (messages, tools=...) -> text; WispError bad_chat_template if the template rejects them

MOST_WRITTEN = 20_000  # characters of a rendered short conversation that are searched for special tokens
FIRST, SECOND = "a0b1c2d3", "e4f5a6b7"  # texts that no template has
PRINTED_PARTS = re.compile("['\"]type['\"]")  # in the text of a list of parts that a template prints
CALLED = "get_a0b1"  # the tool that a short conversation calls, with "city"
# a tool that it describes; its text has neither, so that a call can be told from it
ZONE = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
TOOL = {"type": "function", "function": {"name": "get_time", "description": "A tool.", "parameters": ZONE}}
MAX_SECONDS = 2.0  # of computing, after which no more short conversations are rendered


class Forms:
    """The forms of messages that a template accepts."""

    def __init__(self, source: str, render: Render, clock: Callable[[], float]) -> None:
        self._source, self._render, self._clock = source, render, clock
        self._seconds = 0.0  # that short conversations have taken

    @cached_property
    def requires_parts(self) -> bool:
        """Whether the template accepts a message's content only as a list of parts, not as a string."""
        return FIRST not in self._rendered([_user(FIRST)]) and FIRST in self._rendered([_user(_parts(FIRST))])

    @cached_property
    def takes_parts(self) -> bool:
        """Whether the template writes the texts of a list of parts. Others fail, or print the list as Python does."""
        text = self._rendered([_user(_parts(FIRST, SECOND))])
        return FIRST in text and SECOND in text and not PRINTED_PARTS.search(text)

    @cached_property
    def takes_parts_of_tools(self) -> bool:
        """Whether the template writes the texts of a list of parts in results of tools, too."""
        if not self.takes_parts:
            return False
        text = self._rendered(self._conversation({"city": ""}, _parts(FIRST, SECOND)), [TOOL])
        return FIRST in text and SECOND in text and not PRINTED_PARTS.search(text)

    @cached_property
    def takes_system(self) -> bool:
        """Whether the template writes system messages. Also true if it does not even write those of users."""
        said, asked = (
            {"role": role, "content": self._text(text)} for role, text in (("system", FIRST), ("user", SECOND))
        )
        return FIRST in self._rendered([said, asked]) or SECOND not in self._rendered([asked])

    @cached_property
    def takes_developer(self) -> bool:
        """Whether the template names the role "developer", and writes its messages."""
        said = {"role": "developer", "content": self._text(FIRST)}
        return "developer" in self._source and FIRST in self._rendered([said, _user(self._text(SECOND))])

    @cached_property
    def requires_thoughts(self) -> bool:
        """Whether the template rejects answers without `reasoning_content`, as K2 Horizon's."""
        asked, answer = _user(self._text(FIRST)), {"role": "assistant", "content": self._text(SECOND)}
        return SECOND not in self._rendered([asked, answer]) and (
            SECOND in self._rendered([asked, answer | {"reasoning_content": ""}])
        )

    @cached_property
    def takes_thinking_parts(self) -> bool:
        """Whether the template takes thoughts as a part of an answer's content, as Ministral 3's."""
        content = [{"type": "thinking", "thinking": FIRST}, *_parts(SECOND)]
        text = self._rendered([_user(self._text("x")), {"role": "assistant", "content": content}])
        return FIRST in text and SECOND in text and not PRINTED_PARTS.search(text)

    @cached_property
    def takes_arguments_as_text(self) -> bool:
        """Whether the template accepts arguments of calls as JSON text only. It rejects objects, or prints Python's."""

        def writes(arguments: Any) -> bool:
            text = self._rendered(self._conversation(arguments, self._text(FIRST)), [TOOL])
            return CALLED in text and "'city'" not in text

        return not writes({"city": ""}) and writes('{"city": ""}')

    @cached_property
    def omits_calls(self) -> bool:
        """Whether the template writes the results of earlier calls, but not the calls."""
        text = self._rendered(self._conversation({"city": ""}, self._text(FIRST)), [TOOL])
        return FIRST in text and CALLED not in text

    @cached_property
    def written(self) -> str:
        """The template's source, and short conversations as it renders them: it may join special tokens from pieces."""
        said = [{"role": role, "content": self._text(role)} for role in ("system", "user", "assistant", "tool")]
        conversations = (said[:3], said[1:3], [*said[1:3], said[1]], [*said[1:3], said[3]])
        return "\n".join([self._source, *(self._rendered(each)[:MOST_WRITTEN] for each in conversations)])

    @cached_property
    def turns(self) -> tuple[str, str]:
        """What the template writes between a question and its answer, and between the answer and the next question."""
        asked, answer = _user(self._text(FIRST)), {"role": "assistant", "content": self._text(SECOND)}
        if self.requires_thoughts:
            answer["reasoning_content"] = ""
        rest = self._rendered([asked, answer, asked]).partition(FIRST)[2]
        before, _, after = rest.partition(SECOND)
        return before, after.partition(FIRST)[0]

    def _text(self, text: str) -> Any:
        """A text as the content of a message."""
        return _parts(text) if self.requires_parts else text

    def _conversation(self, arguments: Any, result: Any) -> list[Message]:
        """A question, a call of a tool, and its result."""
        call = {"id": "a0b1c2d3e", "type": "function", "function": {"name": CALLED, "arguments": arguments}}
        return [
            _user(self._text("x")),
            {"role": "assistant", "content": self._text(""), "tool_calls": [call]},
            {"role": "tool", "content": result, "tool_call_id": call["id"], "name": CALLED},
        ]

    def _rendered(self, messages: list[Message], tools: list[Message] | None = None) -> str:
        """A conversation's text; "" if the template rejects it, or if earlier ones have taken MAX_SECONDS."""
        if self._seconds > MAX_SECONDS:
            return ""
        begun = self._clock()
        try:
            return self._render(messages, tools=tools)
        except WispError:
            return ""
        finally:
            self._seconds += self._clock() - begun

    # -- OpenAI's messages

    def prepared(self, message: Message) -> Message:
        """A message of OpenAI's as the template expects it."""
        message = dict(message)
        role, content = message.get("role"), message.get("content")
        if role == "developer" and not self.takes_developer:
            message["role"] = "system"
        if isinstance(content, list):
            taken = self.takes_parts_of_tools if role == "tool" else self.takes_parts
            content = [{"type": "text", "text": text_of(part)} for part in content] if taken else joined(content)
        if content is None:
            content = ""
        message["content"] = self._text(content) if isinstance(content, str) else content
        if role == "assistant" and "reasoning_content" not in message and self.requires_thoughts:
            message["reasoning_content"] = ""
        if message.get("reasoning_content") and "reasoning_content" not in self._source:
            message["thinking"] = message["reasoning_content"]  # as gpt-oss's and LFM2.5's templates name it
            if "message.reasoning" in self._source:  # Solar Open's
                message["reasoning"] = message["reasoning_content"]
            if role == "assistant" and "'thinking'" in self._source and self.takes_thinking_parts:
                message["content"] = _with_thought(message["reasoning_content"], message["content"])
        if isinstance(message.get("tool_calls"), list) and not self.takes_arguments_as_text:
            message["tool_calls"] = [_with_object_arguments(call) for call in message["tool_calls"]]
        return message

    def with_system_asked(self, messages: list[Message]) -> list[Message]:
        """Prepared messages with the first system message's text before the question after it, as llama.cpp does.

        Only where the template takes no system messages, as Gemma 2's.
        """
        if [m.get("role") for m in messages[:2]] != ["system", "user"] or self.takes_system:
            return messages
        said, asked = (m.get("content") for m in messages[:2])
        if isinstance(said, list):
            said = joined(said)
        if isinstance(asked, list):
            asked = [{"type": "text", "text": said}, *asked] if said else asked
        else:
            asked = f"{said}\n{asked}" if said else asked
        return [{**messages[1], "content": asked}, *messages[2:]]


def _user(content: Any) -> Message:
    return {"role": "user", "content": content}


def _parts(*texts: str) -> list[Message]:
    return [{"type": "text", "text": text} for text in texts]


def _with_thought(thought: Any, content: Any) -> list[Any]:
    """Content as parts, after a thought."""
    parts = content if isinstance(content, list) else _parts(content) if content else []
    return [{"type": "thinking", "thinking": thought}, *parts]


def joined(parts: list[Any]) -> str:
    """The texts of parts, a line each. Markers of media, which have `media` set, stand within their lines."""
    text, after_media = "", False
    for part in parts:
        media = bool(part.get("media"))
        text += ("\n" if text and not media and not after_media else "") + text_of(part)
        after_media = media
    return text


def text_of(part: Any) -> str:
    """The text of a part. WispError invalid_type if it has none."""
    if not isinstance(part, dict) or not isinstance(part.get("text"), str):
        raise WispError("A part of a message's content must have a text.", "invalid_type", param="messages")
    text: str = part["text"]
    return text


def _with_object_arguments(call: Any) -> Any:
    """A tool call with its arguments as an object. OpenAI has them as a JSON string."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json_input.parse(function["arguments"])
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}
