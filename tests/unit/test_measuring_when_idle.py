"""A measurement waits until no request has run for a while, and a request ends it."""

import asyncio

import pytest

from py_engine.tuning.when_idle import CHECK_S, QUIET_S, MeasureWhenIdle

pytestmark = pytest.mark.usefixtures("clock")


class Device:
    """Counts the measurements that begin and end. `busy`: a request runs."""

    def __init__(self) -> None:
        self.busy, self.begun, self.ended = False, asyncio.Event(), asyncio.Event()
        self.begins, self.may_end = 0, asyncio.Event()

    async def measure(self) -> None:
        self.begins += 1
        self.begun.set()
        await self.may_end.wait()
        self.ended.set()

    def measuring(self) -> MeasureWhenIdle:
        return MeasureWhenIdle(lambda: not self.busy, self.measure)


async def test_it_measures_once_nothing_runs() -> None:
    device = Device()
    device.busy = True
    device.measuring()
    await asyncio.sleep(2 * QUIET_S)
    assert not device.begins
    device.busy = False
    device.may_end.set()
    await device.ended.wait()


async def test_a_request_ends_it_until_it_is_idle_again() -> None:
    device = Device()
    device.measuring()
    await device.begun.wait()
    device.busy = True
    await asyncio.sleep(2 * CHECK_S)
    device.may_end.set()
    assert not device.ended.is_set()
    device.busy = False
    await device.ended.wait()
    assert device.begins == 2


async def test_it_can_be_stopped() -> None:
    device = Device()
    measuring = device.measuring()
    await device.begun.wait()
    measuring.stop()
    device.may_end.set()
    await asyncio.sleep(2 * QUIET_S)
    assert not device.ended.is_set()
