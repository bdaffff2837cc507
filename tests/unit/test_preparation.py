"""Lists that are compiled beside requests, or when the device is idle."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from py_engine.gpu import preparation
from py_engine.gpu.preparation import CHECK_S, IDLE_S, LATEST_S, Preparation


@pytest.fixture(autouse=True)
def _virtual_time(clock: Callable[[], float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "time", SimpleNamespace(perf_counter=clock))


STEP_S = 0.02  # between two uses of the device


class Compiler:
    """Notes what it compiles."""

    def __init__(self, unproven: set[str]) -> None:
        self.compiled: list[set[str]] = []
        self.looked_up = 0
        self._unproven = unproven
        self.preparation = Preparation(self._compile, self._look_up)

    def _look_up(self, lists: set[str]) -> bool:
        self.looked_up += 1
        return bool(lists & self._unproven)

    async def _compile(self, lists: set[str]) -> None:
        self.compiled.append(set(lists))
        await asyncio.sleep(0.2)

    async def use(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        """Use the device all the time."""
        for _ in range(round(seconds / STEP_S)):
            self.preparation.used()
            each()
            await asyncio.sleep(STEP_S)


async def test_proven_lists_are_compiled_at_once() -> None:
    compiler = Compiler(set())
    compiler.preparation.used()
    compiler.preparation.begin({"a", "b"}, soon=False)
    compiler.preparation.begin({"a", "b"}, soon=False)
    await asyncio.sleep(0)
    assert compiler.compiled == [{"a", "b"}]


async def test_lists_to_be_proven_wait_until_the_device_is_idle() -> None:
    compiler = Compiler({"a"})
    await compiler.use(LATEST_S / 2, lambda: compiler.preparation.begin({"a"}, soon=False))
    assert compiler.compiled == []
    assert compiler.looked_up == 1  # not at every step
    await asyncio.sleep(IDLE_S + CHECK_S)
    assert compiler.compiled == [{"a"}]


async def test_they_wait_no_longer_than_a_long_answer() -> None:
    compiler = Compiler({"a"})
    await compiler.use(
        LATEST_S + CHECK_S, lambda: None if compiler.compiled else compiler.preparation.begin({"a"}, soon=False)
    )
    assert compiler.compiled == [{"a"}]


async def test_a_request_that_needs_them_soon_does_not_wait() -> None:
    compiler = Compiler({"a"})
    compiler.preparation.used()
    compiler.preparation.begin({"a"}, soon=False)
    compiler.preparation.begin({"a"}, soon=True)
    await asyncio.sleep(0)
    assert compiler.compiled == [{"a"}]


async def test_nothing_is_compiled_after_the_end() -> None:
    compiler = Compiler({"a"})
    compiler.preparation.used()
    compiler.preparation.begin({"a"}, soon=False)
    compiler.preparation.close()
    await asyncio.sleep(2 * LATEST_S)
    assert compiler.compiled == []
