"""Every kind of message the page may send, and what the worker does about it.

A message {id, kind, ...} is answered with {id, kind: "result" | "error"}, or, for a stream, with "chunk" messages and
"done"; "progress" goes along with a load, and "log" is about no message at all.
"""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from app import chat, embeddings, grammar, loading, upstreams
from app.catalog import Catalog
from app.loaded import Loaded
from app.openai import formats
from app.openai.requests import chat_request, completion_request
from app.openai.responses import Response, responses_request
from app.turns import Job, Turns, aborted
from app.upstreams import Upstreams
from py_engine.chat_template import ChatTemplate
from py_engine.errors import SERVER_ERROR, WispError

Fields = dict[str, Any]  # a message, in Python's own types but for File objects
_TEMPLATE_OPTIONS = ("tools", "documents", "template", "addGenerationPrompt")


class Platform(upstreams.Platform, Protocol):
    """What the browser does for the worker."""

    async def catalog(self) -> Catalog:
        """The models that come with the page."""

    async def open_source(self, part: Any, on_progress: loading.OnProgress) -> Any:
        """py_engine.shards.open_source."""

    async def estimate_engine(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """py_engine.engine.Engine.estimate."""

    async def load_engine(self, *arguments: Any, **options: Any) -> Any:
        """py_engine.engine.Engine.load."""

    async def load_grammar(self) -> Any:
        """grammar.js as a module."""

    boot_ms: float  # from the worker's start to this code's

    def heap(self) -> int:
        """Bytes of the WASM heap."""


class Worker:
    """The loaded model, the requests under way, and a handler for each kind of message."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._catalog: Catalog | None = None
        self._model: Loaded | None = None
        self._options: loading.Options | None = None  # what the model was loaded with
        self._jobs: dict[Any, Job] = {}
        self._engine_turns, self._load_turns = Turns(), Turns()
        self._upstreams = Upstreams(platform, lambda name: self._model is not None and self._model.id == name, DONE)
        handlers: dict[str, Callable[[Fields, Job], Awaitable[Any]]] = {
            "load": self._load,
            "unload": self._unload,
            "chat.completions": self._chat,
            "completions": self._complete,
            "responses": self._respond,
            "embeddings": self._embeddings,
            "rerank": self._rerank,
            "models": self._models,
            "tokenize": self._tokenize,
            "detokenize": self._detokenize,
            "applyTemplate": self._apply_template,
            "estimate": self._estimate,
            "evaluate": self._evaluate,
            "validate": self._validate,
            "profile": self._profile,
            "stats": self._stats,
            "abort": self._abort,
        }
        self._handlers = self._upstreams.handlers(handlers)

    async def handle(self, message: Fields) -> None:
        """Answers one message, whatever happens."""
        number, kind = message.get("id"), message.get("kind")
        job = self._jobs[number] = Job()
        try:
            handler = self._handlers.get(str(kind))
            if handler is None:
                raise WispError(f"There is no request of the kind {kind!r}.", "invalid_value", param="kind")
            result = await handler(message, job)
            if result is DONE:
                self._platform.post({"id": number, "kind": "done"})
            else:
                self._platform.post({"id": number, "kind": "result", "result": result})
        except WispError as error:
            self._fail(number, error)
        except asyncio.CancelledError:
            if not job.aborted:
                raise
            self._fail(number, aborted())
        except Exception as error:
            self._log("error", traceback.format_exc())
            self._fail(number, internal_error(error))
        finally:
            self._jobs.pop(number, None)

    def _fail(self, number: Any, error: WispError) -> None:
        self._platform.post({"id": number, "kind": "error", **error.as_dict()})

    def _log(self, level: str, text: str) -> None:
        self._platform.post({"kind": "log", "level": level, "text": text})

    async def _abort(self, fields: Fields, job: Job) -> None:
        target = self._jobs.get(fields.get("target"))
        if target is not None:
            target.abort()

    # -- models

    async def _wanted(self, fields: Fields) -> loading.Options:
        name = fields.get("name")
        if name is not None and not isinstance(name, str):
            raise WispError("name must be a string.", "invalid_type", param="name")
        return loading.options((await self._catalog_now()).choose(fields.get("model"), name), fields)

    async def _estimate(self, fields: Fields, job: Job) -> dict[str, Any]:
        wanted = await self._wanted(fields)
        return await loading.estimate(wanted, self._platform.open_source, self._platform.estimate_engine)

    async def _load(self, fields: Fields, job: Job) -> dict[str, Any]:
        wanted = await self._wanted(fields)
        number = fields.get("id")
        progress = loading.Progress(lambda p: self._platform.post({"id": number, "kind": "progress", "progress": p}))
        task = asyncio.current_task()
        async with self._load_turns.turn(job):
            if task is not None:
                job.on_abort(task.cancel)
            try:
                new = await self._load_beside(wanted, progress)
            except WispError as error:
                if error.code != "out_of_memory" or self._model is None or self._model.engine is None:
                    raise
                new = await self._load_instead(wanted, progress, job)
            try:
                await self._replace(new, wanted)
            except BaseException:  # aborted while the last answer of the old model was waited for
                if self._model is not new and new.engine is not None:
                    await new.engine.unload()
                raise
        for notice in new.notices:
            self._log("warning", notice)
        return await self._stats(fields, job)

    async def _load_beside(self, wanted: loading.Options, progress: loading.OnProgress) -> Loaded:
        return await loading.load(wanted, self._platform.open_source, self._platform.load_engine, progress)

    async def _load_instead(self, wanted: loading.Options, progress: loading.OnProgress, job: Job) -> Loaded:
        """For two models at once the memory is too small: the old one goes first, and comes back on failure."""
        before = self._options
        async with self._engine_turns.turn(job):
            await self._drop()
            try:
                return await self._load_beside(wanted, progress)
            except BaseException:
                if before is not None:
                    self._model, self._options = await self._load_beside(before, progress), before
                raise

    async def _replace(self, new: Loaded, options: loading.Options) -> None:
        """Makes the new model the one that answers, between two requests."""
        async with self._engine_turns.turn(Job()):
            await self._drop()
            self._model, self._options = new, options

    async def _drop(self) -> None:
        old, self._model, self._options = self._model, None, None
        if old is not None and old.grammars is not None:
            old.grammars.close()
        if old is not None and old.engine is not None:
            await old.engine.unload()

    async def _unload(self, fields: Fields, job: Job) -> None:
        async with self._engine_turns.turn(job):
            await self._drop()

    async def _catalog_now(self) -> Catalog:
        if self._catalog is None:
            self._catalog = await self._platform.catalog()
        return self._catalog

    async def _models(self, fields: Fields, job: Job) -> dict[str, Any]:
        listing = (await self._catalog_now()).listing(self._model.id if self._model else None)
        return {**listing, "data": [*listing["data"], *await self._upstreams.models()]}

    def _current(self) -> Loaded:
        if self._model is None:
            raise WispError("No model is loaded. Load one first.", "model_not_loaded")
        return self._model

    # -- text

    async def _chat(self, fields: Fields, job: Job) -> Any:
        asked = time.perf_counter()
        request = chat_request(fields.get("request"))
        self._current()
        async with self._engine_turns.turn(job):
            emit, load = self._emitter(fields), self._platform.load_grammar
            result = await chat.chat(self._current(), request, job, emit, asked, load)
        return DONE if result is None else result

    async def _complete(self, fields: Fields, job: Job) -> Any:
        asked = time.perf_counter()
        request = completion_request(fields.get("request"))
        self._current()
        async with self._engine_turns.turn(job):
            emit, load = self._emitter(fields), self._platform.load_grammar
            result = await chat.complete(self._current(), request, job, emit, asked, load)
        return DONE if result is None else result

    async def _respond(self, fields: Fields, job: Job) -> Any:
        asked, body = time.perf_counter(), fields.get("request")
        request = responses_request(body)
        assert isinstance(body, dict)
        self._current()
        streamed = bool(body.get("stream"))
        async with self._engine_turns.turn(job):
            model = self._current()
            response = Response(body, model.id, self._emitter(fields) if streamed else None)
            await chat.chat(model, request, job, response.chunk, asked, self._platform.load_grammar)
        return DONE if streamed else response.body

    def _emitter(self, fields: Fields) -> chat.Emit:
        number = fields.get("id")
        return lambda chunk: self._platform.post({"id": number, "kind": "chunk", "chunk": chunk})

    async def _embeddings(self, fields: Fields, job: Job) -> dict[str, Any]:
        request = embeddings.embedding_request(fields.get("request"))
        async with self._engine_turns.turn(job):
            return await embeddings.embeddings(self._current(), request, job)

    async def _rerank(self, fields: Fields, job: Job) -> dict[str, Any]:
        request = embeddings.rank_request(fields.get("request"))
        async with self._engine_turns.turn(job):
            return await embeddings.rank(self._current(), request, job)

    async def _validate(self, fields: Fields, job: Job) -> dict[str, bool]:
        body, text = fields.get("format"), fields.get("text")
        if not isinstance(body, dict):
            raise WispError("Give {response_format}, {grammar} or {regex}.", "invalid_type", param="format")
        if not isinstance(text, str):
            raise WispError("text must be a string.", "invalid_type", param="text")
        model = self._current()
        form = formats.wanted(body)
        if form is None:
            return {"accepted": True, "complete": True}
        rules = grammar.rules_of(form)
        matcher = await (await grammar.compiled(model, rules, frozenset(), self._platform.load_grammar)).matcher()
        try:
            return await matcher.judge(text)
        finally:
            matcher.close()

    async def _tokenize(self, fields: Fields, job: Job) -> list[int]:
        text = fields.get("text")
        if not isinstance(text, str):
            raise WispError("text must be a string.", "invalid_type", param="text")
        tokenizer = self._current().tokenizer
        return tokenizer.encode(text, bool(fields.get("addSpecial")), bool(fields.get("parseSpecial")))

    async def _detokenize(self, fields: Fields, job: Job) -> str:
        tokenizer = self._current().tokenizer
        return tokenizer.decode(_ids(fields.get("ids")))

    async def _apply_template(self, fields: Fields, job: Job) -> str:
        model = self._current()
        messages, options = fields.get("messages"), fields.get("options") or {}
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
            raise WispError("messages must be a list of messages.", "invalid_type", param="messages")
        if not isinstance(options, dict):
            raise WispError("The options must be an object.", "invalid_type", param="options")
        template, source = model.template, options.get("template")
        if source is not None:
            if not isinstance(source, str):
                raise WispError("template must be a string.", "invalid_type", param="template")
            tokenizer = model.tokenizer
            template = ChatTemplate(source, tokenizer.text_of(tokenizer.bos_id), tokenizer.text_of(tokenizer.eos_id))
        return template.render(
            template.prepare(messages),
            tools=options.get("tools"),
            documents=options.get("documents"),
            add_generation_prompt=bool(options.get("addGenerationPrompt", True)),
            **{k: v for k, v in options.items() if k not in _TEMPLATE_OPTIONS},
        )

    # -- the engine itself

    async def _evaluate(self, fields: Fields, job: Job) -> dict[str, Any]:
        ids = _ids(fields.get("ids"))
        if not ids:
            raise WispError("ids is empty.", "invalid_value", param="ids")
        pooling = fields.get("pooling")
        if pooling is not None and not isinstance(pooling, str):
            raise WispError("pooling must be a string.", "invalid_type", param="pooling")
        async with self._engine_turns.turn(job):
            model = self._current()
            engine = model.engine_or_error()
            model.check_ids(ids, "ids")
            if len(ids) > engine.context_length:
                raise WispError(
                    f"There are {len(ids)} ids; the context holds {engine.context_length}.",
                    "context_length_exceeded",
                    param="ids",
                )
            if pooling is not None or engine.embeds:
                embedding, embedded = await engine.embed(ids, pooling)
                return {"embedding": embedding, "shape": list(embedded)}
            logits, shape = await engine.evaluate(ids)
        return {"logits": logits, "shape": list(shape)}

    async def _profile(self, fields: Fields, job: Job) -> list[dict[str, Any]]:
        position, n = (fields.get(name) for name in ("position", "n"))
        for name, value in (("position", position), ("n", n)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise WispError(f"{name} must be an integer.", "invalid_type", param=name)
        async with self._engine_turns.turn(job):
            profile: list[dict[str, Any]] = await self._current().engine_or_error().profile(position, n)
        return profile

    async def _stats(self, fields: Fields, job: Job) -> dict[str, Any]:
        model = self._model
        engine = model.engine if model else None
        stats: dict[str, Any] = {"backend": None, "adapter": None, "context_length": None, "last": None}
        if engine is not None:
            stats |= {"backend": engine.backend, "context_length": engine.context_length} | engine.stats()
        stats["model"] = model.id if model else None
        stats["memory"] = {**(stats.get("memory") or {}), "wasm_heap": self._platform.heap()}
        stats["timings"] = {"boot_ms": self._platform.boot_ms, **(stats.get("timings") or {})}
        if model is not None:
            stats["notices"] = [*model.notices, *(getattr(engine, "notices", None) or [])]
            stats["timings"] |= model.timings
            stats["cache"] = model.source_stats()
        return stats


DONE: Any = object()  # a handler's result when its chunks were all there was to say


def internal_error(error: Exception) -> WispError:
    """An exception nobody foresaw, as an error of ours; the full story is in the log."""
    return WispError(f"Something in Wisp failed: {type(error).__name__}: {error}", "internal_error", SERVER_ERROR)


def _ids(value: Any) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in value):
        raise WispError("ids must be a list of token ids.", "invalid_type", param="ids")
    return value
