"""The order of requests to a model."""

import asyncio

from py_engine.generate.request_queue import Job, RequestQueue
from tests.support.worker_page import settle


async def test_shared_requests_run_concurrently_in_order() -> None:
    queue, log, gates = RequestQueue(lambda: 2), [], {name: asyncio.Event() for name in "abcde"}

    async def take(name: str, alone: bool) -> None:
        async with queue.exclusive(Job()) if alone else queue.shared(Job()):
            log.append(name)
            await gates[name].wait()

    kinds = {"a": False, "b": False, "c": True, "d": False, "e": False}
    tasks = {name: asyncio.create_task(take(name, alone)) for name, alone in kinds.items()}

    async def now(name: str = "") -> str:
        if name:
            gates[name].set()
        for _ in range(5):
            await asyncio.sleep(0)
        return "".join(log)

    assert await now() == "ab"
    assert await now("a") == "ab"  # c needs the model alone, and d does not overtake c
    assert await now("b") == "abc"
    assert await now("c") == "abcde"
    for name in "de":
        gates[name].set()
    await asyncio.gather(*tasks.values())


async def test_a_cancelled_wait_lets_those_behind_it_go() -> None:
    queue, log = RequestQueue(lambda: 2), []
    first, waiting = asyncio.Event(), Job()

    async def take(name: str, job: Job, alone: bool = False) -> None:
        async with queue.exclusive(job) if alone else queue.shared(job):
            log.append(name)
            await first.wait()

    tasks = [asyncio.create_task(take(*given)) for given in (("a", Job()), ("b", waiting, True), ("c", Job()))]
    await settle()
    assert log == ["a"]
    waiting.abort()
    await settle()
    assert log == ["a", "c"]
    first.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [getattr(o, "code", o) for o in outcomes] == [None, "aborted", None]
