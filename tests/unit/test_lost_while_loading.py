"""A GPU that is lost during a load: the load begins again on a new device, once."""

from typing import Any

import pytest

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.options import LoadOptions
from tests.support.worker_page import Engine, Page


def losing(page: Page, times: int) -> list[LoadOptions]:
    """Lose the GPU in so many loads; return the options of every load, as they happen."""
    make, asked = page.platform.make, list[LoadOptions]()

    async def load(source: Any, header: Any, options: LoadOptions) -> Engine:
        asked.append(options)
        if len(asked) <= times:
            raise WispError("The GPU was lost.", "device_lost", SERVER_ERROR)
        return await make(source, header, options)

    page.platform.make = load
    return asked


async def test_the_load_begins_again() -> None:
    page = Page()
    asked = losing(page, 1)
    stats = await page.call("load", model="mini")
    assert asked == [LoadOptions()] * 2
    assert "The GPU was lost during the load, which began again on a new device." in stats["notices"]
    assert all(source.closed for source in page.platform.sources)


@pytest.mark.parametrize("times", [2, 3])
async def test_a_second_loss_is_an_error(times: int) -> None:
    page = Page()
    asked = losing(page, times)
    assert await page.code("load", model="mini") == "device_lost"
    assert len(asked) == 2
