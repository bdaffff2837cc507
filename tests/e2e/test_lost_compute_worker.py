"""A compute worker that a page lends to the shared engine, and that does not work: nobody waits for it in vain."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.support.slow_engine import slowed
from tools.paths import DIST
from tools.serve import Handler, Server

# Defines `workers`, those that the page starts, and loads Wisp Mini; returns the code of the error if that fails.
LOAD = """async () => {
    globalThis.workers = [];
    globalThis.Worker = class extends Worker {
        constructor(...of) {
            super(...of);
            workers.push(this);
        }
    };
    const { Wisp } = await import("/wisp.js");
    globalThis.engine = await Wisp.create();
    const request = { model: "wisp-mini-q4_0", backend: "cpu", contextLength: 512 };
    return engine.load(request).then(() => "", ({ code }) => code);
}"""
# The text of a streamed answer. With `fails`, the compute worker fails in the middle of it.
ANSWER = """async (fails) => {
    const messages = [{ role: "user", content: "Write a short story about a dragon." }];
    const texts = [];
    for await (const { choices } of await engine.chat.completions.create({ messages, temperature: 0, stream: true })) {
        texts.push(choices[0]?.delta.content ?? "");
        if (!fails || texts.length !== 3) continue;
        workers[0].dispatchEvent(new ErrorEvent("error", { message: "out of memory" }));
    }
    return texts.join("");
}"""


class WithoutComputing(Handler):
    """A host whose files for the compute worker are missing, as after a new version."""

    def _file(self) -> Path | None:
        return None if "/compute-" in self.path else super()._file()


class Incomplete(Server):
    handler = WithoutComputing


@pytest.fixture
def incomplete_host(dist: Path) -> Iterator[Server]:
    running = Incomplete(DIST, 0).start()
    yield running
    running.shutdown()
    running.server_close()


def opened(context: BrowserContext, server: Server) -> Page:
    page = context.new_page()
    page.goto(f"{server.url}notices.html")
    return page


def test_a_load_fails_where_the_script_of_the_compute_worker_does_not_load(
    context: BrowserContext, incomplete_host: Server
) -> None:
    """It waited for ever."""
    assert opened(context, incomplete_host).evaluate(LOAD) == "device_lost"


def test_an_answer_goes_on_with_another_compute_worker(context: BrowserContext, server: Server) -> None:
    page = opened(context, server)
    assert page.evaluate(LOAD) == ""
    expected = page.evaluate(ANSWER, False)
    with slowed(page):  # the answer goes on when the page hears of its beginning
        assert page.evaluate(ANSWER, True) == expected
    assert page.evaluate("workers.length") == 2


def test_a_page_that_is_asked_for_two_compute_workers_lends_two(server: Server, context: BrowserContext) -> None:
    """A page used to forget the first of two requests, which then waited for ever."""
    page = opened(context, server)
    assert page.evaluate(
        """async () => {
            const { Ports } = await import("/repo/app/ports.js");
            const ports = new Ports(() => ({ greet() {}, receive() {}, async leave() {} }), () => {});
            const { port1: client, port2 } = new MessageChannel();
            ports.add(port2);
            const lent = [];
            const hello = new Promise((resolve) => {
                client.onmessage = ({ data }) => {
                    if (data.kind === "hello") return resolve();
                    const [work, failure] = [new MessageChannel(), new MessageChannel()];
                    work.port1.postMessage(lent.push(work));
                    const request = { kind: "compute", port: work.port2, failure: failure.port2 };
                    client.postMessage(request, [work.port2, failure.port2]);
                };
            });
            client.postMessage({ kind: "hello", lock: null, page: true });
            await hello;
            const links = await Promise.all([ports.askForCompute(), ports.askForCompute()]);
            return Promise.all(links.map(({ port }) => new Promise((resolve) => {
                port.onmessage = ({ data }) => resolve(data);
            })));
        }"""
    ) == [1, 2]
