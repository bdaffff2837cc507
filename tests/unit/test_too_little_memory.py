"""A device with too little memory for a model: it is loaded with less, in a stated order, before it is refused."""

from typing import Any

import pytest

from py_engine.errors import WispError
from py_engine.options import LoadOptions
from tests.support.worker_page import Engine, Page


def asked_of(page: Page, enough: LoadOptions | None) -> list[tuple[int | None, str, str]]:
    """Let loads run out of memory, unless they have these options; returns what each load asks for, as it happens."""
    make, asked = page.platform.make, list[tuple[int | None, str, str]]()

    async def small(source: Any, header: Any, options: LoadOptions) -> Engine:
        asked.append((options.batch, options.kv_type, options.backend))
        if options != enough:
            raise WispError("No room.", "out_of_memory")
        return await make(source, header, options)

    page.platform.make = small
    return asked


async def test_a_model_is_loaded_with_less() -> None:
    page = Page()
    asked = asked_of(page, LoadOptions(batch=128, kv_type="q8_0"))
    stats = await page.call("load", model="mini")
    assert asked == [(None, "f16", "auto"), (128, "f16", "auto"), (128, "q8_0", "auto")]
    why = "There is too little memory, so prompts are read in smaller batches and the KV cache is stored as q8_0."
    assert why in stats["notices"]
    assert (await page.call("load", model="mini"))["model"] == "mini"
    assert len(asked) == 3, "the same request finds it loaded"


@pytest.mark.parametrize(("backend", "last"), [("auto", "cpu"), ("webgpu", "webgpu")])
async def test_what_never_fits_is_refused(backend: str, last: str) -> None:
    page = Page()
    asked = asked_of(page, None)
    assert await page.code("load", model="mini", backend=backend) == "out_of_memory"
    assert asked[-1] == (128, "q8_0", last)
