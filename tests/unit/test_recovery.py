"""A lost GPU: answers under way continue with the same text, and a GPU that fails again gets less work."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from py_engine import recovery
from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.generate.media import PromptMedia
from py_engine.options import LoadOptions
from py_engine.plan.sampling import Batch, Sampling
from tests.support import answer_cases
from tests.support.cpu_engines import MODEL, PROMPT, SHAPED, WARM, RandomConstraint, Runner, collect, make

GREEDY = Sampling(temperature=0)
KINDS: list[tuple[Sampling, float | None]] = [(GREEDY, None), (WARM, None), (SHAPED, None), (GREEDY, 0.8), (WARM, 0.5)]


class FragileRunner(Runner):
    """A runner whose device is lost after `calls` results."""

    calls = 1 << 30

    def _count(self) -> None:
        self.calls -= 1
        if self.calls <= 0:
            self.lost = "the driver was reset"
        if self.lost:
            raise WispError("The GPU was lost.", "device_lost")

    async def result(self) -> list[Batch]:
        self._count()
        return await super().result()

    async def take(self) -> tuple[Batch, bool]:
        self._count()
        return await super().take()

    async def configure(self, sampling: Sampling, *rest: Any, **more: Any) -> None:
        if self.lost:
            self._count()
        await super().configure(sampling, *rest, **more)

    def _run_in_order(self, run: Callable[[], Any]) -> None:
        if not self.lost:
            super()._run_in_order(run)

    def mask(self, *arguments: Any) -> None:
        if self.lost:
            self._count()
        super().mask(*arguments)

    def step(self, count: int, eager: bool = False) -> int:
        if self.lost:
            self._count()
        return super().step(count, eager)

    def rewind(self, position: int, count: int) -> None:
        if self.lost:
            self._count()
        super().rewind(position, count)

    async def stop(self) -> None:
        self._work.clear()


def fragile(calls: int = 1 << 30, path: Path = MODEL) -> Engine:
    """An engine with such a runner."""
    used = make(path=path)
    runner = FragileRunner(used.plan)
    runner._cpu, runner.calls = used.runner._cpu, calls  # type: ignore[attr-defined]
    return Engine(used.plan, runner, "cpu")


def recovering(calls: int, lives: list[int], path: Path = MODEL) -> tuple[Engine, list[str]]:
    """An engine whose devices are lost after so many results, one after the other, and what it tells the user."""
    used, told = fragile(calls, path), list[str]()

    async def reload(options: LoadOptions) -> Engine:
        await asyncio.sleep(0)
        return fragile(lives.pop(0) if lives else 1 << 30, path)

    used.reload_after_loss(LoadOptions(), reload, told.append)
    return used, told


async def ask(used: Engine, i: int) -> list[int]:
    sampling, fraction = KINDS[i % len(KINDS)]
    constraint = RandomConstraint(fraction) if fraction else None
    return await collect(used, [*PROMPT, i], sampling, 24, constraint=constraint)


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 2, 9])
async def test_the_answer_is_the_same(calls: int) -> None:
    for i in range(len(KINDS)):
        used, told = recovering(calls, [])
        assert await ask(used, i) == await ask(make(), i)
        assert len(told) == 1
        assert "the driver was reset" in told[0]


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 2, 9])
async def test_an_encoder_reads_the_prompt_again(calls: int) -> None:
    for i in range(len(KINDS)):
        used, told = recovering(calls, [], answer_cases.PATHS["t5"])
        assert await ask(used, i) == await ask(make(path=answer_cases.PATHS["t5"]), i)
        assert len(told) == 1


@pytest.mark.slow
async def test_fifty_losses_under_load() -> None:
    dice = random.Random(5)
    used, told = recovering(8, [dice.randrange(1, 40) for _ in range(50)])
    expected = [await ask(make(), i) for i in range(10)]
    rounds = 0
    while len(told) < 50 and rounds < 60:
        assert await asyncio.gather(*(ask(used, i) for i in range(10))) == expected
        rounds += 1
    assert len(told) >= 50
    for pool in used._generation.sequences.cache.pools:
        assert (pool.held, pool.available) == (0, pool.size)


@pytest.mark.parametrize("fraction", [None, 0.5])
async def test_an_answer_that_waits_for_the_device_begins_on_the_next_one(
    monkeypatch: pytest.MonkeyPatch, fraction: float | None
) -> None:
    """It has a sequence of the lost device, whose pages are other sequences' on the next one."""
    monkeypatch.setattr("py_engine.generate.time_slices.TIME_SLICE", 0.0)
    used, told = recovering(1 << 30, [])
    generation = used._generation

    def asked(engine: Engine) -> list[Coroutine[Any, Any, list[int]]]:
        constraint = RandomConstraint(fraction) if fraction else None
        return [collect(engine, PROMPT * 8, WARM, 24, constraint=constraint), ask(engine, 0), ask(engine, 2)]

    first, *others = asked(used)
    async with generation.time_slices.acquire():
        asking = [asyncio.ensure_future(first)]
        await asyncio.sleep(0.01)
        assert generation.sequences.running()
        used.runner.lost = "the driver was reset"  # type: ignore[misc]
        assert generation.recover is not None
        await generation.recover()
        asking += [asyncio.ensure_future(other) for other in others]
        await asyncio.sleep(0.01)
    for got, wanted in zip(asking, asked(make()), strict=True):
        assert await got == await wanted
    assert len(told) == 1


@pytest.mark.parametrize("on_gpu", [True, False])
async def test_embeddings_are_computed_again(on_gpu: bool) -> None:
    """Each group once, though a real GPU gets the next one before the result of the one before is read."""
    used, told = recovering(1, [])
    runner, groups, results = used.runner, [[PROMPT, PROMPT[1:]], [PROMPT[2:]], [PROMPT[:3]]], []
    compute = runner.pooled

    def lost_after_one(*args: Any) -> Any:
        results.append(args)
        if len(results) == 1:
            return compute(*args)
        runner.lost = "it hung"  # type: ignore[misc]
        found = asyncio.get_running_loop().create_future()
        found.set_exception(WispError("The GPU was lost.", "device_lost"))
        found.exception()  # the second one is never read
        return found

    runner.on_gpu, runner.pooled = on_gpu, lost_after_one  # type: ignore[assignment, method-assign]
    found = [rows async for rows in used.embeddings.all(iter(groups), "mean")]
    wanted = [rows async for rows in make().embeddings.all(groups, "mean")]
    assert [len(rows) for rows in found] == [2, 1, 1]
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert len(told) == 1


async def test_without_a_reload_the_error_is_told() -> None:
    with pytest.raises(WispError, match="lost"):
        await ask(fragile(3), 0)


async def test_a_reload_that_fails_ends_the_requests_and_the_next_one_tries_again() -> None:
    used, failures = fragile(3), [WispError("There is no network.", "network_error")]

    async def reload(options: LoadOptions) -> Engine:
        if failures:
            raise failures.pop()
        return make()

    used.reload_after_loss(LoadOptions(), reload, lambda text: None)
    got = await asyncio.gather(*(ask(used, i) for i in range(3)), return_exceptions=True)
    assert {str(error) for error in got} == {"There is no network."}
    assert await ask(used, 0) == await ask(make(), 0)


async def test_a_projector_that_stays_lost_ends_the_request() -> None:
    class Lost(PromptMedia):
        async def encode(self, ids: Sequence[int], known: int) -> None:
            await asyncio.sleep(0)
            raise WispError("The GPU was lost.", "device_lost")

    used, told = recovering(1 << 30, [])
    with pytest.raises(WispError, match="lost"):
        await asyncio.wait_for(collect(used, PROMPT, GREEDY, 4, media=Lost()), 10)
    assert told == []


async def test_unloading_ends_a_replacement() -> None:
    used, opened, begun, allowed = fragile(1), list[Engine](), asyncio.Event(), asyncio.Event()

    async def reload(options: LoadOptions) -> Engine:
        begun.set()
        await allowed.wait()
        opened.append(fragile())
        return opened[-1]

    used.reload_after_loss(LoadOptions(), reload, lambda text: None)
    asking = asyncio.ensure_future(ask(used, 0))
    await begun.wait()
    asking.cancel()
    await asyncio.wait([asking])
    await used.unload()
    allowed.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert opened == [], "nobody would close it"


async def lose(used: Engine, options: LoadOptions, errors: list[str], times: list[float]) -> list[LoadOptions]:
    """Lose the device at each of these times; return the options of every load. `errors`: codes of the first loads.

    Needs the fixture `clock`.
    """
    assert recovery.time is not time, "else the time of the whole process would stop"
    asked: list[LoadOptions] = []

    async def reload(options: LoadOptions) -> Engine:
        asked.append(options)
        if errors:
            raise WispError("no", errors.pop(0))
        return fragile()

    used.reload_after_loss(options, reload, lambda text: None)
    assert used._generation.recover
    for now in times:
        recovery.time.monotonic = lambda now=now: now  # type: ignore[misc]
        used.runner.lost = "again"  # type: ignore[misc]
        await used._generation.recover()
    return asked


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a test set the time that recovery sees."""
    monkeypatch.setattr(recovery, "time", type("Clock", (), {"monotonic": staticmethod(lambda: 0.0)}))


def described(asked: list[LoadOptions]) -> list[tuple[int | None, str, str]]:
    return [(options.batch, options.kv_type, options.backend) for options in asked]


@pytest.mark.usefixtures("clock")
async def test_three_losses_in_a_minute_step_down() -> None:
    used = fragile()
    asked = await lose(used, LoadOptions(), [], [0, 30, 61, 62, 100, 101, 102])
    none, batch, cache = (None, "f16", "cpu"), (128, "f16", "cpu"), (128, "q8_0", "cpu")
    assert described(asked) == [none, none, none, batch, batch, batch, cache]
    assert {options.context_length for options in asked} == {used.context_length}


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("backend", "error", "expected"),
    [
        ("auto", "out_of_memory", [(None, "f16", "cpu"), (128, "f16", "cpu")]),
        ("auto", "no_webgpu", [(None, "f16", "cpu"), (None, "f16", "cpu")]),
    ],
)
async def test_a_load_that_fails_steps_down(backend: str, error: str, expected: Any) -> None:
    asked = await lose(fragile(), LoadOptions(backend=backend), [error], [0])
    assert described(asked) == expected


@pytest.mark.usefixtures("clock")
async def test_webgpu_alone_is_not_replaced_by_the_cpu() -> None:
    with pytest.raises(WispError, match="no"):
        await lose(fragile(), LoadOptions(backend="webgpu"), ["no_webgpu"], [0])
