"""A handler for every kind of message that a client may send."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from app import model_messages
from app.client import Call, Client, Fields
from app.endpoints.compatible import CompatibleHandlers
from app.endpoints.handlers import DONE, Handler
from app.endpoints.lm_studio import LMStudioHandlers
from app.endpoints.openai import OpenAIHandlers
from app.model_messages import ModelMessages, model_name
from app.models import loading
from app.models.downloads import Downloads
from app.models.loaded import Loaded
from app.models.registry import Models
from app.models.source import Source
from app.models.storage import Storage
from app.upstreams import registry as upstreams
from app.upstreams.registry import Upstreams
from py_engine.errors import NOT_FOUND, SERVER_ERROR, WispError
from py_engine.generate.request_queue import aborted


class Platform(Source, model_messages.Platform, upstreams.Platform, Protocol):
    """What the browser does for the worker."""

    def channel(self, name: str, receive: Callable[[Fields], None]) -> Callable[[Fields], None]:
        """A channel among this browser's engines (downloads.py)."""

    boot_ms: float  # from the worker's start to the start of this code

    def heap(self) -> int:
        """Bytes of the WASM heap."""


def without_call(methods: dict[str, Callable[[Fields], Awaitable[Any]]]) -> dict[str, Handler]:
    """The handlers of methods that need nothing of the call."""

    def handler(method: Callable[[Fields], Awaitable[Any]]) -> Handler:
        return lambda fields, call: method(fields)

    return {kind: handler(method) for kind, method in methods.items()}


class Worker:
    """The loaded models, the clients, and the handlers of messages."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._clients: set[Client] = set()
        self._models = Models(platform, lambda text: self._log_to_all("notice", text), self._tell_loads)
        self._storage = Storage(platform, self._models.catalog, self._models.urls)
        self._looking: set[asyncio.Task[None]] = set()  # for newer versions of models
        self._downloads = Downloads(platform, self._load_options, self._tell_downloads)
        self._upstreams = Upstreams(platform, self._models.knows, lambda text: self._log_to_all("upstream", text), DONE)
        handlers: dict[str, Handler] = {
            **OpenAIHandlers(self._models, platform).by_kind,
            **CompatibleHandlers(self._models, platform).by_kind,
            **LMStudioHandlers(self._models, platform).by_kind,
            "models": self._list,
            "load": self._load,
            "unload": self._unload,
            "budget": self._budget,
            **without_call(self._storage.handlers),
            "models.update": self._update_cached,
            "models.inspect": self._inspect,
            **without_call(self._downloads.handlers),
            "estimate": self._estimate,
            **ModelMessages(self._models, platform).handlers,
            "stats": self._stats,
            "abort": self._abort,
        }
        self._handlers = self._upstreams.handlers(handlers)

    def connect(self, post: Callable[[dict[str, Any]], None]) -> Client:
        """Connect a client; `post` sends it a message."""
        client = Client(post)
        self._clients.add(client)
        if self._models.loaded:
            client.tell_loads(self._models.loads())
        return client

    def leave(self, client: Client) -> None:
        """Disconnect a client and abort its requests."""
        self._clients.discard(client)
        client.leave()

    def _tell_loads(self) -> None:
        """Tell every client what is loaded, so that each can have it loaded again if this worker ends."""
        for client in self._clients:
            client.tell_loads(self._models.loads())

    def _tell_downloads(self, downloads: list[dict[str, Any]]) -> None:
        """Tell every client the download queue."""
        for client in self._clients:
            client.post({"kind": "downloadQueue", "downloads": downloads, "limit": self._downloads.limit})

    def _log_to_all(self, level: str, text: str) -> None:
        """Log to every client what concerns all, such as a request that leaves this machine."""
        for client in self._clients:
            client.log(level, text)

    async def handle(self, message: Fields, client: Client) -> None:
        """Answer one message; errors become error messages."""
        number, kind = message.get("id"), message.get("kind")
        call = Call(client, number)
        client.jobs[number] = call.job
        if client not in self._clients:
            call.job.abort()  # the client disconnected before its message was read
        try:
            handler = self._handlers.get(str(kind))
            if handler is None:
                raise WispError(f"There is no request of kind {kind!r}.", "invalid_value", param="kind")
            result = await handler(message, call)
            if result is DONE:
                call.post("done")
            else:
                call.post("result", result=result)
        except WispError as error:
            call.fail(error)
        except asyncio.CancelledError:
            if not call.job.aborted:
                raise
            call.fail(aborted())
        except Exception as error:
            client.log("error", traceback.format_exc())
            call.fail(internal_error(error))
        finally:
            client.jobs.pop(number, None)

    async def _abort(self, fields: Fields, call: Call) -> None:
        target = call.client.jobs.get(fields.get("target"))
        if target is not None:
            target.abort()

    # -- models

    async def _load_options(self, fields: Fields) -> loading.Options:
        name = fields.get("name")
        if name is not None and not isinstance(name, str):
            raise WispError("name must be a string.", "invalid_type", param="name")
        catalog, model = await self._models.catalog(), fields.get("model")
        auxiliary = loading.AuxiliaryFiles(
            catalog.projector(fields.get("projector"), model),
            catalog.adapters(fields.get("adapters")),
            catalog.draft(fields.get("draft")),
        )
        return loading.options(catalog.choose(model, name), fields, auxiliary)

    async def _estimate(self, fields: Fields, call: Call) -> dict[str, Any]:
        options = await self._load_options(fields)
        return await loading.estimate(options, self._platform)

    async def _inspect(self, fields: Fields, call: Call) -> dict[str, Any]:
        options, memory = await self._load_options(fields), self._models.memory
        capacity = (memory.budget, memory.estimated)
        return await call.job.run(loading.inspect(options, self._platform, capacity))

    async def _load(self, fields: Fields, call: Call) -> dict[str, Any]:
        default = fields.get("default")
        if default is not None and not isinstance(default, bool):
            raise WispError("default must be true or false.", "invalid_type", param="default")
        options = await self._load_options(fields)
        if fields.get("onDemand") is True:
            self._models.know(options)
            return {}
        load = self._models.load(options, default is not False, call.job, call.progress)
        with self._downloads.lent(options.parts):
            async with load as model:
                for notice in model.notices:
                    call.client.log("warning", notice)
                self._tell_loads()
                looking = asyncio.ensure_future(self._look_for_update(options))
                self._looking.add(looking)
                looking.add_done_callback(self._looking.discard)
                return self._stats_of(model)

    async def _look_for_update(self, options: loading.Options) -> None:
        """Tell every client if a model's host has a newer version of it."""
        for url in await self._storage.newer(options.parts):
            for client in self._clients:
                client.post({"kind": "modelUpdate", "model": options.choice.id, "url": url})

    async def _update_cached(self, fields: Fields, call: Call) -> None:
        await call.job.run(self._storage.update(model_name(fields), call.progress))

    async def _unload(self, fields: Fields, call: Call) -> None:
        await self._models.unload(model_name(fields), call.job)
        self._tell_loads()

    async def _budget(self, fields: Fields, call: Call) -> int:
        return self._models.set_budget(fields.get("bytes"))

    async def _list(self, fields: Fields, call: Call) -> dict[str, Any]:
        listing = await self._models.listing()
        return {**listing, "data": [*listing["data"], *await self._upstreams.models()]}

    def urls_in_use(self) -> set[str]:
        """Addresses of the models that must stay in the browser's storage."""
        return self._models.urls() | self._downloads.urls()

    # -- figures

    async def _stats(self, fields: Fields, call: Call) -> dict[str, Any]:
        name = model_name(fields)
        name = name if name is None else self._models.resolve(name)
        if name is not None and name not in self._models.loaded:
            loaded = ", ".join(self._models.loaded) or "none"
            raise WispError(
                f"No model {name!r} is loaded. Loaded are: {loaded}.", "model_not_found", NOT_FOUND, "model"
            )
        return self._stats_of(self._models.loaded.get(name or self._models.default or ""))

    def _stats_of(self, model: Loaded | None) -> dict[str, Any]:
        """The figures of a model, and of all models together."""
        engine = model.engine if model else None
        stats: dict[str, Any] = {"backend": None, "adapter": None, "context_length": None, "last": None}
        if engine is not None:
            stats |= {"backend": engine.backend, "context_length": engine.context_length} | engine.stats()
        stats["model"] = model.id if model else None
        stats["memory"] = {**(stats.get("memory") or {}), "wasm_heap": self._platform.heap()}
        stats["timings"] = {"boot_ms": self._platform.boot_ms, **(stats.get("timings") or {})}
        if model is not None:
            stats["media"] = model.senses
            stats["lora"] = model.adapters.listing()
            stats["notices"] = [*model.notices, *(getattr(engine, "notices", None) or [])]
            stats["timings"] |= model.timings
            stats["cache"] = model.source_stats()
            stats["projector"] = model.projector.stats() if model.projector is not None else None
        return stats | self._models.stats() | {"clients": len(self._clients)}


def internal_error(error: Exception) -> WispError:
    """The error for an unexpected exception; the client's log has the traceback."""
    return WispError(
        f"Wisp failed with {type(error).__name__}: {error}. The console has the details.",
        "internal_error",
        SERVER_ERROR,
    )
