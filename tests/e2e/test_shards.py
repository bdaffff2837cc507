"""The download and cache layer in a real browser, with real IndexedDB, real HTTP and a faulty server."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import call_python, open_engine_page
from tests.support.checksums import checksums
from tests.support.faulty_server import FaultyServer, File, Pause
from tests.support.full_storage import FULL_UNTIL_FREED
from tests.support.model_case import Case, check_cancelled_load, sha
from tools.serve import Server


@pytest.fixture
def case(engine_page: Page, bad_server: FaultyServer, model: bytes) -> Callable[..., Case]:
    def make(**how: Any) -> Case:
        return Case(engine_page, bad_server, File(**{"data": model, **how}))

    return make


def test_first_visit_downloads_each_byte_once_and_the_second_asks_for_nothing(case: Callable[..., Case]) -> None:
    c = case()
    first = c.load()
    size = len(c.file.data)
    assert first["sha256"] == sha(c.file.data)
    assert first["stats"]["downloaded_bytes"] == size == c.file.sent
    assert first["stats"]["records"] == first["records"] == len(c.cached()) > 5
    assert first["stats"]["requests"] == len(c.file.requests)
    assert [stage for stage in first["stages"] if stage[0] == "download"][-1] == ["download", size, size]
    c.file.requests.clear()
    second = c.load()
    assert second["sha256"] == sha(c.file.data)
    assert c.file.requests == []
    times = [second["stats"].pop(name) for name in ("read_ms", "hash_ms")]
    assert min(times) > 0
    assert second["stats"] == {
        "records": first["records"], "from_cache": first["records"], "cached_bytes": size,
        "healed": 0, "verified": 0, "downloaded_bytes": 0, "requests": 0,
    }  # fmt: skip
    assert second["stages"][-1] == ["cache", size, size]


SUMS = """() => {
  const sums = new Set();
  const bytes = new Uint8Array(4099).map((_, i) => (i * 7) % 251);
  const add = () => sums.add(String(wispShards.checksum(bytes.buffer.slice(0))));
  add();
  for (let bit = 0; bit < 8 * bytes.length; bit++) {
    bytes[bit >> 3] ^= 1 << (bit & 7);
    add();
    bytes[bit >> 3] ^= 1 << (bit & 7);
  }
  for (const [from, to] of [[0, 4], [0, 16], [5, 4095]]) { // words and bytes that change places
    [bytes[from], bytes[to]] = [bytes[to], bytes[from]];
    add();
    [bytes[from], bytes[to]] = [bytes[to], bytes[from]];
  }
  sums.add(String(wispShards.checksum(bytes.buffer.slice(0, -1))));
  return sums.size;
}"""


EARLY = 1_500_000  # bytes that a prefetch may hold, at least


def test_every_bit_of_a_record_counts_in_its_checksum(engine_page: Page) -> None:
    assert engine_page.evaluate(SUMS) == 1 + 8 * 4099 + 3 + 1


@pytest.mark.parametrize("length", [0, 1, 6, 4099])
def test_checksum_is_what_its_definition_says(engine_page: Page, length: int) -> None:
    data = bytes(7 * i % 251 for i in range(length))
    assert engine_page.evaluate("(b) => wispShards.checksum(Uint8Array.from(b).buffer)", [*data]) == checksums(data)


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_records_may_arrive_before_they_are_read(case: Callable[..., Case], share: float) -> None:
    """None, some or all of the first records are prefetched: each byte is downloaded once, and the counts are equal."""
    c = case()
    size = len(c.file.data)
    first = c.load(begin_until=int(share * EARLY), pause_s=0.2)
    assert first["sha256"] == sha(c.file.data)
    assert share * EARLY - 1 < first["early"] < size  # the rest waits: memory is bounded
    assert first["stats"]["downloaded_bytes"] == size == c.file.sent
    assert first["stats"]["from_cache"] == 0
    assert len(c.cached()) == first["records"]
    reported = [loaded for stage, loaded, _ in first["stages"] if stage == "download"]
    assert reported[-3] < reported[-1] == size  # no byte is counted twice
    assert c.load(begin_until=0, pause_s=share)["stats"]["from_cache"] == first["records"]


def test_an_early_failure_is_raised_with_the_first_record(case: Callable[..., Case]) -> None:
    got = case(cut_at=1_300_000).load(begin_until=0, pause_s=0.5)
    assert got["error"]["code"] == "network_error"
    assert "lost" in got["error"]["message"]


def test_a_server_that_hides_its_headers_is_asked_for_the_size(case: Callable[..., Case]) -> None:
    c = case(expose=False)
    assert c.load()["sha256"] == sha(c.file.data)
    assert "HEAD" in c.file.requests


def test_a_server_without_ranges_sends_the_file_once(case: Callable[..., Case]) -> None:
    c = case(ranges=False)
    assert c.load()["sha256"] == sha(c.file.data)
    assert len(c.file.requests) == 1
    c.file.requests.clear()
    assert c.load()["sha256"] == sha(c.file.data)
    assert c.file.requests == []


def test_server_without_ranges_that_loses_the_connection(case: Callable[..., Case]) -> None:
    c = case(ranges=False, cut_at=2_000_000, cuts=1)
    assert c.load()["sha256"] == sha(c.file.data)
    assert len(c.file.requests) == 2


@pytest.mark.parametrize("ranges", [True, False])
def test_interrupted_download_resumes_from_its_records(case: Callable[..., Case], ranges: bool) -> None:
    c = case(ranges=ranges)
    assert c.load(stop_after=6)["sha256"] is None
    cached = sum(length for _, length in c.cached())
    assert cached > 1 << 20
    again = c.load()
    assert again["sha256"] == sha(c.file.data)
    assert again["stats"]["cached_bytes"] == cached
    if ranges:
        assert (
            again["stats"]["downloaded_bytes"] == len(c.file.data) - cached
        )  # the server may still send what was aborted


@pytest.mark.parametrize("after", [1_200_000, 1_900_000, 2_500_000])
def test_little_travels_twice_wherever_a_download_ends(case: Callable[..., Case], after: int) -> None:
    """A record of 2.5 MB in parts of 64 KiB, three at once: what is lost is the parts that were on their way."""
    c = case(piece=1 << 14, pause=Pause(0.01))
    part = 1 << 16
    got = call_python(c.page, "shards.interrupted", url=c.url, after=after, part=part)
    assert got["sha256"] == sha(c.file.data)
    print(f"{got['first']} + {got['second']} bytes for {len(c.file.data)}")
    assert len(c.file.data) <= got["first"] + got["second"] <= len(c.file.data) + 4 * part
    assert got["parts"] == [], "parts are removed with their record's arrival"


def test_lost_connection_is_retried(case: Callable[..., Case]) -> None:
    c = case(cut_at=1_500_000, cuts=2)
    got = c.load()
    assert got["sha256"] == sha(c.file.data)
    assert got["stats"]["downloaded_bytes"] == len(c.file.data)  # bytes that had arrived were not requested again


def test_a_permanently_lost_connection_is_an_error_and_keeps_records(case: Callable[..., Case]) -> None:
    c = case(cut_at=2_500_000)
    got = c.load()
    assert got["error"]["code"] == "network_error"
    assert "lost" in got["error"]["message"]
    cached = sum(length for _, length in c.cached())
    assert cached > 1_000_000
    c.file.cut_at, c.file.sent = None, 0
    assert c.load()["sha256"] == sha(c.file.data)
    assert c.file.sent == len(c.file.data) - cached


def test_busy_server_is_retried(case: Callable[..., Case]) -> None:
    c = case(statuses=[503, 429])
    assert c.load()["sha256"] == sha(c.file.data)


@pytest.mark.parametrize("status", [404, 403, 500])
def test_an_http_error_names_its_status_and_is_retried_only_where_that_helps(
    case: Callable[..., Case], status: int
) -> None:
    c = case(status=status)
    error = c.load()["error"]
    assert error["code"] == "http_error"
    assert str(status) in error["message"]
    assert len(c.file.requests) == (4 if status == 500 else 1)
    assert c.page.evaluate("(url) => wispShards.getModel(url).then((m) => m === undefined)", c.url)


def test_a_server_without_cors_is_a_network_error_that_says_so(case: Callable[..., Case]) -> None:
    error = case(cors=False).load()["error"]
    assert error["code"] == "network_error"
    assert "CORS" in error["message"]


def test_an_address_without_a_server_is_a_network_error(case: Callable[..., Case]) -> None:
    c = case()
    c.url = "http://127.0.0.1:9/model.gguf"
    assert c.load()["error"]["code"] == "network_error"


def test_being_offline_is_a_network_error_that_says_so(case: Callable[..., Case]) -> None:
    c = case()
    c.page.context.set_offline(True)
    try:
        error = c.load()["error"]
    finally:
        c.page.context.set_offline(False)
    assert error["code"] == "network_error"
    assert "offline" in error["message"]


DAMAGE = """async ([url, offset, length, how]) => {
    const db = await new Promise((resolve) => {
        const asked = indexedDB.open("wisp-models");
        asked.onsuccess = () => resolve(asked.result);
    });
    const store = db.transaction("records", "readwrite").objectStore("records");
    const done = (asked) => new Promise((resolve) => { asked.onsuccess = () => resolve(asked.result); });
    const entry = await done(store.get([url, offset, length]));
    const bytes = new Uint8Array(length);
    const damaged = { flipped: { ...entry, data: new Blob([bytes]) }, short: { ...entry, data: new Blob(["x"]) },
                      strange: { data: "?" }, old: { sha256: entry.sha256, data: entry.data } }[how];
    const again = db.transaction("records", "readwrite").objectStore("records");
    await done(damaged ? again.put(damaged, [url, offset, length]) : again.delete([url, offset, length]));
    db.close();
}"""


@pytest.mark.parametrize("how", ["flipped", "short", "strange", "gone"])
@pytest.mark.parametrize("index", [0, 3])
def test_damaged_record_is_fetched_again(case: Callable[..., Case], how: str, index: int) -> None:
    c = case()
    c.load()
    c.file.sent = 0
    offset, length = c.cached()[index]
    c.page.evaluate(DAMAGE, [c.url, offset, length, how])
    got = c.load()
    assert got["sha256"] == sha(c.file.data)
    assert got["stats"]["healed"] == (0 if how == "gone" else 1)
    assert 0 < c.file.sent < len(c.file.data)
    c.file.requests.clear()
    assert c.load()["stats"]["healed"] == 0
    assert c.file.requests == []


def test_record_of_an_earlier_version_gets_a_checksum(case: Callable[..., Case]) -> None:
    """Such a record has only a SHA-256, which the load checks once more."""
    c = case()
    c.load()
    c.file.requests.clear()
    offset, length = c.cached()[3]
    check = """([url, offset, length]) => wispShards.cachedRecords(url, Float64Array.of(offset, length), [undefined])(0)
        .then((entry) => entry?.check)"""
    before = c.page.evaluate(check, [c.url, offset, length])
    assert before == checksums(c.file.data[offset : offset + length])
    c.page.evaluate(DAMAGE, [c.url, offset, length, "old"])
    assert c.page.evaluate(check, [c.url, offset, length]) is None
    got = c.load()
    assert (got["sha256"], got["stats"]["healed"], c.file.requests) == (sha(c.file.data), 0, [])
    assert c.page.evaluate(check, [c.url, offset, length]) == before


def test_file_that_changed_on_the_server_is_not_mixed_with_the_old_one(case: Callable[..., Case]) -> None:
    c = case()
    c.load(stop_after=2)
    c.file.data, c.file.etag = c.file.data[:-4] + b"new!", '"2"'
    assert c.load()["error"]["code"] == "network_error"
    assert c.cached() == []
    assert c.load()["sha256"] == sha(c.file.data)


def test_a_hash_of_another_offset_counts_for_no_record(case: Callable[..., Case]) -> None:
    c = case()
    assert c.load(hashes={"1": "00"})["sha256"] == sha(c.file.data)


def test_record_that_is_not_what_the_catalog_says(case: Callable[..., Case]) -> None:
    c = case()
    assert c.load(hashes={"0": "00"})["error"]["code"] == "network_error"
    assert c.cached() == []


def test_an_empty_file_is_no_model(case: Callable[..., Case]) -> None:
    assert case(data=b"").load()["error"]["code"] in ("not_gguf", "truncated_file")


def test_a_cancelled_load_ends_its_requests(case: Callable[..., Case]) -> None:
    check_cancelled_load(case(piece=1 << 14))


def test_file_from_disk_is_read_in_place(case: Callable[..., Case]) -> None:
    c = case()
    got = call_python(c.page, "shards.load_file_of_this_computer", url=c.url)
    assert got["sha256"] == sha(c.file.data)
    assert got["sources"] == ["mine.gguf", "mine.gguf"]
    assert got["stats"]["requests"] == 0


def test_full_storage_stops_the_caching_and_not_the_load(
    chromium: Callable[[str | None], Browser], server: Server, bad_server: FaultyServer, model: bytes
) -> None:
    page = open_engine_page(chromium("swiftshader"), server.url)
    c = Case(page, bad_server, File(model))
    cdp = page.context.new_cdp_session(page)
    cdp.send("Storage.overrideQuotaForOrigin", {"origin": server.url.rstrip("/"), "quotaSize": 1_500_000})
    got = c.load()
    assert got["sha256"] == sha(model)
    assert "too little storage" in " ".join(got["notices"])
    cached = c.cached()
    assert 0 < sum(length for _, length in cached) < 1_500_000
    cdp.send("Storage.overrideQuotaForOrigin", {"origin": server.url.rstrip("/")})
    c.file.sent = 0
    assert c.load()["sha256"] == sha(model)
    # Until all of the first MiB is cached, it is downloaded as one piece: it may be the header.
    assert c.file.sent <= len(model) - sum(length for offset, length in cached if offset == 0 or offset >= 1 << 20)
    page.context.close()


def test_storage_without_any_space_is_told(
    chromium: Callable[[str | None], Browser], server: Server, bad_server: FaultyServer, model: bytes
) -> None:
    page = open_engine_page(chromium("swiftshader"), server.url)
    c = Case(page, bad_server, File(model))
    cdp = page.context.new_cdp_session(page)
    cdp.send("Storage.overrideQuotaForOrigin", {"origin": server.url.rstrip("/"), "quotaSize": 1})
    got = c.load()
    assert got["sha256"] == sha(model)
    assert "too little storage" in " ".join(got["notices"])
    assert c.cached() == []
    page.context.close()


def test_a_load_that_has_ended_leaves_nothing_to_store(case: Callable[..., Case]) -> None:
    """A small model is cached when it is ready; one that is removed stays removed."""
    c = case()
    first = call_python(c.page, "shards.load", url=c.url, wait=False)
    assert c.page.evaluate("(url) => wispShards.unstoredBytes(url)", c.url) == 0
    assert len(c.cached()) == first["records"]
    c.page.evaluate("(url) => wispShards.deleteModel(url)", c.url)
    assert c.cached() == []


def test_the_prompt_cache_makes_space_before_models_do(
    chromium: Callable[[str | None], Browser], server: Server, bad_server: FaultyServer, model: bytes
) -> None:
    page = open_engine_page(chromium("swiftshader"), server.url)
    first, second = (Case(page, bad_server, File(model)) for _ in range(2))
    first.load()
    page.evaluate("wispShards.putPrefix('layout', 'key', { depth: 0, prompted: 64, groups: 1 }, new ArrayBuffer(1000))")
    assert page.evaluate("wispShards.prefixUsage()")["bytes"] == 1000
    page.evaluate(FULL_UNTIL_FREED, ["records"])
    got = second.load()
    assert (got["sha256"], got["notices"]) == (sha(model), [])
    for c in (first, second):
        assert sum(length for _, length in c.cached()) == len(model)
    assert page.evaluate("wispShards.prefixUsage()")["blocks"] == 0
    page.context.close()


def test_least_recently_used_models_are_evicted(
    chromium: Callable[[str | None], Browser], server: Server, bad_server: FaultyServer, model: bytes
) -> None:
    """Once a write has failed: the least recently used model, never a pinned one; none if that would not suffice."""
    page = open_engine_page(chromium("swiftshader"), server.url)
    cdp = page.context.new_cdp_session(page)
    pinned, old, newer, new, last = (Case(page, bad_server, File(model)) for _ in range(5))
    urls = [c.url for c in (pinned, old, newer, new, last)]

    size = int(3.3 * len(model))
    cdp.send("Storage.overrideQuotaForOrigin", {"origin": server.url.rstrip("/"), "quotaSize": size})

    def cached() -> list[str]:
        return [m["url"] for m in call_python(page, "shards.cached", urls=urls) if m["bytes"]]

    for c in (pinned, newer, old):
        assert c.load()["sha256"]
    page.evaluate("(url) => wispShards.putPinned(url, true)", pinned.url)
    newer.load()  # used once more
    assert cached() == [newer.url, old.url, pinned.url]
    all_of_it = call_python(page, "shards.cached", urls=urls)[0]
    assert all_of_it["bytes"] == all_of_it["size"] == len(model)
    assert all_of_it["complete"]
    got = new.load()
    assert got["sha256"]
    assert "was removed from this browser's storage" in " ".join(got["notices"])
    assert cached() == [new.url, newer.url, pinned.url]
    for c in (new, newer):
        page.evaluate("(url) => wispShards.putPinned(url, true)", c.url)
    got = last.load()
    assert got["sha256"], "it runs without being kept"
    assert "too little storage" in " ".join(got["notices"])
    assert {new.url, newer.url, pinned.url} < set(cached()), "and what could be stored is kept"
    page.context.close()
