"""Models that are unloaded while requests use them, and what an abort of that leaves."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from app.models.loaded_models import LoadedModels


class Busy(SimpleNamespace):
    """A model of 5 bytes that one request uses until `ended` is set."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        super().__init__(id="mini", bytes=5, idle=self.ended.wait, close=AsyncMock())


def models() -> LoadedModels:
    memory: Any = SimpleNamespace(reserved=0, budget=100)
    return LoadedModels(memory, print)


async def aborted(loaded: LoadedModels, model: Any, before: Any = None) -> None:
    """Abort the unloading of a model while it waits; `before`: what takes its name meanwhile."""
    task = asyncio.ensure_future(loaded.unload_when_idle(model))
    await asyncio.sleep(0)
    assert loaded.used() == 5
    if before is not None:
        loaded.by_name["mini"] = before
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_model_stays_if_its_unloading_is_aborted() -> None:
    loaded, model = models(), Busy()
    loaded.by_name["mini"] = model  # type: ignore[assignment]
    await aborted(loaded, model)
    assert loaded.by_name == {"mini": model}
    assert loaded.used() == 5
    model.close.assert_not_awaited()


async def test_a_model_that_was_replaced_goes_when_its_requests_have_ended() -> None:
    """It was in no list before: never closed, and not counted."""
    loaded, model, other = models(), Busy(), Busy()
    loaded.by_name["mini"] = model  # type: ignore[assignment]
    await aborted(loaded, model, other)
    assert loaded.by_name == {"mini": other}
    assert loaded.used() == 10
    model.close.assert_not_awaited()
    model.ended.set()
    await asyncio.gather(*loaded._closing)
    model.close.assert_awaited_once()
    assert loaded.used() == 5
