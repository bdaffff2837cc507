"""Render conversations to prompt text with the model's Jinja template, in an environment like Hugging Face's.

Templates come from downloaded files, so they run in Jinja's sandbox with limits on steps and output.
"""

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from py_engine.errors import WispError

MAX_OUTPUT = 32 * 1024 * 1024  # characters of one prompt
MAX_STEPS = 1_000_000  # numbers that the range() calls of one rendering may yield together
MAX_REPEAT = 1_000_000  # length of a sequence made by * in a template

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

Message = dict[str, Any]


class ChatTemplate:
    """A compiled template, with the texts of the model's BOS and EOS tokens."""

    def __init__(self, source: str, bos: str = "", eos: str = "", now: Callable[[], datetime] = datetime.now) -> None:
        self.source = source
        self._bos, self._eos = bos, eos
        self._budget = [0]
        self._requires_parts: bool | None = None
        try:
            self._template = _environment(self._budget, now).from_string(source)
        except Exception as error:  # any exception of Jinja's parser: the template is broken
            raise WispError(f"The model's chat template does not compile: {error}", "bad_chat_template") from error

    def render(
        self,
        messages: list[Message],
        *,
        tools: list[Any] | None = None,
        documents: list[Any] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """Render the prompt text. WispError bad_chat_template, with the template's message, if it rejects or fails."""
        self._budget[0] = MAX_STEPS
        out: list[str] = []
        length = 0
        try:
            for part in self._template.generate(
                messages=messages,
                tools=tools,
                documents=documents,
                add_generation_prompt=add_generation_prompt,
                bos_token=self._bos,
                eos_token=self._eos,
                **variables,
            ):
                length += len(part)
                if length > MAX_OUTPUT:
                    raise OverflowError("its output is too long")
                out.append(part)
        except Exception as error:  # raise_exception, undefined names, type errors, the sandbox
            raise WispError(
                f"The model's chat template rejects these messages: {error}", "bad_chat_template", param="messages"
            ) from error
        return "".join(out)

    @property
    def requires_parts(self) -> bool:
        """Whether the template accepts a message's content only as a list of parts, not as a string."""
        if self._requires_parts is None:
            probe = "a0b1c2d3"
            self._requires_parts = not self._renders(probe, probe) and self._renders(
                probe, [{"type": "text", "text": probe}]
            )
        return self._requires_parts

    def _renders(self, probe: str, content: Any) -> bool:
        try:
            return probe in self.render([{"role": "user", "content": content}])
        except WispError:
            return False

    def prepare(self, messages: list[Message]) -> list[Message]:
        """Convert OpenAI's messages to what the template expects: its form of content, tool arguments as objects."""
        return [self._prepare(m) for m in messages]

    def _prepare(self, message: Message) -> Message:
        message = dict(message)
        if message.get("role") == "developer" and "developer" not in self.source:
            message["role"] = "system"
        content = message.get("content")
        if isinstance(content, list):
            content = "\n".join(part["text"] for part in content)
        if content is None:
            content = ""
        message["content"] = [{"type": "text", "text": content}] if self.requires_parts else content
        if message.get("tool_calls"):
            message["tool_calls"] = [_with_object_arguments(call) for call in message["tool_calls"]]
        return message


def _with_object_arguments(call: Any) -> Any:
    """A tool call with its arguments as an object. OpenAI has them as a JSON string."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def from_metadata(metadata: dict[str, Any], bos: str, eos: str) -> tuple[ChatTemplate, list[str]]:
    """The template of a GGUF file, and notices. If it has none, or a broken one, ChatML replaces it."""
    source = metadata.get("tokenizer.chat_template")
    if not isinstance(source, str) or not source.strip():
        return ChatTemplate(CHATML, bos, eos), ["The model has no chat template; ChatML is used."]
    try:
        return ChatTemplate(source, bos, eos), []
    except WispError as error:
        return ChatTemplate(CHATML, bos, eos), [f"{error.message} ChatML is used instead."]


def _environment(budget: list[int], now: Callable[[], datetime]) -> Any:
    """A sandboxed Jinja environment. `budget`: the range() steps left to the current rendering."""
    import jinja2
    import jinja2.ext
    from jinja2 import nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(["*", "**", "%"])

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            _check_operands(operator, left, right)
            return super().call_binop(context, operator, left, right)

    class Generation(jinja2.ext.Extension):
        """{% generation %} marks the assistant's text for training. Here it only renders its body."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    def limited_range(*arguments: int) -> Iterable[int]:
        numbers = range(*arguments)
        budget[0] -= len(numbers)
        if budget[0] < 0:
            raise OverflowError("its loops are too long")
        return numbers

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form: str) -> str:
        return now().strftime(form)

    environment = Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, Generation], cache_size=0
    )
    environment.filters["tojson"] = tojson
    environment.globals.update(range=limited_range, raise_exception=raise_exception, strftime_now=strftime_now)
    return environment


def _check_operands(operator: str, left: Any, right: Any) -> None:
    """Reject arithmetic whose result would exhaust memory."""
    if operator == "*":
        for what, times in ((left, right), (right, left)):
            sequence = isinstance(what, str | bytes | list | tuple) and isinstance(times, int)
            if sequence and len(what) * times > MAX_REPEAT:
                raise OverflowError("it repeats a text too often")
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > 4096:
            raise OverflowError("its numbers are too large")
    elif operator == "**":
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() * max(right, 0) > 4096:
            raise OverflowError("its numbers are too large")
    elif isinstance(left, str) and any(run.isdigit() and len(run) > 4 for run in left.replace(".", " ").split()):
        raise OverflowError("its format string has too large a width")
