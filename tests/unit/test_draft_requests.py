"""A draft model in load requests: its files, its memory, and its reload after the loss of the GPU."""

from typing import Any

import pytest

from app.models import loading
from app.models.catalog import Catalog
from py_engine.options import LoadOptions
from tests.support.gguf_bytes import MINI
from tests.support.worker_page import Page, Platform

URL = "https://wisp/models/draft.gguf"


@pytest.fixture
def platform() -> Platform:
    platform = Platform()
    platform.files[URL] = MINI.read_bytes()
    return platform


def options(**fields: Any) -> loading.Options:
    catalog = Catalog([{"id": "mini", "url": "https://wisp/models/mini.gguf"}])
    auxiliary = loading.AuxiliaryFiles(draft=catalog.draft(fields.get("draft")))
    return loading.options(catalog.choose("mini"), fields, auxiliary)


async def test_the_draft_model_is_loaded_with_the_model_and_again_after_a_loss(platform: Platform) -> None:
    loads: list[tuple[int, int, LoadOptions]] = []
    reloads: list[Any] = []

    async def load_engine(sources: Any, headers: Any, given: LoadOptions, on_progress: Any) -> Any:
        loads.append((len(sources), len(headers), given))
        engine = await platform._engine(sources[0], headers[0], given)
        engine.reload_after_loss = lambda options, reload, notify: reloads.append((options, reload))  # type: ignore[method-assign]
        return engine

    asked = options(draft=URL, draftTokens=4)
    platform.load_engine = load_engine  # type: ignore[method-assign, assignment]
    await loading.load(asked, platform, lambda *_: None)
    ((given, reload),) = reloads
    await reload(given)
    assert [(files, headers) for files, headers, _ in loads] == [(2, 2), (2, 2)]
    assert {one.draft for *_, one in loads} == {asked.engine.draft}
    assert all(source.closed for source in platform.sources)


def test_the_catalog_has_draft_models_too() -> None:
    found = options(draft="mini", draftTokens=3)
    assert found.of_engine == ("https://wisp/models/mini.gguf",) * 2
    assert found.engine.draft is not None
    assert (found.engine.draft.files, found.engine.draft.tokens) == (1, 3)
    assert options().key != found.key != options(draft="mini").key
    assert found.request == {"model": "mini", "draft": "mini", "draftTokens": 3}


def test_a_load_says_whether_the_model_drafts_by_its_own_layer() -> None:
    assert [options(**fields).engine.mtp for fields in ({}, {"mtp": False}, {"mtp": True})] == [False, False, True]
    shorter = options(draftTokens=3).engine
    assert shorter.draft is not None
    assert (shorter.draft_files, shorter.draft.tokens) == (0, 3)


def test_the_address_of_one_file_stands_for_a_draft_model_s_set() -> None:
    parts = [f"https://host/draft-{n:05d}-of-00002.gguf" for n in (1, 2)]
    assert Catalog([]).draft(parts[1]) == tuple(parts)
    assert Catalog([]).draft(parts[:1]) == tuple(parts[:1])


async def test_the_memory_of_a_draft_model_is_estimated() -> None:
    page = Page()
    page.platform.files[URL] = MINI.read_bytes()
    alone, beside = [await page.call("estimate", model="mini", **more) for more in ({}, {"draft": URL})]
    assert beside["weights"] == 2 * alone["weights"]
    assert beside["download"] == 2 * alone["download"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"draft": 5}, "draft"), ({"draft": URL, "draftTokens": 0}, "draftTokens"), ({"mtp": 1}, "mtp")],
)
async def test_wrong_fields_are_refused(fields: dict[str, Any], param: str) -> None:
    page = Page()
    number, task = page.send("load", model="mini", **fields)
    await task
    (answer,) = page.answers(number)
    assert answer["error"]["param"] == param
