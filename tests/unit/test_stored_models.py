"""Models in the browser's storage: listed, pinned, removed, updated."""

from typing import Any

from tests.support.gguf_bytes import MINI
from tests.support.several_models import Models
from tests.support.worker_page import File, settle


def cached(url: str, n_bytes: int) -> dict[str, Any]:
    """A file in the browser's storage: `n_bytes` of its 100 bytes are there."""
    return {
        "url": url,
        "size": 100,
        "bytes": n_bytes,
        "complete": n_bytes == 100,
        "used": 7,
        "verified": n_bytes == 5,
        "pinned": False,
    }


async def test_what_the_browser_keeps_is_listed_and_removed() -> None:
    page = Models()
    mini = "https://wisp/models/mini.gguf"
    page.platform.cached = [
        cached(mini, 100),
        cached("https://host/big%20one.gguf?x=1", 40),
        cached("https://host/c.gguf", 5),
    ]
    assert await page.call("load")
    found = await page.call("models.cached")
    assert [(m["id"], m["bytes"], m["complete"], m["loaded"]) for m in found] == [
        ("mini", 100, True, True),
        ("big one", 40, False, False),
        ("c", 5, False, False),
    ]
    assert found[0]["last_used"] == 7
    assert page.worker.urls_in_use() == {mini}
    await page.call("models.pin", model="c", pinned=True)
    assert [m["pinned"] for m in await page.call("models.cached")] == [False, False, True]
    assert await page.code("models.pin", model="c", pinned="yes") == "invalid_type"
    assert await page.code("models.pin", model="no", pinned=True) == "model_not_found"
    assert await page.call("models.delete", model="big one") == 40
    assert await page.call("models.delete", model="https://host/c.gguf") == 5
    assert await page.code("models.delete", model="no") == "model_not_found"
    assert await page.call("models.delete") == 100
    assert await page.call("models.cached") == []
    assert await page.ask() == "mini", "what is loaded stays loaded"


async def test_every_file_of_a_set_is_listed_and_one_name_removes_them_all() -> None:
    page = Models()
    page.platform.cached = [
        cached(f"https://host/{name}.gguf", 100) for name in ("m-00001-of-00002", "m-00002-of-00002", "n")
    ]
    assert [m["id"] for m in await page.call("models.cached")] == ["m-00001-of-00002", "m-00002-of-00002", "n"]
    await page.call("models.pin", model="m", pinned=True)
    assert [m["pinned"] for m in await page.call("models.cached")] == [True, True, False]
    assert await page.call("models.delete", model="m-00002-of-00002") == 100
    assert await page.call("models.delete", model="m") == 100
    assert [m["id"] for m in await page.call("models.cached")] == ["n"]


async def test_a_model_answers_to_the_name_of_a_file_of_its_set() -> None:
    """Earlier versions had the file's name as the model's id."""
    page, file = Models(), "m-00001-of-00001"
    page.platform.files[f"{file}.gguf"] = MINI.read_bytes()
    assert (await page.call("load", model=File(f"{file}.gguf")))["model"] == "m"
    assert await page.ask(file) == "m"
    assert (await page.call("stats", model=file))["model"] == "m"
    assert await page.code("stats", model="n-00001-of-00001") == "model_not_found"
    await page.call("unload", model=file)
    assert await page.code("stats", model="m") == "model_not_found"


async def test_a_changed_model_is_offered_and_updated() -> None:
    page = Models()
    url = "https://host/one.gguf"
    page.platform.files[url] = page.platform.files["https://wisp/models/mini.gguf"]
    page.platform.cached = [
        {"url": url, "size": 1, "bytes": 1, "complete": True, "used": 1, "verified": False, "pinned": False}
    ]
    page.platform.newer = {url, "https://wisp/models/mini.gguf"}
    await page.call("load")
    await settle()
    assert not [m for m in page.platform.messages if m["kind"] == "modelUpdate"], "the catalog's names have hashes"
    await page.call("load", model=url)
    await settle()
    told = [m for m in page.platform.messages if m["kind"] == "modelUpdate"]
    assert told == [{"kind": "modelUpdate", "model": "one", "url": url}]
    await page.call("models.update", model=url)
    assert url not in page.platform.newer
    assert await page.code("models.update", model="no") == "model_not_found"
