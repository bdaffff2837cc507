"""Render conversations to prompt text with the model's Jinja template, in an environment like Hugging Face's.

Templates come from downloaded files, so they run in a sandbox with limits (template_sandbox.py), on copies of the
messages and tools.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from py_engine.errors import WispError
from py_engine.text.template_forms import Forms, Message

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# The texts of the messages, a line each: for encoder-decoder models, which know no turns.
TEXTS = "{% for message in messages %}{{ message['content'] }}{{ '' if loop.last else '\\n' }}{% endfor %}"
WITHOUT_TURNS = {"t5"}  # architectures

# Templates that a file names instead of holding them. The names are llama.cpp's.
NAMED = {
    "rwkv-world": (
        "{% for message in messages %}{{ message['role'] | capitalize + ': ' + message['content'] | trim + '\n\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
    )
}

MAX_SHOWN = 1000  # characters of an error that are shown: it may quote names and values of the template


class ChatTemplate:
    """A compiled template, with the texts of the model's BOS and EOS tokens."""

    def __init__(self, source: str, bos: str = "", eos: str = "", now: Callable[[], datetime] = datetime.now) -> None:
        self.source = source
        self.of_tools: ChatTemplate | None = None  # replaces this one for requests with tools
        self._bos, self._eos = bos, eos
        self._omits_none = False  # it fails with variables that are None, and works without them
        self._at: datetime | None = None
        try:
            from py_engine.text.template_sandbox import Sandbox  # imports Jinja, which most models need only later

            environment = Sandbox(lambda: self._at or now())
            self._limits = environment.limits
            self.forms = Forms(source, self.render, environment.limits.clock)
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
        parts = {"tools": tools, "documents": documents}
        present = {name: value for name, value in parts.items() if value is not None}
        given = {**variables, "messages": messages}
        own = {"add_generation_prompt": add_generation_prompt, "bos_token": self._bos, "eos_token": self._eos}
        try:
            return self._generated({**given, **(present if self._omits_none else parts)}, own)
        except WispError as error:
            if not isinstance(error.__cause__, TypeError) or self._omits_none or len(present) == len(parts):
                raise
            # some templates loop over the tools without asking whether there are any
            text = self._generated({**given, **present}, own, again=True)
            self._omits_none = True
            return text

    def _generated(self, given: dict[str, Any], own: dict[str, Any], *, again: bool = False) -> str:
        """The text with these variables. `given` is copied. `again`: in the time that the last rendering left."""
        limits = self._limits
        limits.start(again=again)
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
        finally:
            limits.end()

    def for_tools(self, tools: Any) -> ChatTemplate:
        """The template for a request with these tools: a file may have another one for requests with any."""
        return self.of_tools if tools and self.of_tools is not None else self

    @property
    def written(self) -> str:
        """The template's source, and short conversations as it renders them: it may join special tokens from pieces."""
        return self.forms.written if self.of_tools is None else f"{self.forms.written}\n{self.of_tools.written}"

    def prepare(self, messages: list[Message]) -> list[Message]:
        """Convert OpenAI's messages to what the template expects: its form of content, tool arguments as objects."""
        return list(map(self.forms.prepared, messages))

    def with_system_asked(self, messages: list[Message]) -> list[Message]:
        """Prepared messages with the first system message's text before the question after it, as llama.cpp does.

        Only where the template takes no system messages, as Gemma 2's.
        """
        return self.forms.with_system_asked(messages)


def _shown(error: Exception) -> str:
    return str(error)[:MAX_SHOWN]


def from_metadata(metadata: dict[str, Any], bos: str, eos: str) -> tuple[ChatTemplate, list[str]]:
    """The template of a GGUF file, and notices. If it has none, or a broken one, ChatML replaces it.

    An encoder-decoder model without a template reads the messages' texts.
    """
    source = _source(metadata, "tokenizer.chat_template")
    if source is None:
        if metadata.get("general.architecture") in WITHOUT_TURNS:
            return ChatTemplate(TEXTS, bos, eos), ["The model has no chat template; it reads the messages' texts."]
        return ChatTemplate(CHATML, bos, eos), ["The model has no chat template; ChatML is used."]
    try:
        template = ChatTemplate(NAMED.get(source.strip(), source), bos, eos)
    except WispError as error:
        return ChatTemplate(CHATML, bos, eos), [f"{error.message} ChatML is used instead."]
    if source := _source(metadata, "tokenizer.chat_template.tool_use"):
        try:
            template.of_tools = ChatTemplate(source, bos, eos)
        except WispError as error:
            return template, [f"For requests with tools: {error.message} The other one is used instead."]
    return template, []


def _source(metadata: dict[str, Any], key: str) -> str | None:
    """A template's text, if it has any."""
    source = metadata.get(key)
    return source if isinstance(source, str) and source.strip() else None
