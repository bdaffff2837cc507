"""Models by name: how a request gets the loaded model that it names, and how models are loaded and unloaded.

A request pins its model until it ends. An evicted model (loaded_models.py) is loaded again when a request names it.
Loads run one at a time; requests for the same load share it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from app.models import loading
from app.models.catalog import Catalog, set_name
from app.models.loaded import Loaded
from app.models.loaded_models import LoadedModels, OverBudgetError, last_used
from app.models.loading import Loading, Options
from app.models.memory import MemoryBudget
from app.models.progress import OnProgress
from app.models.source import Source
from py_engine.errors import NOT_FOUND, WispError
from py_engine.generate.request_queue import Job, RequestQueue
from py_engine.options import step_down


class Models:
    """The loaded models."""

    def __init__(
        self, source: Source, tell_users: Callable[[str], None] = lambda text: None,
        tell_loads: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`tell_users`: a notice. `tell_loads` tells all clients which models are loaded."""
        self._source, self.tell_loads = source, tell_loads
        self._catalog: Catalog | None = None
        self.memory = MemoryBudget(source.device_memory)
        self._loaded_models = LoadedModels(self.memory, tell_users)
        self.loaded = self._loaded_models.by_name
        self.default: str | None = None  # the model of requests that name none
        self._known: dict[str, Options] = {}  # of models that were loaded and not unloaded by request
        self._loadings: dict[Any, Loading] = {}  # in progress, by (exact, Options.key)
        self._load_queue = RequestQueue()

    # -- memory

    def set_budget(self, value: Any) -> int:
        """Set the memory budget in bytes, from the next load on; None restores the default. Returns the budget."""
        self.memory.set(value)
        if not self.memory.estimated:
            self._loaded_models.warn(self._loaded_models.used())
        return self.memory.budget

    def stats(self) -> dict[str, Any]:
        """Plain JSON: every loaded model, their bytes, and the budget."""
        models = [
            {
                "id": model.id,
                "default": model.id == self.default,
                "backend": model.engine.backend if model.engine is not None else None,
                "context_length": model.engine.context_length if model.engine is not None else None,
                "memory": model.memory,
                "bytes": model.bytes,
                "requests": model.pins,
            }
            for model in self.loaded.values()
        ]
        return {"models": models, "bytes": self._loaded_models.bytes, "budget": self.memory.budget}

    def loads(self) -> list[dict[str, Any]]:
        """The load requests that give another worker the same models; the least recently used first.

        Evicted ones are only to be loaded when a request names them.
        """
        evicted = [options for name, options in self._known.items() if name not in self.loaded]
        models = sorted(self.loaded.values(), key=last_used)
        return [
            *({**options.request, "onDemand": True} for options in evicted),
            *({**model.options.request, "default": model.id == self.default} for model in models),
        ]

    def know(self, options: Options) -> None:
        """Load this model when a request names it."""
        self._known.setdefault(options.choice.id, options)

    # -- names

    async def catalog(self) -> Catalog:
        """The models that come with the page."""
        if self._catalog is None:
            self._catalog = await self._source.catalog()
        return self._catalog

    def knows(self, name: str) -> bool:
        """Whether a request may name this model, apart from the catalog."""
        return name in self.loaded or name in self._known

    def resolve(self, name: str) -> str:
        """A model's name, also from that of a file of its set, which answers of earlier versions had."""
        return name if self.knows(name) or not self.knows(set_name(name)) else set_name(name)

    async def listing(self) -> dict[str, Any]:
        """OpenAI's list of models: the catalog, and other models that were loaded."""
        others = [*self.loaded, *(name for name in self._known if name not in self.loaded)]
        return (await self.catalog()).listing(others, set(self.loaded), self.default)

    def urls(self) -> set[str]:
        """Addresses of the models that are loaded or being loaded."""
        loaded = [part for model in self.loaded.values() for part in model.options.parts]
        coming = [part for _, key in self._loadings for part in key if isinstance(part, str) and "://" in part]
        return {part for part in [*loaded, *coming] if isinstance(part, str)}

    async def options(self, name: str | None) -> Options:
        """The load options of the model that a request names."""
        if not name:
            if self.default is None:
                raise WispError("No model is loaded. Load one first.", "model_not_loaded")
            name = self.default
        name = self.resolve(name)
        if name in self.loaded:
            options: Options = self.loaded[name].options
            return options
        if name in self._known:
            return self._known[name]
        catalog = await self.catalog()
        if name in catalog:
            return loading.options(catalog.choose(name), {}, loading.AuxiliaryFiles(catalog.projector(None, name)))
        known = dict.fromkeys([*self.loaded, *self._known, *catalog.ids])
        raise WispError(
            f"There is no model {name!r}. There are: {', '.join(known) or 'none'}. Others are loaded with "
            "engine.load({ model }) first.",
            "model_not_found",
            NOT_FOUND,
            "model",
        )

    @asynccontextmanager
    async def hold(self, name: str | None, job: Job, report: OnProgress) -> AsyncIterator[Loaded]:
        """Pin the model of that name, loaded on demand, without waiting in its queue."""
        async with self.hold_loaded(await self.options(name), job, report) as model:
            yield model

    @asynccontextmanager
    async def hold_loaded(self, options: Options, job: Job, report: OnProgress) -> AsyncIterator[Loaded]:
        """Pin the model that has the name of these options; load it with them only if none of that name is loaded."""
        model = self.loaded.get(options.choice.id)
        if model is not None:
            model.pins += 1
        else:
            model = await self._loading(options, exact=False).wait(job, report)
        self._loaded_models.touch(model)
        try:
            yield model
        finally:
            self._loaded_models.touch(model)
            model.unpin()

    @asynccontextmanager
    async def shared(self, name: str | None, job: Job, report: OnProgress) -> AsyncIterator[Loaded]:
        """Pin a model and wait in its queue, shared with as many requests as its engine runs side by side."""
        async with self.hold(name, job, report) as model, model.queue.shared(job):
            yield model

    @asynccontextmanager
    async def alone(self, name: str | None, job: Job, report: OnProgress) -> AsyncIterator[Loaded]:
        """Pin a model and wait in its queue for exclusive access."""
        async with self.hold(name, job, report) as model, model.queue.exclusive(job):
            yield model

    # -- loading

    @asynccontextmanager
    async def load(self, options: Options, default: bool, job: Job, report: OnProgress) -> AsyncIterator[Loaded]:
        """Load a model beside the others, unless it is loaded with the same options.

        A model of the same name is replaced when its requests have ended. If this raises, the models
        that were loaded before are still loaded.
        """
        name = options.choice.id
        model = self.loaded.get(name)
        if model is not None and model.options.key == options.key:
            model.pins += 1
        else:
            model = await self._loading(options, exact=True).wait(job, report)
        self._loaded_models.touch(model)
        if default:
            self.default = name
        try:
            yield model
        finally:
            model.unpin()

    def _loading(self, options: Options, *, exact: bool) -> "Loading":
        """The load of these options that is in progress, or a new one.

        Not `exact`: any model of that name that was loaded in the meantime is accepted.
        """
        for key in [(True, options.key)] if exact else [(True, options.key), (False, options.key)]:
            if key in self._loadings and self._loadings[key].open:
                return self._loadings[key]
        self._loadings[key] = Loading(lambda this_load: self._load(options, exact, this_load))
        return self._loadings[key]

    async def _load(self, options: Options, exact: bool, this_load: "Loading") -> Loaded:
        name, key = options.choice.id, (exact, options.key)
        try:
            async with self._load_queue.exclusive(Job()):
                model = self.loaded.get(name)
                if model is None or (exact and model.options.key != options.key):
                    model = await self._make(options, this_load.report)
                    self._loaded_models.add(model, options)
                    self._known[name] = options
                    self.default = self.default or name
                model.pins += this_load.close()
                return model
        finally:
            this_load.close()
            if self._loadings.get(key) is this_load:
                del self._loadings[key]

    async def _make(self, options: Options, report: OnProgress) -> Loaded:
        """Load a new model, evicting others where needed. On failure the evicted ones are loaded again.

        Where memory does not suffice even without others, the model is loaded with less (options.step_down). Where the
        GPU is lost, the load begins again, once.
        """
        evicted: list[Options] = []
        steps: list[str] = []
        lost = False
        lacking: WispError | None = None
        new: Loaded | None = None
        reserved = ExitStack()

        async def make_capacity(needed: int) -> None:
            reserved.close()
            await self._loaded_models.make_capacity(options, needed, evicted)
            reserved.enter_context(self.memory.reserve(needed))

        try:
            while new is None:
                try:
                    ask = make_capacity if not self.memory.estimated or self._loaded_models.bytes else None
                    new = await self._read(options, report, ask)
                except OverBudgetError:
                    raise
                except WispError as error:
                    if error.code == "device_lost" and not lost:
                        lost = True
                        continue
                    lacking = lacking or error
                    if error.code != "out_of_memory":
                        raise lacking from None
                    if not await self._loaded_models.evict_one(options, evicted):
                        options, step = _with_less(options, lacking)
                        steps.append(step)
            if lost:
                new.notices.append("The GPU was lost during the load, which began again on a new device.")
            if steps:
                new.notices.append(f"There is too little memory, so {' and '.join(steps)}.")
            if options.choice.id in self.loaded:
                await self._loaded_models.unload_when_idle(self.loaded[options.choice.id])
        except BaseException:
            if new is not None:  # aborted while waiting for the replaced model's requests
                await new.close()
            reserved.close()
            await self._load_again(evicted, report)
            raise
        reserved.close()
        return new

    async def _read(
        self, options: Options, report: OnProgress, make_capacity: Callable[[int], Awaitable[None]] | None = None
    ) -> Loaded:
        return await loading.load(options, self._source, report, make_capacity)

    async def _load_again(self, evicted: list[Options], report: OnProgress) -> None:
        for options in reversed(evicted):
            try:
                model = await self._read(options, report)
            except WispError:
                continue  # the next request that names it reports why
            self._loaded_models.touch(model)
            self._loaded_models.add(model, options)

    # -- unloading

    async def free(self, name: str | None, job: Job) -> str:
        """Free a model's memory when its requests have ended; it is loaded again when a request names it.

        Returns the model's name.
        """
        name = (await self.options(name)).choice.id
        if name in self.loaded:
            await job.run(self._loaded_models.unload_when_idle(self.loaded[name]))
            self.tell_loads()
        return name

    async def unload(self, name: str | None, job: Job) -> None:
        """Unload one model, or all, when their requests have ended."""
        name = name if name is None else self.resolve(name)
        if name is not None and not self.knows(name):
            loaded = ", ".join(self.loaded) or "none"
            raise WispError(
                f"No model {name!r} is loaded. Loaded are: {loaded}.", "model_not_found", NOT_FOUND, "model"
            )
        for one in [name] if name is not None else [*{**self.loaded, **self._known}]:
            model = self.loaded.get(one)
            if model is not None:
                await job.run(self._loaded_models.unload_when_idle(model))
            self._known.pop(one, None)
            if self.default == one:
                rest = max(self.loaded.values(), key=lambda m: m.used, default=None)
                self.default = rest.id if rest is not None else None


def _with_less(options: Options, lacking: WispError) -> tuple[Options, str]:
    """Options of the same model that need less memory, and a clause that says so. Raises `lacking`: there are none."""
    found = step_down(options.engine)
    if found is None:
        raise lacking
    return replace(options, engine=found[0]), found[1]
