"""A failure of the device ends the answers that run on it, and no others."""

import asyncio

from py_engine.errors import WispError
from py_engine.plan.sampling import Batch
from tests.support.cpu_engines import GREEDY, PROMPT, PROMPTS, collect, counts, engine, make


async def test_a_failure_reaches_everyone_and_ends() -> None:
    """A device error reaches every request of the batch; the next request works."""
    used = engine()
    runner, result = counts(used), counts(used).result
    calls = 0

    async def fails() -> list[Batch]:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise WispError("The GPU was lost.", "device_lost")
        return await result()

    runner.result = fails  # type: ignore[method-assign]
    got = await asyncio.gather(*(collect(used, ids, GREEDY, 30) for ids in PROMPTS[:3]), return_exceptions=True)
    assert any(isinstance(g, WispError) for g in got)
    assert all(isinstance(g, WispError) or len(g) == 30 for g in got)  # type: ignore[arg-type]
    assert await collect(used, PROMPT, GREEDY, 30) == await collect(make(), PROMPT, GREEDY, 30)


async def test_a_request_that_comes_while_the_device_stops_after_a_failure_is_answered() -> None:
    used = engine()
    runner, stop, late = counts(used), counts(used).stop, asyncio.Event()

    async def fails() -> list[Batch]:
        del runner.result
        raise WispError("The GPU was lost.", "device_lost")

    async def slow() -> None:
        late.set()
        for _ in range(20):
            await asyncio.sleep(0)
        await stop()

    runner.result, runner.stop = fails, slow  # type: ignore[method-assign]

    async def second() -> list[int]:
        await late.wait()
        return await collect(used, PROMPTS[1], GREEDY, 30)

    first, got = await asyncio.gather(
        collect(used, PROMPT, GREEDY, 30), asyncio.wait_for(second(), 60), return_exceptions=True
    )
    assert isinstance(first, WispError)
    assert got == await collect(make(), PROMPTS[1], GREEDY, 30)
