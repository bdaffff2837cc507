"""The number and size of range requests, by the measured link."""

import asyncio

import pytest

from py_engine.files.link import FIRST_PARALLEL, FIRST_PART, LARGEST, MIB, SMALLEST, Link


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def measured(rate: float, wait: float = 0.01) -> Link:
    """A link that has had this throughput for two seconds."""
    clock = Clock()
    link = Link(clock)
    for _ in range(21):
        link.arrived(int(rate / 10))
        clock.now += 0.1
    link.waited(wait)
    return link


@pytest.mark.parametrize(
    ("rate", "wait", "parallel", "part"),
    [
        (100_000, 0.1, 1, SMALLEST),
        (900_000, 0.1, 1, 2 * MIB),
        (3_000_000, 0.01, 3, 2 * MIB),
        (20_000_000, 0.01, 5, 8 * MIB),
        (300_000_000, 0.001, 5, LARGEST),
        (20_000_000, 1.0, 6, 7 * MIB),
        (20_000_000, 30.0, 8, 5 * MIB),
    ],
)
def test_requests_follow_the_link(rate: float, wait: float, parallel: int, part: int) -> None:
    link = measured(rate, wait)
    assert link.rate == pytest.approx(rate, rel=0.01)
    assert (link.parallel, link.part) == (parallel, part)


def test_before_anything_is_measured() -> None:
    link = Link(Clock())
    assert (link.rate, link.parallel, link.part) == (0, FIRST_PARALLEL, FIRST_PART)


async def test_turns_are_granted_in_order_and_survive_cancellation() -> None:
    link = measured(100_000)
    order: list[int] = []
    gate = asyncio.Event()

    async def one(number: int) -> None:
        async with link.request():
            order.append(number)
            await gate.wait()

    tasks = [asyncio.create_task(one(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert order == [0]
    tasks[1].cancel()
    tasks[0].cancel()
    await asyncio.sleep(0.01)
    assert order == [0, 2]
    gate.set()
    await asyncio.gather(*tasks[2:])
    assert order == [0, 2, 3]
    async with link.request():
        pass
