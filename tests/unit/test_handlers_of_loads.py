"""The worker's handler of loads: what fails leaves the loaded model, and what succeeds replaces it in time."""

import asyncio
import math
from typing import Any

import pytest

from app.models.catalog import Catalog
from app.models.progress import Progress
from py_engine.errors import WispError
from py_engine.options import LoadOptions
from tests.support.gguf_bytes import BAD, MINI
from tests.support.worker_page import HELLO, HI, Engine, File, Page, settle


@pytest.fixture
async def page() -> Page:
    page = Page()
    assert (await page.call("load"))["model"] == "mini"
    return page


async def still_answers(page: Page, engine: Engine) -> None:
    assert not engine.unloaded
    answer = await page.call("chat.completions", request={"messages": HI})
    assert (answer["model"], answer["choices"][0]["message"]["content"]) == ("mini", HELLO)


@pytest.mark.parametrize(("data", "code"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
async def test_bad_files_leave_the_loaded_model(page: Page, data: bytes, code: str) -> None:
    page.platform.files["https://x/bad.gguf"] = data
    assert await page.code("load", model="https://x/bad.gguf") == code
    assert all(s.closed for s in page.platform.sources)
    await still_answers(page, page.engine)


async def test_failed_loads_leave_the_loaded_model(page: Page) -> None:
    engine = page.engine
    page.platform.files["https://x/404.gguf"] = WispError("The server answered 404.", "http_error")
    page.platform.files["bad.gguf"] = b"not a model at all"
    for fields, code in (
        ({"model": "unheard-of"}, "not_found"),
        ({"model": 5}, "invalid_type"),
        ({"model": []}, "invalid_value"),
        ({"model": {"a": 1}}, "invalid_type"),
        ({"model": "models/x.gguf"}, "invalid_value"),
        ({"model": "https://x/404.gguf"}, "http_error"),
        ({"model": File("bad.gguf")}, "not_gguf"),
        ({"name": 5}, "invalid_type"),
        ({"backend": "tpu"}, "invalid_value"),
        ({"backend": 1}, "invalid_type"),
        ({"kvType": "q1"}, "invalid_value"),
        ({"variant": 1}, "invalid_type"),
        ({"tune": "yes"}, "invalid_type"),
        ({"prove": "yes"}, "invalid_type"),
        ({"variant": {"f16": "yes"}}, "invalid_type"),
        ({"variant": {"magic": 1}}, "invalid_value"),
        ({"contextLength": "x"}, "invalid_type"),
        ({"contextLength": 0}, "invalid_value"),
        ({"contextLength": math.nan}, "invalid_type"),
        ({"contextLength": math.inf}, "invalid_type"),
        ({"vocabOnly": 1}, "invalid_type"),
    ):
        assert await page.code("load", **fields) == code, fields
    for code in ("unsupported_architecture", "model_too_large", "missing_tensor"):

        async def refuse(*_: Any, code: str = code, **__: Any) -> Engine:
            raise WispError("No.", code)

        page.platform.make = refuse
        assert await page.code("load", contextLength=150) == code
    await still_answers(page, engine)


async def test_a_model_of_the_same_name_replaces_the_old_after_its_answer(page: Page) -> None:
    old = page.engine
    old.pause = 0.002
    number, running = page.send("completions", request={"prompt": "a", "max_tokens": 50})
    await settle()
    stats = await page.call("load", contextLength=100, backend="cpu")
    assert page.answers(number)[0]["result"]["model"] == "mini"
    await running
    assert (stats["model"], old.unloaded, page.engine is old) == ("mini", 1, False)
    assert (await page.call("completions", request={"prompt": "a"}))["model"] == "mini"
    assert [m["id"] for m in (await page.call("stats"))["models"]] == ["mini"]


async def test_without_memory_for_two_models_the_old_one_is_unloaded_first(page: Page) -> None:
    platform = page.platform
    platform.files["other.gguf"] = MINI.read_bytes()
    engines = platform.engines

    async def small(source: Any, header: Any, options: LoadOptions) -> Engine:
        if sum(not e.unloaded for e in engines):
            raise WispError("No room.", "out_of_memory")
        return await platform._engine(source, header, options)

    platform.make = small
    assert (await page.call("load", model=File("other.gguf")))["model"] == "other"
    assert [e.unloaded for e in engines] == [1, 0]

    async def too_small(source: Any, header: Any, options: LoadOptions) -> Engine:
        if options.context_length == 77:
            raise WispError("No room.", "out_of_memory")
        return await small(source, header, options)

    platform.make = too_small
    assert await page.code("load", contextLength=77) == "out_of_memory"
    assert (await page.call("stats"))["model"] == "other"
    assert (await page.call("completions", request={"prompt": "a"}))["model"] == "other"


async def test_abort_of_a_load(page: Page) -> None:
    engine = page.engine

    async def slow(*_: Any, **__: Any) -> Engine:
        await asyncio.sleep(60)
        raise AssertionError

    page.platform.make = slow
    number, task = page.send("load", contextLength=150)
    await settle()
    await page.call("abort", target=number)
    await task
    assert page.answers(number)[0]["error"]["code"] == "aborted"
    assert all(s.closed for s in page.platform.sources)
    await still_answers(page, engine)


async def test_vocab_only(page: Page) -> None:
    stats = await page.call("load", model="mini", vocabOnly=True)
    assert (stats["model"], stats["backend"], len(page.platform.engines)) == ("mini", None, 1)
    assert await page.call("tokenize", text="Hi")
    assert await page.code("chat.completions", request={"messages": HI}) == "model_not_loaded"
    assert await page.code("evaluate", ids=[1]) == "model_not_loaded"


def test_names_of_models() -> None:
    catalog = Catalog([])
    for model, name in (
        ("https://host/a/My%20Model-Q4_0.gguf?download=true", "My Model-Q4_0"),
        ("https://host/x.GGUF#part", "x"),
        (File("qwen.gguf"), "qwen"),
        (["https://host/m-00001-of-00002.gguf", "https://host/m-00002-of-00002.gguf"], "m"),
        (File("m-00002-of-00003.gguf"), "m"),
    ):
        assert catalog.choose(model).id == name
        assert catalog.choose(model, "mine").id == "mine"
    with pytest.raises(WispError) as error:
        catalog.choose(None)
    assert error.value.code == "not_found"


def test_the_address_of_one_file_stands_for_its_set() -> None:
    parts = [f"https://host/a-of-b/m-{n:05d}-of-00003.gguf?download=true" for n in (1, 2, 3)]
    for part in parts:
        assert list(Catalog([]).choose(part).parts) == parts
        assert Catalog([]).choose(part).id == "m"
    for alone in ("https://host/m-00001-of-00001.gguf", "https://host/m-1-of-3.gguf", "https://host/00001-of-00003/m.gguf",
                  "https://host/m-00001-of-99999.gguf"):  # fmt: skip
        assert Catalog([]).choose(alone).parts == (alone,)
    assert Catalog([]).choose(parts[:2]).parts == tuple(parts[:2])


def test_progress_is_throttled_and_has_a_speed() -> None:
    out: list[dict[str, Any]] = []
    clock = [0.0]
    progress = Progress(out.append, lambda: clock[0])
    for i in range(101):
        clock[0] = i * 0.01
        progress("download", i * 1000, 100_000)
    assert 9 <= len(out) <= 13
    assert out[-1] == {"stage": "download", "loaded": 100_000, "total": 100_000, "speed": pytest.approx(100_000)}
    progress("hash", 1, 10)
    assert out[-1]["stage"] == "hash"
    assert out[-1]["speed"] == 0.0


def test_the_speed_falls_where_nothing_comes() -> None:
    out: list[dict[str, Any]] = []
    clock = [0.0]
    progress = Progress(out.append, lambda: clock[0])
    progress.repeat()
    assert not out
    for i in range(5):
        clock[0] = i
        progress("download", i * 1000, 100_000)
    speeds = []
    for i in range(5):
        clock[0] = 5.0 + i
        progress.repeat()
        speeds.append(out[-1]["speed"])
    assert speeds[0] > speeds[1] > speeds[-1] == 0
    assert out[-1] == {"stage": "download", "loaded": 4000, "total": 100_000, "speed": 0.0}
