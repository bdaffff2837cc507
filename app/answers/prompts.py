"""The token ids of a request's prompt, truncated where the request allows it."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from app.answers import infill, pieces
from app.answers.media import RequestMedia
from app.answers.pieces import PromptPieces
from app.answers.thinking import with_reasoning, without_thoughts
from app.answers.truncation import Messages, estimate, fewest_turns, turns_before, without_oldest_turns
from app.models.loaded import Loaded
from app.openai.messages import MARKER, Infill, MixedPrompt, PromptWithMedia
from app.openai.requests import ChatRequest, CompletionRequest, Request
from py_engine import json_input
from py_engine.errors import WispError, prompt_too_long
from py_engine.generate.media import PromptMedia
from py_engine.text.chat_template import ChatTemplate
from py_engine.text.tokenizer import remove_breaks
from py_engine.text.tokenizers.special import BREAK

_TRUNCATE = 'set truncation: "auto", '
SHORTEN = f"Shorten the conversation, {_TRUNCATE}or load the model with a longer context."
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # of a message of the assistant
_OWN_VARIABLES = ("tools", "add_generation_prompt")  # of a template; a request may not set them another way


@dataclass
class Prompt:
    """A prompt. `text`: for echo, and to detect reasoning that the prompt opens; empty where only ids were given."""

    ids: list[int]
    text: str = ""
    keep: int = 0  # tokens that stay when the context is shifted
    truncated: int = 0  # tokens dropped so that it fits
    media: PromptMedia = field(default_factory=PromptMedia)


def of_chat(
    media: RequestMedia, request: ChatRequest, conversation: Messages, tools: list[Any] | None,
    template: ChatTemplate | None = None, at: datetime | None = None,
) -> Prompt:  # fmt: skip
    """The prompt of a chat. `conversation`: the messages as the template expects them. `at`: when it was asked for.

    `template`: default: the model's, for requests without tools.
    """
    model = media.model
    render = _renderer(model, request, tools, template or model.template, at)

    @cache
    def without(turns: int) -> tuple[list[int], str, PromptMedia]:
        text = render(without_oldest_turns(conversation, turns)) + request.continued
        ids, given = media.encode(text)
        return ids, remove_breaks(media.without_markers(text)), given

    if not request.truncate:
        ids, text, given = without(0)
        _check_fits(model, ids, "messages")
        return Prompt(ids, text, media=given)
    capacity = _prompt_capacity(model, request)
    dropped = fewest_turns(conversation, capacity, lambda turns: len(without(turns)[0]))
    ids, text, given = without(dropped)
    _check_fits(model, ids, "messages")
    remaining = without_oldest_turns(conversation, dropped)
    keep = _system_tokens(model, remaining, ids, lambda m: render(m, False))
    if not dropped:
        whole = len(ids)
    elif turns_before(conversation, capacity):  # counting all of a long chat would take longer than the rest
        whole = estimate(conversation, lambda text: len(model.tokenizer.encode(text)))
    else:
        whole = len(without(0)[0])
    return Prompt(ids, text, keep, max(0, whole - len(ids)), given)


def tokens_of_chat(
    media: RequestMedia, request: ChatRequest, conversation: Messages, tools: list[Any] | None, template: ChatTemplate
) -> int:
    """The number of tokens of a chat's prompt, whether the context holds them or not."""
    text = _renderer(media.model, request, tools, template)(conversation) + request.continued
    return len(media.encode(text)[0])


def _renderer(
    model: Loaded, request: ChatRequest, tools: list[Any] | None, template: ChatTemplate, at: datetime | None = None
) -> Callable[..., str]:
    """The template with the request's variables: render(messages, add_generation_prompt=True)."""
    variables = with_reasoning(template.source, request.template_variables)
    variables = {name: value for name, value in variables.items() if name not in _OWN_VARIABLES}
    if "documents" in variables:
        variables["documents"] = broken(model, variables["documents"])
    tools = broken(model, tools)  # other programs describe them

    def render(messages: Messages, prompt: bool = True) -> str:
        messages = template.with_system_asked(messages)
        text = template.render(messages, at, tools=tools, add_generation_prompt=prompt, **variables)
        text = text.replace(BREAK.encode("unicode_escape").decode(), BREAK)  # escaped where a container was printed
        thinks = not prompt or variables.get("enable_thinking") is not False
        return text if thinks else without_thoughts(template.forms.written, text)

    return render


def harmless(model: Loaded, messages: Messages, unbroken: frozenset[str] = frozenset()) -> Messages:
    """The messages with the special tokens broken in results of tools, in answers, and in parts marked as untrusted.

    Such texts come from files and other programs, and a model copies them into its answers and calls. With its special
    tokens, a passage could end its turn and begin one of the system. `unbroken`: tokens that stay whole in answers.
    """

    def safe(message: dict[str, Any]) -> dict[str, Any]:
        role, content, calls = message["role"], message.get("content"), message.get("tool_calls")
        if role in ("tool", "function"):
            return {"content": content} | {name: broken(model, value) for name, value in message.items()}

        def own(value: Any) -> Any:
            return broken(model, value, unbroken) if role == "assistant" else value

        if isinstance(content, list):
            content = [broken(model, part) if part.get("untrusted") else own(part) for part in content]
        else:
            content = own(content)
        thoughts = {name: own(message[name]) for name in _THOUGHTS if name in message}
        called = {"tool_calls": [_harmless_call(model, call) for call in calls]} if isinstance(calls, list) else {}
        return {**message, **thoughts, "content": content, **called}

    return list(map(safe, messages))


def _harmless_call(model: Loaded, call: Any) -> Any:
    """A call with the special tokens broken. In arguments that are a text of JSON, they may be escaped.

    Of a name that comes twice, parsing leaves the last value: the text is given back only if it has none either.
    """
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    safe = broken(model, call)
    if isinstance(arguments, str):
        with suppress(ValueError):
            given = json_input.parse(arguments)
            whole = broken(model, given)
            harmless = whole == given and safe["function"]["arguments"] == arguments
            safe["function"]["arguments"] = arguments if harmless else json.dumps(whole, ensure_ascii=False)
    return safe


def broken(model: Loaded, value: Any, unbroken: frozenset[str] = frozenset()) -> Any:
    """The value with all special tokens but `unbroken` broken, in its texts and in the names of its members."""
    if isinstance(value, str):
        return model.tokenizer.broken(value, model.template.written, unbroken)
    if isinstance(value, list):
        return [broken(model, part, unbroken) for part in value]
    if isinstance(value, dict):
        return {broken(model, name, unbroken): broken(model, part, unbroken) for name, part in value.items()}
    return value


def of_completion(model: Loaded, request: CompletionRequest, prompt: str | list[int] | MixedPrompt | Infill) -> Prompt:
    """The prompt of a completion, from one of the request's prompts."""
    tokenizer, dropped, capacity = model.tokenizer, 0, _prompt_capacity(model, request)
    if isinstance(prompt, str):
        ids, text = model.ended(tokenizer.encode_prompt(prompt)), prompt
    elif isinstance(prompt, MixedPrompt):
        parts = PromptPieces([part if isinstance(part, str) else [part] for part in prompt.parts])
        ids, _ = pieces.encode(model, parts)
        text = tokenizer.decode(ids) if request.echo else ""
    elif isinstance(prompt, Infill):
        most = capacity if prompt.truncate or request.truncate else None
        (ids, dropped), text = infill.encode(model, prompt, most), ""
    else:
        model.check_ids(prompt, "prompt")
        ids, text = prompt, tokenizer.decode(prompt) if request.echo else ""
    if not ids and tokenizer.bos_id is not None:
        ids = [tokenizer.bos_id]
    if not ids:
        raise WispError("prompt is empty, and this model has no token to start with.", "invalid_value", param="prompt")
    keep = int(ids[0] == tokenizer.bos_id)
    if request.truncate and (excess := len(ids) - capacity) > 0:
        dropped += excess
        ids = [*ids[:keep], *ids[keep + excess :]]
    _check_fits(model, ids, "prompt")
    return Prompt(ids, text, keep, dropped)


def with_media(media: RequestMedia, prompt: PromptWithMedia) -> Prompt:
    """The prompt of a completion that has media."""
    markers = iter(media.markers)
    text = re.sub(re.escape(MARKER), lambda _: next(markers), prompt.text)
    ids, given = media.encode(text)
    _check_fits(media.model, ids, "prompt")
    return Prompt(ids, media.without_markers(text), media=given)


def of_pieces(model: Loaded, prompt: PromptPieces) -> Prompt:
    """The prompt of a completion whose prompt is of pieces."""
    ids, given = pieces.encode(model, prompt)
    _check_fits(model, ids, "prompt")
    return Prompt(ids, media=given)


def _prompt_capacity(model: Loaded, request: Request) -> int:
    """Tokens that a truncated prompt may have. The answer gets its max_tokens, at most half of the context."""
    length: int = model.engine_or_error().context_length
    answer = length // 4 if request.max_tokens is None else request.max_tokens
    return length - max(1, min(answer, length // 2))


def _check_fits(model: Loaded, ids: list[int], param: str) -> None:
    length = model.engine_or_error().context_length
    if len(ids) >= length:
        raise prompt_too_long(
            f"The prompt has {len(ids)} tokens; this model's context holds {length}, the answer included. {SHORTEN}",
            len(ids),
            length,
            param,
        )


def without_truncation(error: WispError) -> WispError:
    """The error for a client of an API whose requests have no `truncation`."""
    if _TRUNCATE not in error.message:
        return error
    return error.reworded(error.message.replace(_TRUNCATE, ""), error.param)


def _system_tokens(model: Loaded, messages: Messages, ids: list[int], render: Callable[[Messages], str]) -> int:
    """The number of leading prompt tokens that belong to the system messages."""
    system = [m for m in messages if m["role"] in ("system", "developer")]
    if not system:
        return int(ids[:1] == [model.tokenizer.bos_id])
    try:
        head = model.tokenizer.encode_prompt(render(system))
    except WispError:  # the template requires a user message
        return int(ids[:1] == [model.tokenizer.bos_id])
    pairs = zip(ids, head, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ids), len(head)))
