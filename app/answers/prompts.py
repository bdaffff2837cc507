"""From a checked request to the token ids of its prompt, shortened where the request allows that."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.models.loaded import Loaded
from app.openai.requests import ChatRequest, CompletionRequest, Request
from py_engine.errors import WispError

Messages = list[dict[str, Any]]


@dataclass
class Prompt:
    """What the model reads. `text`: as far as there is one, for echo and to see how the answer starts."""

    ids: list[int]
    text: str = ""
    keep: int = 0  # tokens that stay when the context is full
    truncated: int = 0  # tokens dropped to make it fit


def of_chat(model: Loaded, request: ChatRequest, conversation: Messages, tools: list[Any] | None) -> Prompt:
    """The prompt of a chat. `conversation`: the messages as the template gets them."""

    def render(messages: Messages, prompt: bool = True) -> str:
        return model.template.render(messages, tools=tools, add_generation_prompt=prompt, **request.template_variables)

    text = render(conversation)
    ids = model.tokenizer.encode_prompt(text)
    room = _room(model, request)
    if not request.truncate:
        _check_room(model, ids, "messages")
        return Prompt(ids, text)
    whole, kept = len(ids), conversation
    while len(ids) > room and (shorter := without_oldest_turn(kept)) is not None:
        kept = shorter
        text = render(kept)
        ids = model.tokenizer.encode_prompt(text)
    _check_room(model, ids, "messages")
    return Prompt(ids, text, _kept(model, kept, ids, lambda m: render(m, False)), whole - len(ids))


def of_completion(model: Loaded, request: CompletionRequest, prompt: str | list[int]) -> Prompt:
    """One of a completion's prompts."""
    tokenizer = model.tokenizer
    if isinstance(prompt, str):
        ids, text = tokenizer.encode_prompt(prompt), prompt
    else:
        model.check_ids(prompt, "prompt")
        ids, text = prompt, tokenizer.decode(prompt) if request.echo else ""
    if not ids and tokenizer.bos_id is not None:
        ids = [tokenizer.bos_id]
    if not ids:
        raise WispError("prompt is empty, and this model has no token to start with.", "invalid_value", param="prompt")
    keep, dropped, room = int(ids[0] == tokenizer.bos_id), 0, _room(model, request)
    if request.truncate and len(ids) > room:
        dropped = len(ids) - room
        ids = [*ids[:keep], *ids[keep + dropped :]]
    _check_room(model, ids, "prompt")
    return Prompt(ids, text, keep, dropped)


def without_oldest_turn(messages: Messages) -> Messages | None:
    """Without the first user message and what answered it; None when only one turn is left. System messages stay."""
    starts = [i for i, m in enumerate(messages) if m["role"] == "user"]
    if len(starts) < 2:
        return None
    gone = range(starts[0], starts[1])
    return [m for i, m in enumerate(messages) if i not in gone or m["role"] in ("system", "developer")]


def _room(model: Loaded, request: Request) -> int:
    """Tokens that a shortened prompt may have, so that an answer fits: at most half of the context is for that."""
    length: int = model.engine_or_error().context_length
    answer = length // 4 if request.max_tokens is None else request.max_tokens
    return length - max(1, min(answer, length // 2))


def _check_room(model: Loaded, ids: list[int], param: str) -> None:
    length = model.engine_or_error().context_length
    if len(ids) >= length:
        raise WispError(
            f"The prompt has {len(ids)} tokens; this model's context holds {length}, the answer included. Shorten the "
            'conversation, ask for truncation: "auto", or load the model with a longer context.',
            "context_length_exceeded",
            param=param,
        )


def _kept(model: Loaded, messages: Messages, ids: list[int], render: Callable[[Messages], str]) -> int:
    """How many of the prompt's first tokens are the system messages'."""
    system = [m for m in messages if m["role"] in ("system", "developer")]
    if not system:
        return int(ids[:1] == [model.tokenizer.bos_id])
    try:
        head = model.tokenizer.encode_prompt(render(system))
    except WispError:  # a template that wants a user message
        return int(ids[:1] == [model.tokenizer.bos_id])
    pairs = zip(ids, head, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ids), len(head)))
