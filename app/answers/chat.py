"""Answer chat and completion requests: prompt, engine, stop strings, the parts of a message, chunks.

Each step is recorded in the request's journal, so that another worker can continue the answer.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from typing import Any

from app.answers import media, prompts
from app.answers.dialect import Dialect
from app.answers.grammar import Compiled, Load, compiled, expect, rules_of
from app.answers.hooks import Hooks, Processed
from app.answers.journal import Journal, Recorded
from app.answers.media import Fetch
from app.answers.parsing import Parser, PlainParser
from app.answers.pieces import PromptPieces
from app.answers.prompts import Prompt
from app.answers.recognition import dialect_of
from app.answers.stream import AnswerStream
from app.answers.truncation import Messages
from app.models.loaded import Loaded
from app.openai.answers import Answer, Delta, Logprobs, Message, Usage
from app.openai.messages import CompletionPrompt, PromptWithMedia
from app.openai.requests import ChatRequest, CompletionRequest, Request
from py_engine.generate.answer import AnswerLimits, Begun, GenerationRequest, GenerationStats
from py_engine.generate.request_queue import Job
from py_engine.plan.sampling import Batch, Constraint, Sampling
from py_engine.tasks import begin

Emit = Callable[[dict[str, Any]], None]
Result = dict[str, Any] | None
NO_HOOKS = Hooks()
MOST_AT_ONCE = 64  # tokens whose text is parsed at once: parsers copy what follows a marker
YIELD_S = 0.02  # time between two yields to the event loop, which then handles messages such as an abort


@dataclass
class Exchange:
    """What a request comes with: how it is aborted, where its chunks go, its journal, and when it was received."""

    job: Job
    emit: Emit
    journal: Journal
    received: float  # time.perf_counter(), for the time to the first token
    fetch: Fetch  # the bytes of a picture or a sound at an address
    hooks: Hooks = NO_HOOKS


async def chat(model: Loaded, request: ChatRequest, exchange: Exchange, load: Load) -> Result:
    """Answer a chat request. Returns the completion, or None after emitting its chunks."""
    engine = model.engine_or_error()
    if request.continued:
        engine.check_continues("continue_final_message")
    identity = exchange.journal.identity
    ids = model.tokenizer.vocab.ids
    dialect = dialect_of(model.template, request.tools, ids)
    if dialect.banned:
        biases = (*request.sampling.logit_bias, (ids[dialect.banned], -100.0))
        request = replace(request, sampling=replace(request.sampling, logit_bias=biases))
    shown = frozenset(ids[t] for t in dialect.markers if t in ids)
    expect(model, request.format, shown)
    rules = dialect.rules(request.format)
    run = Run(model, request, Answer(model.id, True, identity, request.include_usage), exchange, rules is not None)
    given, placed = await media.of_messages(model, request.messages, exchange.fetch)
    messages = _for_template(model, dialect, placed)
    asked_at = datetime.fromtimestamp(identity.created)
    harmless = harmless_beginning(model, dialect, request)
    prompt = prompts.of_chat(given, harmless, messages, dialect.template_tools(), dialect.template, asked_at)
    run.parser = lambda choice: dialect.parser(prompt.text, request.split_reasoning, identity.random_bytes(choice))
    run.shown = shown
    if rules is not None:
        asked = prompt.text.removesuffix(request.continued)
        run.compiled, run.begun = await compiled(model, rules(asked), run.shown, load), request.continued
        if run.begun:
            (await run.compiled.matcher(run.begun)).close()  # an error comes before the first chunk
    return await run.all_choices([prompt])


def _for_template(model: Loaded, dialect: Dialect, messages: Messages) -> Messages:
    """The messages as the template gets them."""
    unbroken = dialect.unbroken_in_answers - model.tokenizer.end_texts
    prepared = dialect.template.prepare(prompts.harmless(model, messages, unbroken))
    return dialect.messages(prepared, partial(prompts.broken, model))


def harmless_beginning(model: Loaded, dialect: Dialect, request: ChatRequest) -> ChatRequest:
    """The request with the special tokens broken in the beginning of its answer, but for those that answers have."""
    if request.continues_verbatim:
        return request
    unbroken = dialect.unbroken_in_answers - model.tokenizer.end_texts
    texts = dialect.heads.split(request.continued) if dialect.heads else [request.continued]
    texts = [text if i % 2 else prompts.broken(model, text, unbroken) for i, text in enumerate(texts)]
    return replace(request, continued="".join(texts))


async def count_tokens(model: Loaded, request: ChatRequest, fetch: Fetch) -> dict[str, int | None]:
    """The tokens of a chat request's prompt, and of the model's context."""
    dialect = dialect_of(model.template, request.tools, model.tokenizer.vocab.ids)
    given, placed = await media.of_messages(model, request.messages, fetch)
    messages = _for_template(model, dialect, placed)
    harmless = harmless_beginning(model, dialect, request)
    tokens = prompts.tokens_of_chat(given, harmless, messages, dialect.template_tools(), dialect.template)
    return {"tokens": tokens, "context_length": model.engine.context_length if model.engine else None}


async def complete(
    model: Loaded, request: CompletionRequest, exchange: Exchange, load: Load, pieces: PromptPieces | None = None
) -> Result:
    """Answer a completion request, as chat() does. `pieces`: the prompt, in place of the request's."""
    model.engine_or_error()
    expect(model, request.format, frozenset())
    rules = rules_of(request.format) if request.format is not None else None
    answer = Answer(model.id, False, exchange.journal.identity, request.include_usage)
    run = Run(model, request, answer, exchange, rules is not None)
    if pieces is not None:
        found = [prompts.of_pieces(model, pieces)]
    else:
        found = [await _prompt(model, request, prompt, exchange.fetch) for prompt in request.prompts]
    if rules is not None:
        run.compiled = await compiled(model, rules, frozenset(), load)
    return await run.all_choices(found)


async def _prompt(model: Loaded, request: CompletionRequest, prompt: CompletionPrompt, fetch: Fetch) -> Prompt:
    if isinstance(prompt, PromptWithMedia):
        return prompts.with_media(await media.of_parts(model, prompt.media, fetch), prompt)
    return prompts.of_completion(model, request, prompt)


def _common(request: Request) -> Request:
    """A request without its messages or prompts, which a slot would keep."""
    return Request(**{field.name: getattr(request, field.name) for field in fields(Request)})


class Run:
    """One request in progress. Generates as many of its choices at once as the engine runs side by side."""

    def __init__(self, model: Loaded, request: Request, answer: Answer, exchange: Exchange, constrained: bool) -> None:
        self.model, self.request, self.answer = model, request, answer
        self.job, self.journal, self.hooks = exchange.job, exchange.journal, exchange.hooks
        if constrained:
            model.engine_or_error().check_constrains(request.format.param if request.format else "tools")
        self._endless = request.ignore_eos and not constrained  # a constrained answer ends with its grammar
        self._sampling, self._scales = self._resolved(), model.adapters.scales(request.lora)
        self.parser: Callable[[int], Parser] = lambda choice: PlainParser()
        self.shown: frozenset[int] = frozenset()  # control tokens whose text the parser needs
        self.compiled: Compiled | None = None
        self.begun = ""  # the beginning of a constrained answer that the prompt has
        self._emit, self._received = exchange.emit, exchange.received
        self._failed: Exception | None = None  # the error of one choice, which also ends the others

    async def all_choices(self, prompts: list[Prompt]) -> Result:
        """Generate all choices. Returns the answer, or None after emitting its chunks."""
        engine = self.model.engine_or_error()
        if not self.request.cache_prompt:
            engine.forget()
        slots = asyncio.Semaphore(max(1, engine.parallel))
        choices_of = [prompt for prompt in prompts for _ in range(self.request.n)]
        ended = await asyncio.gather(
            *(begin(self._choice_when_free(index, prompt, slots)) for index, prompt in enumerate(choices_of))
        )
        if self._failed is not None:
            raise self._failed
        choices = [choice for choice, _ in filter(None, ended)]
        first, *others = (usage for _, usage in filter(None, ended))
        total = sum(others, first)
        if others:  # OpenAI counts a prompt once, however many choices it has
            total.prompt_tokens = sum(len(prompt.ids) for prompt in prompts)
            total.cached_tokens = min(total.cached_tokens, total.prompt_tokens)
        if not self.request.stream:
            return self.answer.whole(choices, total)
        if self.request.include_usage:
            self._emit(self.answer.usage(total))
        self.journal.end()
        return None

    async def _choice_when_free(
        self, index: int, prompt: Prompt, slots: asyncio.Semaphore
    ) -> tuple[dict[str, Any], Usage] | None:
        """Generate a choice when the engine has capacity. None if it, or another choice, has failed."""
        async with slots:
            if self._failed is None:
                try:
                    return await self._choice(index, prompt)
                except Exception as error:
                    self._failed = self._failed or error
        return None

    def _resolved(self) -> Sampling:
        """The sampling parameters, with texts turned into token ids."""
        model, request = self.model, self.request
        sampling, bias = request.sampling, list(request.sampling.logit_bias)
        model.check_ids([token for token, _ in bias], "logit_bias")
        texts = request.text_parameters
        for text, bias_of_text in texts.logit_bias:
            bias += [(token, bias_of_text) for token in model.tokenizer.encode(text)]
        if self._endless:
            bias += [(token, -100.0) for token in sorted(model.tokenizer.eog_ids)]
        breakers = model.tokens_with(texts.dry_breakers) if texts.dry_breakers else ()
        biases, processor = tuple(dict(bias).items()), self.hooks.processor
        return replace(sampling, logit_bias=biases, dry_breakers=breakers, processor=processor)

    async def _choice(self, index: int, prompt: Prompt) -> tuple[dict[str, Any], Usage]:
        request, answer, tokenizer = self.request, self.answer, self.model.tokenizer
        engine = self.model.engine_or_error()
        capacity = engine.context_length - len(prompt.ids)
        limit = min(capacity, engine.usual_tokens) if request.max_tokens is None else request.max_tokens
        limit = limit if request.truncate else min(limit, capacity)
        ends = frozenset() if self._endless else tokenizer.eog_ids
        decoder = tokenizer.stream(strip_space=answer.chat, shown=self.shown)
        stream = AnswerStream(decoder, request.stop, ends, of_all=not answer.chat)
        output = Output(self, index, stream)
        sampling = self._sampling
        if index and sampling.seed is not None:  # choices of one request must differ, reproducibly
            sampling = replace(sampling, seed=sampling.seed + index)
        output.open(prompt.text if isinstance(request, CompletionRequest) and request.echo else "", len(prompt.ids))
        recorded = self.journal.choices.get(index, Recorded())
        begun = Begun(recorded.ids, recorded.seed, self.journal.branched) if recorded.batches else None
        self.model.check_ids(recorded.ids, "resume")
        for batch in recorded.batches:
            for part in self._parts(batch):
                output.push(part)
        clock, stats = Clock(self._received), GenerationStats()
        if not recorded.closed:
            self.journal.begin(index)
            if not (stream.ended or stream.tokens >= limit):
                limits = AnswerLimits(limit, ends, prompt.keep if request.truncate else None, request.private)
                slot = self.model.slots.taken(_common(request), len(prompt.ids), limit, output.progress)
                async with self._constraint(prompt.ids, recorded.ids) as constraint:
                    asked = GenerationRequest(
                        prompt.ids, sampling, limits, constraint, begun, prompt.media, self._scales
                    )
                    with slot:
                        await self._generate(engine.generate(asked, stats), output, clock, stats)
            self.job.check()
            if self._failed is not None:
                raise self._failed
        output.finish()
        usage = _usage(len(prompt.ids), stream.tokens, stats, clock)
        usage.first_tokens += len(recorded.ids)  # which were not timed
        usage.reasoning_tokens = output.reasoning_tokens
        if request.truncate:
            usage.truncated_tokens = prompt.truncated + stats.shifted_tokens
        called = output.message.calls_whole(cut=not stream.ended_by_token)
        reason = "length" if not stream.ended else "tool_calls" if called else "stop"
        if request.stream:
            self._emit(answer.closing(reason, usage, index, stream.stopped, output.new_ids()))
        if recorded.closed:
            self.journal.begin(index)
        else:
            self.journal.close(index)
        return answer.choice(index, output.message, output.all_logprobs(), reason, stream.stopped), usage

    @asynccontextmanager
    async def _constraint(self, prompt: list[int], accepted: list[int]) -> AsyncIterator[Constraint | None]:
        """The constraint of a choice, advanced past its first tokens; with the logits processor if there is one."""
        process = self.hooks.process_logits
        processed = partial(Processed, process, [*prompt, *accepted]) if process is not None else lambda within: within
        if self.compiled is None:
            yield processed(None)
            return
        matcher = await self.compiled.matcher(self.begun)
        try:
            for token in accepted:
                await matcher.accept(token)
            yield processed(matcher)
        finally:
            matcher.close()

    async def _generate(
        self, batches: AsyncGenerator[Batch, None], output: "Output", clock: "Clock", stats: GenerationStats
    ) -> None:
        """Run the engine until the answer ends or is aborted. Closing the generator stops it within one batch."""
        yielded = time.perf_counter()
        async with aclosing(batches):
            async for batch in batches:
                if self.job.aborted or self._failed is not None:
                    return
                if batch.ids:
                    clock.batch(len(batch.ids))
                    for part in self._parts(batch):
                        output.push(part)
                    self.journal.batch(output.index, batch, stats.seed)
                if output.stream.ended:
                    return
                if time.perf_counter() - yielded > YIELD_S:
                    await asyncio.sleep(0)
                    yielded = time.perf_counter()

    def _parts(self, batch: Batch) -> list[Batch]:
        """What is pushed at once: a stopping rule sees every token."""
        size = MOST_AT_ONCE if self.hooks.stop_when is None else 1
        return [batch[i : i + size] for i in range(0, len(batch.ids), size)]

    def emit(self, chunk: dict[str, Any] | None) -> None:
        """Emit a chunk if the answer is streamed."""
        if chunk is not None and self.request.stream:
            self._emit(chunk)


class Output:
    """One choice in progress: token ids in, deltas out, and the whole message."""

    def __init__(self, run: Run, index: int, stream: AnswerStream) -> None:
        self._run, self.index, self.stream = run, index, stream
        self._parser = run.parser(index)
        self.message = Message()
        self._detailed = run.request.detailed
        tokenizer = run.model.tokenizer
        self.logprobs = Logprobs(
            run.answer.chat or self._detailed,
            tokenizer.shown_piece if self._detailed else tokenizer.piece,
            tokenizer.shown_piece,
        )
        self.reasoning_tokens = 0
        self._new_ids: list[int] = []  # of no chunk yet; detailed answers only
        self._ids: list[int] = []  # for the stopping rule
        self._text = ""

    def open(self, echo: str, prompt_tokens: int) -> None:
        """Emit the chunk that precedes all tokens."""
        self._run.emit(self._run.answer.opening(self.index, prompt_tokens if self._detailed else None))
        if echo:
            self._send([{"content": echo}])

    def push(self, batch: Batch) -> None:
        """Add the next tokens."""
        before, stop_when = self.stream.tokens, self._run.hooks.stop_when
        text = self.stream.push(batch.ids, batch.logprobs)
        if self._detailed:
            self._new_ids += batch.ids[: self.stream.tokens - before]
        self._send(self._parser.push(text))
        if stop_when is not None and not self.stream.ended:
            self._ids += batch.ids
            self._text += text
            self.stream.ended = stop_when(self._ids, self._text)
        if self._parser.reasoning:
            self.reasoning_tokens += self.stream.tokens - before

    def progress(self) -> tuple[int, bool]:
        """The tokens so far, and whether the text has a line break."""
        return self.stream.tokens, "\n" in self.message.text()

    def new_ids(self) -> list[int] | None:
        """The tokens since the last chunk; None if the request does not need them."""
        ids, self._new_ids = self._new_ids, []
        return ids if self._detailed else None

    def all_logprobs(self) -> Any:
        """The log-probabilities of the whole choice, where they were requested."""
        return self.logprobs.whole() if self._run.request.sampling.logprobs >= 0 else None

    def finish(self) -> None:
        """Emit what was held back."""
        rest = self._parser.push(self.stream.finish())
        self._send([*rest, *self._parser.finish(cut=not self.stream.ended_by_token)])
        rest = self.logprobs.add(self.stream.logprobs())
        if rest:
            self._run.emit(self._run.answer.piece({}, self.index, rest, self.new_ids()))

    def _send(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            self.message.add(delta)
            logprobs = self.logprobs.add(self.stream.logprobs())
            self._run.emit(self._run.answer.piece(delta, self.index, logprobs, self.new_ids()))


class Clock:
    """The times of an answer: received, started, first and last tokens."""

    def __init__(self, received: float) -> None:
        self.received = received
        self.started = self.first = self.last = time.perf_counter()
        self.first_tokens = 0

    def batch(self, tokens: int) -> None:
        """Record the arrival of a batch."""
        self.last = time.perf_counter()
        if not self.first_tokens:
            self.first_tokens, self.first = tokens, self.last


def _usage(prompt_tokens: int, completion_tokens: int, stats: GenerationStats, clock: Clock) -> Usage:
    """Token counts, with the engine's timings if it has any."""
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cached_tokens=min(stats.cached_tokens, prompt_tokens),
        prompt_ms=stats.prefill_ms or 1000 * (clock.first - clock.started),
        predicted_ms=stats.decode_ms or 1000 * (clock.last - clock.first),
        ttft_ms=1000 * (clock.first - clock.received),
        first_tokens=clock.first_tokens,
    )
