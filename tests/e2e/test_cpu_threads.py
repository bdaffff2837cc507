"""The CPU engine's workers: threads on a host that sends no headers, and a page that lends its worker and closes."""

import itertools
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext

from tests.support.openai_client import open_client_page, run, settled
from tests.support.slow_engine import slowed
from tools.paths import DIST
from tools.serve import Server

SERVICE_WORKER = True

LOAD = """const { Wisp } = await import("/wisp.js");
globalThis.engine = await Wisp.create();
await engine.load({ model: "wisp-mini-q4_0", backend: "cpu", contextLength: 512 });
return (await engine.stats()).threads;"""
ASK = "return (await engine.chat.completions.create(body)).choices[0].message.content;"
STORY = {"messages": [{"role": "user", "content": "Write a short story about a dragon."}], "temperature": 0}


@pytest.fixture
def plain_host(monkeypatch: pytest.MonkeyPatch, dist: object) -> Iterator[Server]:
    """A host that sends no headers of its own."""
    monkeypatch.setattr("tools.serve.headers_of", lambda name: {})
    running = Server(DIST, 0).start()
    yield running
    running.shutdown()
    running.server_close()


def test_the_service_worker_isolates_the_page(context: BrowserContext, plain_host: Server) -> None:
    """The page reloads once. Later pages are isolated at once."""
    page = context.new_page()
    loads = itertools.count(1)
    # evaluate() would count as an act of the user, who is not disturbed
    with page.expect_event("load", lambda _: next(loads) == 2):
        page.goto(plain_host.url)
    assert page.evaluate("globalThis.crossOriginIsolated")
    assert page.evaluate("performance.getEntriesByType('navigation')[0].type") == "reload"
    another = context.new_page()
    another.goto(plain_host.url)
    assert another.evaluate("globalThis.crossOriginIsolated")


def test_an_answer_goes_on_when_the_page_that_lends_its_worker_closes(context: BrowserContext, server: Server) -> None:
    lender, other = (open_client_page(context, server) for _ in range(2))
    cores = lender.evaluate("navigator.hardwareConcurrency")
    assert [run(page, LOAD) for page in (lender, other)] == [cores, cores]
    wanted = run(other, ASK, body=STORY)
    begin = """globalThis.texts = []; globalThis.ended = (async () => {
        const stream = await engine.chat.completions.create(body);
        for await (const { choices } of stream) texts.push(choices[0]?.delta.content ?? "");
        return texts.join("");
    })();
    while (texts.length < 3) await new Promise((resolve) => setTimeout(resolve, 2));"""
    with slowed(lender):  # the page closes before the answer's end
        run(other, begin, body={**STORY, "stream": True})
        lender.close()
    assert settled(other, "ended") == wanted
    assert run(other, "return (await engine.stats()).threads;") == cores
