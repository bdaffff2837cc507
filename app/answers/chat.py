"""Answers requests for text: prompt, engine, stop strings, the parts of a message, chunks."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from app.answers import prompts
from app.answers.dialects import dialect_of
from app.answers.grammar import Compiled, Load, compiled, rules_of
from app.answers.parsing import Parser, PlainParser
from app.answers.prompts import Prompt
from app.answers.stream import AnswerStream
from app.models.loaded import Loaded
from app.models.request_queue import Job
from app.openai.answers import Answer, Delta, Logprobs, Message, Usage
from app.openai.requests import ChatRequest, CompletionRequest, Request
from py_engine.generate.answer import GenerationStats
from py_engine.plan.sampling import Batch, Sampling

Emit = Callable[[dict[str, Any]], None]
Result = dict[str, Any] | None
BREATH = 0.02  # seconds of work after which messages from the page, such as an abort, get their turn


async def chat(model: Loaded, request: ChatRequest, job: Job, emit: Emit, asked: float, load: Load) -> Result:
    """Answers a chat request: the whole completion, or None after having emitted its chunks.

    `asked`: time.perf_counter() when the request came, for the time to the first token.
    """
    model.engine_or_error()
    dialect = dialect_of(model.template, request.tools)
    messages = dialect.messages(model.template.prepare(request.messages))
    prompt = prompts.of_chat(model, request, messages, dialect.template_tools())
    run = Run(model, request, Answer(model.id, chat=True), job, emit, asked)
    run.parser = lambda: dialect.parser(prompt.text, request.split_reasoning)
    run.shown = frozenset(model.tokenizer.vocab.ids[t] for t in dialect.markers if t in model.tokenizer.vocab.ids)
    rules = dialect.rules(prompt.text, request.format)
    if rules is not None:
        run.compiled = await compiled(model, rules, run.shown, load)
    return await run.all([prompt])


async def complete(model: Loaded, request: CompletionRequest, job: Job, emit: Emit, asked: float, load: Load) -> Result:
    """Answers a completion request, like chat()."""
    model.engine_or_error()
    found = [prompts.of_completion(model, request, prompt) for prompt in request.prompts]
    run = Run(model, request, Answer(model.id, chat=False), job, emit, asked)
    if request.format is not None:
        run.compiled = await compiled(model, rules_of(request.format), frozenset(), load)
    return await run.all(found)


class Run:
    """One request being answered: as many of its choices at once as the engine takes side by side."""

    def __init__(self, model: Loaded, request: Request, answer: Answer, job: Job, emit: Emit, asked: float) -> None:
        self.model, self.request, self.answer, self.job = model, request, answer, job
        self.parser: Callable[[], Parser] = PlainParser
        self.shown: frozenset[int] = frozenset()  # control tokens that the parser needs to see
        self.compiled: Compiled | None = None
        self._emit, self._asked = emit, asked
        self._failed: Exception | None = None  # what ended one of the choices, and with it the others

    async def all(self, found: list[Prompt]) -> Result:
        """The answer, or None after having emitted its chunks."""
        engine = self.model.engine_or_error()
        if not self.request.cache_prompt:
            engine.forget()
        places = asyncio.Semaphore(max(1, engine.parallel))
        wanted = [prompt for prompt in found for _ in range(self.request.n)]
        ended = await asyncio.gather(*(self._beside(index, prompt, places) for index, prompt in enumerate(wanted)))
        if self._failed is not None:
            raise self._failed
        choices = [one[0] for one in ended if one]
        first, *others = (one[1] for one in ended if one)
        total = sum(others, first)
        if others:  # OpenAI counts a prompt once, however many answers it gets
            total.prompt_tokens = sum(len(prompt.ids) for prompt in found)
            total.cached_tokens = min(total.cached_tokens, total.prompt_tokens)
        if not self.request.stream:
            return self.answer.whole(choices, total)
        if self.request.include_usage:
            self._emit(self.answer.usage(total))
        return None

    async def _beside(
        self, index: int, prompt: Prompt, places: asyncio.Semaphore
    ) -> tuple[dict[str, Any], Usage] | None:
        """A choice, when there is a place for it beside the others; None where it, or another one, has failed."""
        async with places:
            if self._failed is None:
                try:
                    return await self._choice(index, prompt)
                except Exception as error:
                    self._failed = self._failed or error
        return None

    def _resolved(self) -> Sampling:
        """The sampling parameters with every word turned into token ids."""
        model, request = self.model, self.request
        sampling, bias = request.sampling, list(request.sampling.logit_bias)
        model.check_ids([token for token, _ in bias], "logit_bias")
        given_as_text = request.text_parameters
        for word, strength in given_as_text.logit_bias:
            bias += [(token, strength) for token in model.tokenizer.encode(word)]
        if self._endless():
            bias += [(token, -100.0) for token in sorted(model.tokenizer.eog_ids)]
        breakers = model.tokens_with(given_as_text.dry_breakers) if given_as_text.dry_breakers else ()
        return replace(sampling, logit_bias=tuple(dict(bias).items()), dry_breakers=breakers)

    def _endless(self) -> bool:
        """The answer goes on to its limit; one that is held to a form ends with the form."""
        return self.request.ignore_eos and self.compiled is None

    async def _choice(self, index: int, prompt: Prompt) -> tuple[dict[str, Any], Usage]:
        request, answer, tokenizer = self.request, self.answer, self.model.tokenizer
        engine = self.model.engine_or_error()
        room = engine.context_length - len(prompt.ids)
        limit = room if request.max_tokens is None else request.max_tokens
        limit = limit if request.truncate else min(limit, room)
        ends = frozenset() if self._endless() else tokenizer.eog_ids
        decoder = tokenizer.stream(strip_space=answer.chat, shown=self.shown)
        stream = AnswerStream(decoder, request.stop, ends)
        output = Output(self, index, stream)
        sampling = self._resolved()
        if index and sampling.seed is not None:  # answers to one request differ, and can be had again
            sampling = replace(sampling, seed=sampling.seed + index)
        output.open(prompt.text if isinstance(request, CompletionRequest) and request.echo else "")
        clock, stats = Clock(self._asked), GenerationStats()
        constraint = await self.compiled.matcher() if self.compiled is not None else None
        try:
            keep = prompt.keep if request.truncate else None
            batches = engine.generate(prompt.ids, sampling, limit, ends, constraint, keep, stats)
            await self._generate(batches, stream, output, clock)
        finally:
            if constraint is not None:
                constraint.close()
        self.job.check()
        if self._failed is not None:
            raise self._failed
        output.finish()
        usage = _usage(len(prompt.ids), stream.tokens, stats, clock)
        usage.reasoning_tokens = output.reasoning_tokens
        if request.truncate:
            usage.truncated_tokens = prompt.truncated + stats.shifted_tokens
        reason = "length" if not stream.ended else "tool_calls" if output.message.tool_calls else "stop"
        if request.stream:
            self._emit(answer.closing(reason, usage, index))
        return answer.choice(index, output.message, output.all_logprobs(), reason), usage

    async def _generate(
        self, batches: AsyncGenerator[Batch, None], stream: AnswerStream, output: "Output", clock: "Clock"
    ) -> None:
        """Runs the engine until the answer ends or is aborted; closing the generator stops it within one batch."""
        breathed = time.perf_counter()
        async with aclosing(batches):
            async for batch in batches:
                if self.job.aborted or self._failed is not None:
                    return
                if batch.ids:
                    clock.batch(len(batch.ids))
                    output.push(batch)
                if stream.ended:
                    return
                if time.perf_counter() - breathed > BREATH:
                    await asyncio.sleep(0)
                    breathed = time.perf_counter()

    def emit(self, chunk: dict[str, Any] | None) -> None:
        """A chunk, where the answer is streamed."""
        if chunk is not None and self.request.stream:
            self._emit(chunk)


class Output:
    """One choice as it grows: token ids in, deltas out, the message put together."""

    def __init__(self, run: Run, index: int, stream: AnswerStream) -> None:
        self._run, self._index, self._stream = run, index, stream
        self._parser = run.parser()
        self.message = Message()
        self.logprobs = Logprobs(run.answer.chat, run.model.tokenizer.piece)
        self.reasoning_tokens = 0

    def open(self, echo: str) -> None:
        """The chunk that comes before any token."""
        self._run.emit(self._run.answer.opening(self._index))
        if echo:
            self._send([{"content": echo}])

    def push(self, batch: Batch) -> None:
        """The next tokens."""
        before = self._stream.tokens
        self._send(self._parser.push(self._stream.push(batch.ids, batch.logprobs)))
        if self._parser.reasoning:
            self.reasoning_tokens += self._stream.tokens - before

    def all_logprobs(self) -> Any:
        """Of the whole choice, where they were asked for."""
        return self.logprobs.whole() if self._run.request.sampling.logprobs >= 0 else None

    def finish(self) -> None:
        """What was held back."""
        self._send([*self._parser.push(self._stream.finish()), *self._parser.finish()])
        rest = self.logprobs.add(self._stream.logprobs())
        if rest:
            self._run.emit(self._run.answer.piece({}, self._index, rest))

    def _send(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            self.message.add(delta)
            logprobs = self.logprobs.add(self._stream.logprobs())
            self._run.emit(self._run.answer.piece(delta, self._index, logprobs))


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


def _usage(prompt_tokens: int, completion_tokens: int, stats: GenerationStats, clock: Clock) -> Usage:
    """The counts, with the engine's own timings where it has them."""
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cached_tokens=stats.cached_tokens,
        prompt_ms=stats.prefill_ms or 1000 * (clock.first - clock.started),
        predicted_ms=stats.decode_ms or 1000 * (clock.last - clock.first),
        ttft_ms=1000 * (clock.first - clock.asked),
        first_tokens=clock.first_tokens,
    )
