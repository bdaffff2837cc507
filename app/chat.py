"""Answers requests for text: template and tokenizer, the engine, stop strings, chunks."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from app.openai import Answer, ChatRequest, CompletionRequest, Request, Usage
from app.stream import AnswerStream
from app.turns import Job
from py_engine.chat_template import ChatTemplate
from py_engine.errors import WispError
from py_engine.gguf_header import Header
from py_engine.sampling import Batch
from py_engine.tokenizer import Tokenizer

Emit = Callable[[dict[str, Any]], None]
BREATH = 0.02  # seconds of work after which messages from the page, such as an abort, get their turn


@dataclass
class Loaded:
    """A model ready to answer; without an engine it only has its vocabulary and template."""

    id: str
    header: Header
    tokenizer: Tokenizer
    template: ChatTemplate
    engine: Any = None
    notices: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)  # milliseconds
    source_stats: Callable[[], dict[str, Any]] = dict

    def engine_or_error(self) -> Any:
        """The engine; model_not_loaded when only the vocabulary is there."""
        if self.engine is None:
            raise WispError(
                f"Only the vocabulary of {self.id} is loaded. Load it with its weights.", "model_not_loaded"
            )
        return self.engine


async def chat(model: Loaded, request: ChatRequest, job: Job, emit: Emit, asked: float) -> dict[str, Any] | None:
    """Answers a chat request: the whole completion, or None after having emitted its chunks.

    `asked`: time.perf_counter() when the request came, for the time to the first token.
    """
    template = model.template
    text = template.render(template.prepare(request.messages), **request.template_variables)
    ids = model.tokenizer.encode_prompt(text)
    return await _answer(model, request, ids, Answer(model.id, chat=True), job=job, emit=emit, asked=asked)


async def complete(
    model: Loaded, request: CompletionRequest, job: Job, emit: Emit, asked: float
) -> dict[str, Any] | None:
    """Answers a completion request, like chat()."""
    if isinstance(request.prompt, str):
        ids = model.tokenizer.encode_prompt(request.prompt)
    else:
        ids = request.prompt
        check_ids(model.tokenizer, ids, "prompt")
    if not ids and model.tokenizer.bos_id is not None:
        ids = [model.tokenizer.bos_id]
    if not ids:
        raise WispError("prompt is empty, and this model has no token to start with.", "invalid_value", param="prompt")
    return await _answer(model, request, ids, Answer(model.id, chat=False), job=job, emit=emit, asked=asked)


def check_ids(tokenizer: Tokenizer, ids: list[int], param: str) -> None:
    """Refuses ids outside the vocabulary."""
    bad = next((i for i in ids if not 0 <= i < len(tokenizer)), None)
    if bad is not None:
        raise WispError(f"{bad} is not a token id: the vocabulary has {len(tokenizer)}.", "invalid_value", param=param)


async def _answer(
    model: Loaded, request: Request, ids: list[int], answer: Answer, *, job: Job, emit: Emit, asked: float
) -> dict[str, Any] | None:
    engine = model.engine_or_error()
    room = engine.context_length - len(ids)
    if room < 1:
        raise WispError(
            f"The prompt has {len(ids)} tokens; this model's context holds {engine.context_length}, the answer "
            "included. Shorten the conversation, or load the model with a longer context.",
            "context_length_exceeded",
            param="messages" if isinstance(request, ChatRequest) else "prompt",
        )
    limit = room if request.max_tokens is None else min(request.max_tokens, room)
    tokenizer = model.tokenizer
    chat_mode = isinstance(request, ChatRequest)
    stream = AnswerStream(tokenizer.stream(strip_space=chat_mode), request.stop, tokenizer.eog_ids)
    opening = answer.opening() if request.stream else None
    if opening:
        emit(opening)
    texts: list[str] = []

    def send(text: str) -> None:
        if text and request.stream:
            emit(answer.piece(text))
        elif text:
            texts.append(text)

    clock = Clock(asked)
    batches = engine.generate(ids, request.sampling, limit, tokenizer.eog_ids)
    await _generate(batches, stream, job, send, clock)
    job.check()
    send(stream.finish())
    usage = _usage(len(ids), stream.tokens, getattr(engine, "last", None), clock)
    reason = "stop" if stream.ended else "length"
    if not request.stream:
        return answer.whole("".join(texts), reason, usage)
    emit(answer.closing(reason, usage))
    if request.include_usage:
        emit(answer.usage(usage))
    return None


async def _generate(
    batches: AsyncGenerator[Batch, None],
    stream: AnswerStream,
    job: Job,
    send: Callable[[str], None],
    clock: "Clock",
) -> None:
    """Runs the engine until the answer ends or is aborted; closing the generator stops the engine within one batch."""
    breathed = time.perf_counter()
    async with aclosing(batches):
        async for batch in batches:
            if job.aborted:
                return
            if batch.ids:
                clock.batch(len(batch.ids))
                send(stream.push(batch.ids))
            if stream.ended:
                return
            if time.perf_counter() - breathed > BREATH:
                await asyncio.sleep(0)
                breathed = time.perf_counter()


class Clock:
    """When an answer was asked for, started, and got its first and last tokens."""

    def __init__(self, asked: float) -> None:
        self.asked = asked
        self.started = self.first = self.last = time.perf_counter()
        self.first_tokens = 0

    def batch(self, tokens: int) -> None:
        """Notes the arrival of a batch."""
        self.last = time.perf_counter()
        if not self.first_tokens:
            self.first_tokens, self.first = tokens, self.last


def _usage(prompt_tokens: int, completion_tokens: int, last: Any, clock: Clock) -> Usage:
    """The counts, with the engine's own timings where it has them."""
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cached_tokens=getattr(last, "cached_tokens", 0),
        prompt_ms=getattr(last, "prefill_ms", 0.0) or 1000 * (clock.first - clock.started),
        predicted_ms=getattr(last, "decode_ms", 0.0) or 1000 * (clock.last - clock.first),
        ttft_ms=1000 * (clock.first - clock.asked),
        first_tokens=clock.first_tokens,
    )
