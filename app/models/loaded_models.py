"""The loaded models under one memory budget: which of them are evicted when another one needs their memory.

A request pins its model until it ends. Evicts the least recently used model; pinned models last, and only when idle.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from app.models.loaded import Loaded
from app.models.loading import Options
from app.models.memory import MemoryBudget
from py_engine.errors import WispError


class OverBudgetError(WispError):
    """The model alone exceeds the budget, so evicting others would not help."""


class LoadedModels:
    """The models that have memory on the device, by name."""

    def __init__(self, memory: MemoryBudget, tell_users: Callable[[str], None]) -> None:
        self.memory, self._tell_users = memory, tell_users
        self.by_name: dict[str, Loaded] = {}
        self._count = 0  # of requests
        self._leaving: list[Loaded] = []  # being evicted: their memory is not free yet
        self._closing: set[asyncio.Task[None]] = set()  # of those whose unloading was aborted after they were replaced

    @property
    def bytes(self) -> int:
        """Bytes of all loaded models on the device."""
        return sum(model.bytes for model in self.by_name.values())

    def used(self) -> int:
        """Bytes that count against the budget."""
        return self.bytes + sum(model.bytes for model in self._leaving) + self.memory.reserved

    def _free(self) -> int:
        """Bytes that are left of the budget; negative where an estimated budget is exceeded."""
        return self.memory.budget - self.used()

    def warn(self, used: int) -> None:
        """Tell users before memory is refused, if `used` bytes come close to the budget."""
        if text := self.memory.warning(used):
            self._tell_users(text)

    def add(self, model: Loaded, options: Options) -> None:
        """Take a new model in. Its caches ask before they grow."""
        model.options, model.tell_users = options, self._tell_users
        self.by_name[model.id] = model
        if model.engine is not None:
            model.engine.ask_before_growing(lambda needed: self.growth(model, needed))

    @asynccontextmanager
    async def growth(self, model: Loaded, needed: int) -> AsyncIterator[bool]:
        """Grant or refuse `needed` more bytes for a model's caches; the grant is held while they grow.

        Evicts idle models, least recently used first, or none if that would not suffice.
        """
        idle = sorted((m for m in self.by_name.values() if not m.pins and m.bytes and m is not model), key=last_used)
        if not self._may_exceed(model, idle):
            needed_in_all = self.used() - sum(m.bytes for m in idle) + needed
            self.warn(needed_in_all)
            if needed_in_all > self.memory.budget:
                yield False
                return
        with self.memory.reserve(needed):
            while self._free() < 0 and idle:
                victim = idle.pop(0)
                if self.by_name.get(victim.id) is victim and not victim.pins:
                    await self.unload_when_idle(victim)
            yield True

    def _may_exceed(self, model: Loaded, idle: list[Loaded]) -> bool:
        """Whether a model may exceed the budget: only an estimated budget, and only as the last model left."""
        others = [m for m in self.by_name.values() if m is not model and m not in idle and m.bytes]
        return self.memory.estimated and not (others or self._leaving or self.memory.reserved)

    def touch(self, model: Loaded) -> None:
        """Note that a request uses the model."""
        self._count += 1
        model.used = self._count

    async def make_capacity(self, options: Options, needed: int, evicted: list[Options]) -> None:
        """Evict models until `needed` bytes are free for a new one, or none is left. OverBudgetError.

        `evicted`: gets the options of the evicted models.
        """
        if not self.memory.estimated:
            idle = sum(m.bytes for m in self.by_name.values() if not m.pins or m.id == options.choice.id)
            self.warn(self.used() - idle + needed)
        if not self.memory.estimated and needed > self.memory.budget:
            raise OverBudgetError(
                f"{options.choice.id} needs {needed / 2**20:.0f} MiB; all models together may take "
                f"{self.memory.budget / 2**20:.0f} MiB. Raise memoryBudget, or choose a smaller model or "
                'quantization, a shorter contextLength, or kvType "q8_0".',
                "out_of_memory",
            )
        while needed > self._free():
            if not await self.evict_one(options, evicted):
                return

    async def evict_one(self, options: Options, evicted: list[Options]) -> bool:
        """Evict one model; returns whether there was one.

        First the one that the new model replaces, then the least recently used. Pinned models come last, once
        their requests have ended.
        """
        some = [model for model in self.by_name.values() if model.bytes]
        if not some:
            return False
        model = min(some, key=lambda m: (m.pins > 0, m.id != options.choice.id, m.used))
        await self.unload_when_idle(model)
        if model.id != options.choice.id:
            self._tell_users(f"{model.id} was unloaded, because {options.choice.id} needs its memory.")
        evicted.append(model.options)
        return True

    async def unload_when_idle(self, model: Loaded) -> None:
        """Unload a model when its requests have ended. New requests no longer get it."""
        del self.by_name[model.id]
        self._leaving.append(model)
        try:
            await model.idle()
        except BaseException:
            if model.id not in self.by_name:
                self._leaving.remove(model)
                self.by_name[model.id] = model
            else:  # it was loaded again in the meantime
                task = asyncio.ensure_future(self._close_when_idle(model))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
            raise
        await self._close_when_idle(model)

    async def _close_when_idle(self, model: Loaded) -> None:
        try:
            await model.idle()
            await model.close()
            gc.collect()  # plans and runners refer to each other in circles, and WebAssembly's heap never shrinks
        finally:
            self._leaving.remove(model)


def last_used(model: Loaded) -> int:
    """A sort key: the least recently used model first."""
    return model.used
