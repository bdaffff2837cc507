"""Downloads in workers that a page lends to the engine, with real workers and a faulty server."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support.browser import run_python
from tests.support.faulty_server import FaultyServer, File, Pause
from tests.support.model_case import Case, check_cancelled_load, sha

# Answers the engine's request for workers with `count` of them, as app/wisp.js does, and counts what they download.
# They end after `endAfter` bytes.
LEND = """async (count) => {
    const { startDownloadWorkers } = await import("/repo/app/sdk/downloads.js");
    Object.defineProperty(navigator, "hardwareConcurrency", { value: 4 * count, configurable: true });
    globalThis.lent = { asked: 0, requests: 0, bytes: 0, endAfter: Infinity, end() {} };
    let starting = false;
    wispShards.onWorkersNeeded(() => {
        if (starting) return; // the engine asks again where they take more than a second
        starting = true;
        lent.asked += 1;
        const earlier = lent.end; // of workers that the engine did not wait for
        const end = startDownloadWorkers("/repo/py_engine/files/download_worker.js", (port) => {
            starting = false;
            const { port1, port2 } = new MessageChannel(); // between the engine and the worker, to count
            port.onmessage = ({ data }) => {
                port1.postMessage(data, data.value?.buffer ? [data.value.buffer] : []);
                lent.bytes += data.bytes ?? 0;
                if (lent.bytes < lent.endAfter) return;
                lent.endAfter = Infinity;
                lent.end();
            };
            port1.onmessage = ({ data }) => {
                lent.requests += data.kind === "request";
                port.postMessage(data);
            };
            wispShards.addDownloadWorker(port2);
        });
        lent.end = () => (earlier?.(), end());
    });
}"""


@pytest.fixture
def case(engine_page: Page, bad_server: FaultyServer, model: bytes) -> Iterator[Callable[..., Case]]:
    """Files of any size are downloaded in two workers."""

    def make(**how: Any) -> Case:
        return Case(engine_page, bad_server, File(**{"data": model, **how}))

    run_python(engine_page, "from py_engine.files import shards; shards.WORKERS_FROM = 0")
    engine_page.evaluate(LEND, 2)
    wait_for_workers(engine_page, True)
    yield make
    engine_page.evaluate("() => { wispShards.onWorkersNeeded(() => {}); lent.end(); }")
    wait_for_workers(engine_page, False)
    run_python(engine_page, "from py_engine.files import shards; shards.WORKERS_FROM = 64 << 20")


def wait_for_workers(page: Page, there: bool) -> None:
    """Wait until records go to workers, or until they do not any more. A record of this thread has a buffer."""
    page.evaluate(
        """async (there) => {
            for (;;) {
                const record = wispShards.newRecord(1, true);
                record.discard();
                if (there === !record.buffer) return;
                await new Promise((resolve) => setTimeout(resolve, 20));
            }
        }""",
        there,
    )


def test_workers_download_every_record(case: Callable[..., Case]) -> None:
    """Bytes, counts, progress and the cache are those of a download in the engine's thread."""
    c = case()
    size = len(c.file.data)
    first = c.load()
    assert first["sha256"] == sha(c.file.data)
    assert first["stats"]["downloaded_bytes"] == size == c.file.sent
    assert first["stats"]["requests"] == len(c.file.requests)
    assert c.page.evaluate("[lent.asked, lent.requests]") == [1, len(c.file.requests) - 1]
    assert [stage for stage in first["stages"] if stage[0] == "download"][-1] == ["download", size, size]
    assert len(c.cached()) == first["records"] > 5
    c.file.requests.clear()
    assert c.load()["sha256"] == sha(c.file.data)
    assert c.file.requests == [], "what workers made is in the cache"


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_that_end_lose_nothing(case: Callable[..., Case], workers: int) -> None:
    """Their records are downloaded again, by the engine's thread or by the workers that a page lends next."""
    c = case(piece=1 << 14, pause=Pause(0.05))
    c.page.evaluate("() => { lent.endAfter = 500_000; }")
    if workers == 1:
        c.page.evaluate("() => wispShards.onWorkersNeeded(() => {})")
    got = c.load()
    assert got["sha256"] == sha(c.file.data)
    assert len(c.file.data) <= c.file.sent
    assert len(c.cached()) == got["records"]
    assert c.page.evaluate("lent.asked") == workers
    c.file.pause = None
    c.file.requests.clear()
    assert c.load()["sha256"] == sha(c.file.data)
    assert c.file.requests == []


def test_a_lost_connection_is_retried_by_the_worker(case: Callable[..., Case]) -> None:
    c = case(cut_at=1_500_000, cuts=2)
    got = c.load()
    assert got["sha256"] == sha(c.file.data)
    assert got["stats"]["downloaded_bytes"] == len(c.file.data)


def test_another_part_of_the_file_is_an_error(case: Callable[..., Case]) -> None:
    assert "another part" in case(shift=-1).load()["error"]["message"]


def test_a_permanently_lost_connection_is_an_error(case: Callable[..., Case]) -> None:
    got = case(cut_at=2_500_000).load()
    assert got["error"]["code"] == "network_error"
    assert "lost" in got["error"]["message"]


def test_a_record_that_is_not_what_the_catalog_says(case: Callable[..., Case]) -> None:
    c = case()
    assert c.load(hashes={"0": "00"})["error"]["code"] == "network_error"
    assert c.cached() == []


def test_a_server_without_ranges_is_read_by_one_worker(case: Callable[..., Case]) -> None:
    """The engine's request for the header ends when the worker begins its own for the whole file."""
    c = case(ranges=False)
    got = c.load()
    assert got["sha256"] == sha(c.file.data)
    assert len(c.file.requests) == 2
    assert c.page.evaluate("lent.requests") == 1
    assert len(c.cached()) == got["records"]


def test_a_worker_that_ends_within_a_stream(case: Callable[..., Case]) -> None:
    c = case(ranges=False, piece=1 << 14, pause=Pause(0.01))
    c.page.evaluate("() => { lent.endAfter = 500_000; }")
    assert c.load()["sha256"] == sha(c.file.data)
    assert len(c.file.requests) > 2


def test_a_stream_that_loses_the_connection(case: Callable[..., Case]) -> None:
    c = case(ranges=False, cut_at=2_000_000, cuts=2)  # the engine's own request may use one up
    assert c.load()["sha256"] == sha(c.file.data)
    assert len(c.file.requests) in (3, 4)


def test_a_cancelled_load_ends_the_workers_requests(case: Callable[..., Case]) -> None:
    check_cancelled_load(case(piece=1 << 14))
