"""What visits transfer: a server that counts the bytes of each answer, against tools/delivery.py."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.support.browser import new_profile, wait_until
from tests.support.chat_page import ask, open_page, wait_ready
from tests.support.waiting import wait_for
from tools import delivery
from tools.paths import ROOT
from tools.serve import Handler, Server

CONTROLLED = "navigator.serviceWorker.controller !== null"


class CountingHandler(Handler):
    """Records each answer."""

    server: "CountingServer"

    def setup(self) -> None:
        super().setup()
        self.written = 0
        write = self.wfile.write

        def count(data: Any) -> int:
            self.written += len(data)
            return write(data)

        self.wfile.write = count  # type: ignore[method-assign]

    def send_response(self, code: int, message: str | None = None) -> None:
        self.status = code
        super().send_response(code, message)

    def end_headers(self) -> None:
        super().end_headers()
        self.written = 0  # the body begins

    def route(self) -> None:
        self.server.under_way.add(self)
        try:
            super().route()
            self.server.answers.append((self.decoded_path().lstrip("/") or "index.html", self.status, self.written))
        finally:
            self.server.under_way.discard(self)


class CountingServer(Server):
    """`answers`: (path, status, bytes of the body) of each request."""

    handler = CountingHandler

    def __init__(self, *args: Any) -> None:
        self.answers: list[tuple[str, int, int]] = []
        self.under_way: set[CountingHandler] = set()
        super().__init__(*args)

    def sent(self) -> Counter[str]:
        """Path -> bytes, of all answers with a body but the model's."""
        wait_for(lambda: not self.under_way)  # a browser may have an answer before it is counted
        found: Counter[str] = Counter()
        for path, status, size in self.answers:
            if status == HTTPStatus.OK and not path.endswith(".gguf"):
                found[path] += size
        return found


@pytest.fixture
def counting(dist: Path) -> Iterator[CountingServer]:
    made = CountingServer(dist, 0)
    made.start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def context(chromium: Callable[[str | None], Browser]) -> Iterator[BrowserContext]:
    """A fresh profile."""
    made = new_profile(chromium(None))
    yield made
    made.close()


STAYS_MS = 30_000


def test_visits_transfer_what_the_tool_says(counting: CountingServer, context: BrowserContext) -> None:
    """Nothing is fetched twice, and a return loads the whole page from the service worker.

    A visit that stays fetches no more, since the browser saves data.
    """
    context.add_init_script("Object.defineProperty(navigator, 'connection', { value: { saveData: true } })")
    context.clock.install()
    page = open_page(context, counting.url)
    wait_for(lambda: page.evaluate(CONTROLLED))
    assert "Rome" in ask(page, "What is the capital of Italy?")
    page.clock.fast_forward(STAYS_MS)
    page.wait_for_timeout(1000)
    visit = delivery.first_visit()
    sent = counting.sent()
    module = {path: size for path, size in sent.items() if "/cpu-" in path}  # of the CPU engine: there is no GPU here
    assert len(module) == 1
    assert sent == visit.files | module
    asked = [path for path, status, _ in counting.answers if status == HTTPStatus.NOT_MODIFIED]
    assert sorted(asked) == [*delivery.ASKED_AGAIN]
    assert visit.bytes < 1.2 * delivery.LIMIT  # quick compression makes a sixth more; a release checks its own

    counting.answers.clear()
    page.reload()
    wait_ready(page)
    assert not counting.sent()


FETCH_DIAGRAMS = "async () => (await fetch(document.getElementById('parts').dataset.mermaid)).ok"


def test_a_visit_that_stays_fetches_what_answers_may_need_offline(
    counting: CountingServer, context: BrowserContext, dist: Path
) -> None:
    context.clock.install()
    page = open_page(context, counting.url)
    wait_until(page, CONTROLLED)
    later = delivery.idle_part(dist=dist).files
    assert len(later) == 3
    assert not later.keys() & counting.sent().keys()
    page.clock.fast_forward(STAYS_MS)
    wait_for(lambda: later.keys() <= counting.sent().keys())
    assert {path: counting.sent()[path] for path in later} == later
    wait_until(page, f"(await Promise.all({json.dumps([*later])}.map((path) => caches.match(path)))).every(Boolean)")
    counting.answers.clear()
    page.reload()
    wait_ready(page)
    page.clock.fast_forward(STAYS_MS)
    page.wait_for_timeout(500)
    assert not counting.sent()
    context.set_offline(True)
    assert page.evaluate(FETCH_DIAGRAMS)  # which were never used
    context.set_offline(False)


def test_a_visit_that_stays_saves_data_on_a_cellular_connection(
    counting: CountingServer, context: BrowserContext, dist: Path
) -> None:
    context.add_init_script("Object.defineProperty(navigator, 'connection', { value: { type: 'cellular' } })")
    context.clock.install()
    page = open_page(context, counting.url)
    wait_until(page, CONTROLLED)
    page.clock.fast_forward(STAYS_MS)
    page.wait_for_timeout(1000)
    assert not delivery.idle_part(dist=dist).files.keys() & counting.sent().keys()


RUN = """async (code) => {
  const sdk = await (await fetch("/wisp.js")).text();
  const assets = JSON.parse(sdk.slice(sdk.indexOf("{"), sdk.indexOf("};") + 1), (_, value) =>
    typeof value === "string" ? new URL(`/${value}`, location.href).href : value);
  const worker = new Worker("/tests/python_worker.js", { type: "module" });
  const answer = new Promise((resolve) => (worker.onmessage = ({ data }) => resolve(data)));
  worker.postMessage({ assets, code });
  return answer;
}"""
# What user's code may import: of Python's library and of numpy, from the part that pages load and from the rest.
EVERYTHING = """
import csv, email.mime.text, inspect, json, sqlite3, unittest.mock, xml.etree.ElementTree
import numpy as np, numpy.ma, numpy.polynomial, numpy.testing
assert inspect.getsource(csv.DictReader).startswith("class DictReader")
numpy.testing.assert_allclose(np.fft.ifft(np.fft.fft([1, 2, 3])).real, [1, 2, 3])
numpy.testing.assert_allclose(np.linalg.solve([[2, 0], [0, 4]], [2, 4]), [1, 1])
try:
    import wsgiref.nothing
except ModuleNotFoundError as error:
    refused = str(error)
json.dumps([int(numpy.ma.array([1, 2], mask=[0, 1]).sum() + np.random.default_rng(0).integers(5, 6)), refused])
"""


def test_what_a_page_leaves_out_is_imported_on_demand(counting: CountingServer, context: BrowserContext) -> None:
    counting.mounts |= {"tests/": ROOT / "tests" / "support" / "pages", "repo/": ROOT}
    page = context.new_page()
    page.goto(f"{counting.url}tests/blank.html")
    assert page.evaluate(RUN, "__import__('json').dumps(1)") == {"value": "1"}
    whole = [path for path in counting.sent() if path.endswith("python_stdlib.zip")]
    assert not whole
    value, refused = json.loads(page.evaluate(RUN, EVERYTHING)["value"])
    assert value == 6
    assert "No module named 'wsgiref.nothing'" in refused


def test_an_import_without_a_network_says_what_is_missing(counting: CountingServer, context: BrowserContext) -> None:
    counting.mounts |= {"tests/": ROOT / "tests" / "support" / "pages", "repo/": ROOT}
    page = context.new_page()
    page.route("**/python_stdlib.zip", lambda route: route.abort())
    page.goto(f"{counting.url}tests/blank.html")
    assert "ModuleNotFoundError: csv is not in this page, and http" in page.evaluate(RUN, "import csv")["error"]


def test_a_host_that_compresses_nothing_is_asked_for_the_compressed_files(
    counting: CountingServer, context: BrowserContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "_encoded", lambda _, path: ("", path))
    counting.mounts |= {"tests/": ROOT / "tests" / "support" / "pages", "repo/": ROOT}
    page = context.new_page()
    page.goto(f"{counting.url}tests/blank.html")
    assert page.evaluate(RUN, "import jinja2; jinja2.__name__") == {"value": "jinja2"}
    asked = {delivery.plain_name(path) for path in counting.sent()}
    assert {"python.bin.gz", "py.zip.gz"} <= asked
    assert "packages.zip" not in asked  # Python has started from the snapshot
