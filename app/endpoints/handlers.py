"""What the handlers of all endpoints share: their table, the models, and how requests of other APIs are answered."""

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any

from app.answers import chat
from app.answers.journal import Journal
from app.answers.page_files import with_files_read
from app.answers.prompts import without_truncation
from app.client import Call, Fields
from app.model_messages import Platform, model_name
from app.models.loaded import Loaded
from app.models.registry import Models
from app.openai.converted import Converted
from app.openai.endpoints import ENDPOINTS, Endpoint
from app.openai.pdf import with_pdf_texts
from app.openai.requests import ChatRequest, CompletionRequest
from py_engine.errors import WispError

Changed = Callable[[dict[str, Any], Loaded], dict[str, Any]]  # an answer's body or chunk, and its model -> another body
Handler = Callable[[Fields, Call], Awaitable[Any]]
DONE: Any = object()  # a handler's result after a streamed answer
_PATH = "_answers"  # attribute of a handler: the path of the endpoint that it answers


def answers(path: str) -> Callable[[Any], Any]:
    """Mark a method as the handler of the endpoint at `path`."""

    def mark(method: Any) -> Any:
        setattr(method, _PATH, path)
        return method

    return mark


def paths_of(handlers: object) -> dict[str, str]:
    """Path -> the name of the method of an object, or of a class, that answers it."""
    found = {name: getattr(getattr(handlers, name), _PATH, None) for name in dir(handlers)}
    return {path: name for name, path in found.items() if path is not None}


class Handlers:
    """Handlers of endpoints over the loaded models."""

    def __init__(self, models: Models, platform: Platform) -> None:
        self.models, self.platform = models, platform

    @property
    def by_kind(self) -> dict[str, Handler]:
        """The kind of an endpoint's message -> its handler."""
        methods = {path: getattr(self, name) for path, name in paths_of(type(self)).items()}
        rows = {kind: row for kind, row in ENDPOINTS.items() if row.path in methods}
        return {kind: _advising(row, methods[row.path]) for kind, row in rows.items()}

    def shared(self, body: Any, call: Call) -> AbstractAsyncContextManager[Loaded]:
        """The model that a request names, shared with other requests."""
        return self.models.shared(model_name(body), call.job, call.progress)

    def alone(self, body: Any, call: Call) -> AbstractAsyncContextManager[Loaded]:
        """The model that a request names, exclusively."""
        return self.models.alone(model_name(body), call.job, call.progress)

    def held(self, body: Any, call: Call) -> AbstractAsyncContextManager[Loaded]:
        """The model that a request names, pinned. It may run requests meanwhile."""
        return self.models.hold(model_name(body), call.job, call.progress)

    async def with_pdf_texts(self, fields: Fields, call: Call) -> Any:
        """The request with texts in place of its PDF files. An abort ends the reading."""
        return await call.job.run(with_pdf_texts(fields.get("request"), self.platform.read_pdf))

    async def with_files_read(self, fields: Fields, call: Call, check: Callable[[Any], object]) -> Any:
        """The request with texts and pictures in place of files that pages read. `check`: of its other fields."""
        body = fields.get("request")
        return await with_files_read(body, self.platform, call.job, check, lambda: self.held(body, call))

    async def answered(
        self, request: ChatRequest | CompletionRequest, fields: Fields, call: Call, changed: Changed | None = None
    ) -> Any:
        """Answer a chat or complete prompts. `changed`: makes another body of each chunk, or of the whole answer."""
        exchange = self.exchange(fields, call, streamed=request.stream)
        emit = exchange.emit
        async with self.shared(fields.get("request"), call) as model:
            if changed is not None:
                exchange.emit = lambda chunk: emit(changed(chunk, model))
            result = await self.generated(model, request, exchange)
            if result is None:
                return DONE
            return result if changed is None else changed(result, model)

    async def converted(self, given: Converted, fields: Fields, call: Call) -> Any:
        """Answer a request of another API: with its answer's body, or with its events."""
        exchange = self.exchange(fields, call, streamed=given.streamed)
        journal = exchange.journal
        async with self.shared(given.body, call) as model:
            answer = given.answer(model.id, journal.chunk if given.streamed else None, journal.identity)
            exchange.emit = answer.chunk
            await self.generated(model, given.request, exchange)
        return DONE if given.streamed else answer.body

    async def generated(
        self, model: Loaded, request: ChatRequest | CompletionRequest, exchange: chat.Exchange
    ) -> chat.Result:
        """Generate the answer to a checked request. Returns it whole, or None after emitting its chunks."""
        load = self.platform.load_grammar
        if isinstance(request, ChatRequest):
            return await chat.chat(model, request, exchange, load)
        return await chat.complete(model, request, exchange, load)

    def exchange(self, fields: Fields, call: Call, *, streamed: bool) -> chat.Exchange:
        """What a generation needs of its message, with the journal of an earlier worker if it has one."""
        resume, replay = fields.get("resume"), fields.get("replay") is True
        journal = Journal(call.post, streamed=streamed, resume=resume, replay=replay)
        return chat.Exchange(call.job, journal.chunk, journal, time.perf_counter(), self.platform.fetch_media)


def _advising(row: Endpoint, method: Handler) -> Handler:
    """The handler of an endpoint, whose errors advise `truncation` only where its requests have that field."""
    if row.truncates:
        return method

    @wraps(method)
    async def handle(fields: Fields, call: Call) -> Any:
        try:
            return await method(fields, call)
        except WispError as error:
            raise without_truncation(error) from None

    return handle
