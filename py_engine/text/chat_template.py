"""Render conversations to prompt text with the model's Jinja template, in an environment like Hugging Face's.

Templates come from downloaded files, so they run in a sandbox with limits (template_sandbox.py), on copies of the
messages and tools.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from py_engine import json_input
from py_engine.errors import WispError

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# The texts of the messages, a line each: of encoder-decoder models, which know no turns.
TEXTS = "{% for message in messages %}{{ message['content'] }}{{ '' if loop.last else '\\n' }}{% endfor %}"
WITHOUT_TURNS = {"t5"}  # architectures

# Templates that files hold by a name of llama.cpp's.
NAMED = {
    "rwkv-world": (
        "{% for message in messages %}{{ message['role'] | capitalize + ': ' + message['content'] | trim + '\n\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
    )
}

Message = dict[str, Any]

MOST_WRITTEN = 20_000  # characters of a short conversation that are looked through for marks
PROBING_SECONDS = 2.0  # of the processor, for all probes of a template
MAX_SHOWN = 1000  # characters of an error, which may have names or values of the template


def _shown(error: Exception) -> str:
    return str(error)[:MAX_SHOWN]


class ChatTemplate:
    """A compiled template, with the texts of the model's BOS and EOS tokens."""

    def __init__(self, source: str, bos: str = "", eos: str = "", now: Callable[[], datetime] = datetime.now) -> None:
        self.source = source
        self._bos, self._eos = bos, eos
        self._requires_parts: bool | None = None
        self._takes_parts: bool | None = None
        self._takes_system: bool | None = None
        self._written: str | None = None
        self._at: datetime | None = None
        self._probing = PROBING_SECONDS  # what is left of them
        try:
            from py_engine.text.template_sandbox import Sandbox  # imports Jinja, which most models need only later

            environment = Sandbox(lambda: self._at or now())
            self._limits = environment.limits
            self._template = environment.from_string(source)
        except Exception as error:  # any exception of Jinja's parser: the template is broken
            raise WispError(
                f"The model's chat template does not compile: {_shown(error)}", "bad_chat_template"
            ) from error

    def render(
        self,
        messages: list[Message],
        at: datetime | None = None,
        /,
        *,
        tools: list[Any] | None = None,
        documents: list[Any] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """Render the prompt text. WispError bad_chat_template, with the template's message, if it rejects or fails.

        `at`: the time for templates that write the date; default: now.
        """
        self._at = at
        self._limits.start()
        given = {**variables, "messages": messages, "tools": tools, "documents": documents}
        try:
            return self._text(given, add_generation_prompt)
        finally:
            self._limits.end()

    def _text(self, given: dict[str, Any], add_generation_prompt: bool = True) -> str:
        """Render within limits that have started."""
        limits = self._limits
        own = {"add_generation_prompt": add_generation_prompt, "bos_token": self._bos, "eos_token": self._eos}
        out: list[str] = []
        length = 0
        try:
            for part in self._template.generate({**limits.copied(given), **own}):
                length += len(part)
                limits.check_size(length)
                limits.spend(len(part) >> 8)
                out.append(part)
            return "".join(out)  # a filter block may have made a list of its text
        except Exception as error:  # raise_exception, undefined names, type errors, the sandbox
            message = f"The model's chat template rejects these messages: {_shown(error)}"
            raise WispError(message, "bad_chat_template", param="messages") from error

    def _probe(self, messages: list[Message]) -> str:
        """Render a short conversation, to learn what the template does. "" if it rejects it.

        All probes share PROBING_SECONDS, so that a slow template does not delay the first request for long. It then
        counts as one that lacks what was not found.
        """
        if self._probing <= 0:
            return ""
        self._at = None
        self._limits.start(seconds=self._probing)
        given = {"messages": messages, "tools": None, "documents": None}
        try:
            return self._text(given)
        except WispError:
            return ""
        finally:
            self._probing -= self._limits.end()

    @property
    def requires_parts(self) -> bool:
        """Whether the template accepts a message's content only as a list of parts, not as a string."""
        if self._requires_parts is None:
            probe = "a0b1c2d3"
            self._requires_parts = not self._renders(probe, probe) and self._renders(
                probe, [{"type": "text", "text": probe}]
            )
        return self._requires_parts

    @property
    def written(self) -> str:
        """The template's source, and what it makes of short conversations: it may put marks together of pieces."""
        if self._written is None:
            roles = ("system", "user", "assistant", "tool")
            said = [{"role": role, "content": [{"type": "text", "text": role}] if self.requires_parts else role}
                    for role in roles]  # fmt: skip
            self._written = self.source
            for conversation in (said[:3], said[1:3], [*said[1:3], said[1]], [*said[1:3], said[3]]):
                self._written += "\n" + self._probe(conversation)[:MOST_WRITTEN]
        return self._written

    @property
    def takes_parts(self) -> bool:
        """Whether the template writes the texts of a list of parts itself."""
        if self._takes_parts is None:
            first, second = "a0b1c2d3", "e4f5a6b7"
            parts = [{"type": "text", "text": first}, {"type": "text", "text": second}]
            text = self._probe([{"role": "user", "content": parts}])
            # other templates fail, or write the list as it is
            self._takes_parts = first in text and second in text and not re.search("['\"]type['\"]", text)
        return self._takes_parts

    def _renders(self, probe: str, content: Any) -> bool:
        return probe in self._probe([{"role": "user", "content": content}])

    @property
    def takes_system(self) -> bool:
        """Whether the template writes system messages. True if it writes no questions either."""
        if self._takes_system is None:
            first, second = "a0b1c2d3", "e4f5a6b7"
            said, asked = (self._prepare({"role": r, "content": c}) for r, c in (("system", first), ("user", second)))
            self._takes_system = first in self._probe([said, asked]) or second not in self._probe([asked])
        return self._takes_system

    def with_system_asked(self, messages: list[Message]) -> list[Message]:
        """Prepared messages with the first system message's text before the question after it, as llama.cpp does.

        Only where the template takes no system messages, as Gemma 2's.
        """
        if [m.get("role") for m in messages[:2]] != ["system", "user"] or self.takes_system:
            return messages
        said, asked = (m.get("content") for m in messages[:2])
        if isinstance(said, list):
            said = _joined(said)
        if isinstance(asked, list):
            asked = [{"type": "text", "text": said}, *asked] if said else asked
        else:
            asked = f"{said}\n{asked}" if said else asked
        return [{**messages[1], "content": asked}, *messages[2:]]

    def prepare(self, messages: list[Message]) -> list[Message]:
        """Convert OpenAI's messages to what the template expects: its form of content, tool arguments as objects."""
        return [self._prepare(m) for m in messages]

    def _prepare(self, message: Message) -> Message:
        message = dict(message)
        if message.get("role") == "developer" and "developer" not in self.source:
            message["role"] = "system"
        content = message.get("content")
        if isinstance(content, list):
            parts = [{"type": "text", "text": _text_of(part)} for part in content]
            content = parts if self.takes_parts else _joined(content)
        if content is None:
            content = ""
        if isinstance(content, str) and self.requires_parts:
            content = [{"type": "text", "text": content}]
        message["content"] = content
        if isinstance(message.get("tool_calls"), list):
            message["tool_calls"] = [_with_object_arguments(call) for call in message["tool_calls"]]
        return message


def _joined(parts: list[Any]) -> str:
    """The texts of parts, a line each. Markers of media, which have `media` set, stand within their lines."""
    text, after_media = "", False
    for part in parts:
        media = bool(part.get("media"))
        text += ("\n" if text and not media and not after_media else "") + _text_of(part)
        after_media = media
    return text


def _text_of(part: Any) -> str:
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


def from_metadata(metadata: dict[str, Any], bos: str, eos: str) -> tuple[ChatTemplate, list[str]]:
    """The template of a GGUF file, and notices. If it has none, or a broken one, ChatML replaces it.

    An encoder-decoder model without a template reads the messages' texts.
    """
    source = metadata.get("tokenizer.chat_template")
    if not isinstance(source, str) or not source.strip():
        if metadata.get("general.architecture") in WITHOUT_TURNS:
            return ChatTemplate(TEXTS, bos, eos), ["The model has no chat template; it reads the messages' texts."]
        return ChatTemplate(CHATML, bos, eos), ["The model has no chat template; ChatML is used."]
    try:
        return ChatTemplate(NAMED.get(source.strip(), source), bos, eos), []
    except WispError as error:
        return ChatTemplate(CHATML, bos, eos), [f"{error.message} ChatML is used instead."]
