"""The download queue, with files that arrive when the test says so."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from app.models import downloads, loading
from app.models.catalog import Catalog
from app.models.downloads import NAME, REPEAT_S, Downloads
from app.models.progress import Progress
from py_engine.errors import WispError
from tests.support.gguf_bytes import MINI
from tests.support.worker_page import settle

DATA = MINI.read_bytes()
A, B, C = (f"https://host/{name}.gguf" for name in "abc")


class Source:
    """A file. A third of it arrives each time its gate opens."""

    def __init__(self, browser: "Browser", url: str, on_progress: Any) -> None:
        self.browser, self.url, self.on_progress = browser, url, on_progress
        self.size, self.expected, self.header_bytes = len(DATA), None, 1 << 20

    async def read(self, offset: int, length: int) -> bytes:
        return DATA[offset : offset + length]

    async def fill(self, plan: list[Any]) -> None:
        assert sum(record.length for record in plan) == self.size
        stored = self.browser.stored
        if self.url in self.browser.broken:
            raise WispError("The connection was lost.", "network_error")
        while stored.setdefault(self.url, 0) < 3:
            await self.browser.gates[self.url].acquire()
            stored[self.url] += 1
            self.on_progress("download", stored[self.url] * self.size // 3, self.size)

    def close(self) -> None:
        self.browser.closed.append(self.url)


class Browser:
    """Texts and files as the browser has them; `stored`: thirds of each file that have arrived."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.stored: dict[str, int] = {}
        self.closed: list[str] = []
        self.broken: set[str] = set()
        self.gates = {url: asyncio.Semaphore(0) for url in (A, B, C)}
        self.engines: list[Callable[[dict[str, Any]], None]] = []

    async def open_source(self, part: Any, on_progress: Any) -> Source:
        return Source(self, part, on_progress)

    async def read_text(self, name: str) -> str | None:
        return self.texts.get(name)

    async def write_text(self, name: str, text: str) -> None:
        self.texts[name] = text

    def channel(self, name: str, receive: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
        self.engines.append(receive)

        def send(message: dict[str, Any]) -> None:
            text = json.dumps(message)
            for engine in self.engines:
                if engine is not receive:
                    engine(json.loads(text))

        return send

    async def arrive(self, url: str, thirds: int = 1) -> None:
        for _ in range(thirds):
            self.gates[url].release()
        await settle()


async def choose(fields: dict[str, Any]) -> loading.Options:
    return loading.options(Catalog([]).choose(fields["model"], fields.get("name")), fields)


class Visit:
    """A queue and what it has told."""

    def __init__(self, browser: Browser) -> None:
        self.told: list[list[dict[str, Any]]] = []
        self.queue = Downloads(browser, choose, self.told.append)

    async def states(self) -> list[str]:
        await settle()
        return [f"{item['model']} {item['state']}" for item in await self.queue.queue()]

    async def end(self) -> None:
        """What the end of the worker does to its tasks."""
        for item in self.queue._items.values():
            if item.task is not None:
                item.task.cancel()
        self.queue._platform = Browser()
        await settle()


@pytest.fixture
async def browser() -> Browser:
    return Browser()


async def filled(browser: Browser) -> Visit:
    visit = Visit(browser)
    for url in (A, B, C):
        await visit.queue.add({"model": url, "sha256": "ab" * 32})
    return visit


async def test_two_run_at_once_and_the_next_follows(browser: Browser) -> None:
    visit = await filled(browser)
    assert await visit.states() == ["a running", "b running", "c queued"]
    await browser.arrive(B, 3)
    assert await visit.states() == ["a running", "b done", "c running"]
    await visit.queue.set_limit(1)
    await browser.arrive(A, 3)
    await browser.arrive(C, 3)
    assert await visit.states() == ["a done", "b done", "c done"]
    assert sorted(browser.closed) == [A, B, C]
    assert visit.told[-1][0]["loaded"] == visit.told[-1][0]["total"] == len(DATA)


async def test_order_pause_resume_and_remove(browser: Browser) -> None:
    visit = await filled(browser)
    await visit.queue.set_limit(1)
    await visit.queue.pause(A)
    await visit.queue.pause(B)
    assert await visit.states() == ["a paused", "b paused", "c running"]
    await visit.queue.resume(B)
    await visit.queue.resume(A)
    await visit.queue.move(B, 0)
    assert await visit.states() == ["b queued", "a queued", "c running"]
    await visit.queue.remove(C)
    assert await visit.states() == ["b running", "a queued"]
    with pytest.raises(WispError) as raised:
        await visit.queue.pause(C)
    assert raised.value.code == "not_found"


async def test_a_failed_download_says_why_and_can_be_resumed(browser: Browser) -> None:
    browser.broken.add(A)
    visit = await filled(browser)
    assert await visit.states() == ["a failed", "b running", "c running"]
    (failed, *_) = await visit.queue.queue()
    assert failed["error"] == {
        "message": "The connection was lost.", "type": "invalid_request_error", "param": None, "code": "network_error",
    }  # fmt: skip
    browser.broken.clear()
    await browser.arrive(B, 3)
    await visit.queue.resume(A)
    await browser.arrive(A, 3)
    assert (await visit.states())[0] == "a done"


async def test_a_stored_queue_that_cannot_be_read_for_a_moment_stays(browser: Browser) -> None:
    visit = await filled(browser)
    await visit.queue.pause(A)
    stored = browser.texts[NAME]
    await visit.end()
    later, read = Visit(browser), browser.read_text

    async def fails(name: str) -> str | None:
        raise WispError("It is blocked.", "storage_unreadable")

    browser.read_text = fails  # type: ignore[method-assign]
    await later.queue.add({"model": C})
    assert browser.texts[NAME] == stored
    browser.read_text = read  # type: ignore[method-assign]
    assert [state.split()[0] for state in await later.states()] == ["c", "a", "b"]


async def test_a_stored_queue_whose_first_read_fails_is_not_written_over(browser: Browser) -> None:
    visit = await filled(browser)
    await visit.queue.pause(A)
    await visit.end()
    later, read, reads = Visit(browser), browser.read_text, iter(range(9))

    async def fails_once(name: str) -> str | None:
        if not next(reads):
            raise WispError("It is blocked.", "storage_unreadable")
        return await read(name)

    browser.read_text = fails_once  # type: ignore[method-assign]
    await later.queue.add({"model": C})
    assert len(json.loads(browser.texts[NAME] or "")["items"]) == len(await later.states()) == 3


async def test_the_next_visit_continues(browser: Browser) -> None:
    visit = await filled(browser)
    await visit.queue.pause(C)
    await browser.arrive(A)
    await visit.queue.move(B, 0)
    await visit.queue.set_limit(4)
    await visit.end()
    second = Visit(browser)
    assert await second.queue.get_limit() == 4
    assert await second.states() == ["b running", "a running", "c paused"]
    (_, a, _) = await second.queue.queue()
    assert a["total"] == len(DATA)
    await browser.arrive(A, 2)
    assert browser.stored[A] == 3, "one third was stored by the first visit"
    assert await second.states() == ["b running", "a done", "c paused"]
    assert second.queue._items[B].options.sha256 == ("ab" * 32,)


async def test_a_load_takes_a_download_over(browser: Browser) -> None:
    visit = await filled(browser)
    await browser.arrive(A)
    with visit.queue.lent((A,)):
        assert await visit.states() == ["a loading", "b running", "c running"]
        assert browser.closed == [A]
        browser.stored[A] = 3  # the load stores the rest
    assert await visit.states() == ["a queued", "b running", "c running"]
    await browser.arrive(B, 3)
    assert await visit.states() == ["a done", "b done", "c running"]
    assert visit.queue.urls() == {C}


async def test_bad_requests(browser: Browser) -> None:
    visit = await filled(browser)
    for call in (visit.queue.set_limit(0), visit.queue.set_limit("many"), visit.queue.move(A, -1)):
        with pytest.raises(WispError) as raised:
            await call
        assert raised.value.code == "invalid_value"
    again = await visit.queue.add({"model": A})
    assert again["state"] == "running", "it is in the queue once"
    assert len(await visit.queue.queue()) == 3


async def test_a_damaged_list_of_an_earlier_visit_is_ignored(browser: Browser) -> None:
    for text in (
        "no json",
        "[]",
        "5",
        '{"limit": "x", "items": 5}',
        '{"limit": 1e999, "items": [5, {"request": 5}, {"request": {"model": "https://host/a.gguf"}, "total": "x"}]}',
        '{"items": [{}, {"request": {"model": 5}}, {"request": {"model": "https://host/a.gguf"}}]}',
    ):
        browser.texts["downloads"] = text
        visit = Visit(browser)
        assert len(await visit.queue.queue()) == text.count("https")
        await visit.end()


async def test_what_the_user_changes_in_one_engine_the_others_change_too(browser: Browser) -> None:
    one, two = Visit(browser), Visit(browser)
    late = Visit(browser)  # its pages have not asked for the queue
    await two.queue.queue()
    change = one.queue.handlers
    await change["downloads.add"]({"kind": "downloads.add", "id": 5, "model": A})
    await change["downloads.add"]({"model": B})
    assert await one.states() == await two.states() == ["a running", "b running"]
    await change["downloads.pause"]({"download": A})
    assert await two.states() == ["a paused", "b running"]
    await change["downloads.limit"]({"limit": 1})
    await change["downloads.resume"]({"download": A})
    assert await one.states() == await two.states() == ["a queued", "b running"]
    await change["downloads.move"]({"download": B, "index": 1})
    await change["downloads.remove"]({"download": A})
    assert await one.states() == await two.states() == ["b running"]
    assert not late.told, "it reads the queue when it is asked for it"
    assert await late.states() == ["b running"]
    for nonsense in ({}, {"kind": "downloads.pause", "download": "x"}, {"kind": "downloads.add", "model": 5}):
        browser.engines[0](nonsense)
    assert await one.states() == ["b running"]


async def test_a_download_that_stalls_says_no_time(
    browser: Browser, clock: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "Progress", lambda report: Progress(report, clock))
    visit = await filled(browser)
    await browser.arrive(A)
    await asyncio.sleep(REPEAT_S / 2)
    await browser.arrive(A)
    assert any(item["seconds_left"] for told in visit.told for item in told)
    await asyncio.sleep(Progress.WINDOW + 2 * REPEAT_S)
    (stalled,) = [item for item in visit.told[-1] if item["model"] == "a"]
    assert (stalled["state"], stalled["speed"], stalled["seconds_left"]) == ("running", 0, None)
    await browser.arrive(A)
    assert (await visit.states())[0] == "a done"
    told = len(visit.told)
    await browser.arrive(B, 3)
    await browser.arrive(C, 3)
    await asyncio.sleep(50 * REPEAT_S)
    assert len(visit.told) - told < 20, "nothing is repeated after the end"
