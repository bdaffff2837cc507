"""A cached model whose file changed on its host."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from py_engine.files.gguf_header import parse
from py_engine.files.records import Record, plan_records
from tests.support.browser import call_python
from tests.support.faulty_server import FaultyServer, File
from tests.support.model_case import Case, sha

RECORD_BYTES = 1 << 18  # as in tests/support/page/shards.py


def plan_of(data: bytes) -> list[Record]:
    return plan_records(parse(data, len(data)), len(data), RECORD_BYTES)


def hashes_of(data: bytes) -> bytes:
    """FILE.records.json, as tools/records.py writes it, with this test's records."""
    records = {record.offset: hashlib.sha256(data[record.offset : record.end]).hexdigest() for record in plan_of(data)}
    return json.dumps(records).encode()


@pytest.fixture
def cached(engine_page: Page, bad_server: FaultyServer, model: bytes) -> Callable[..., Case]:
    """cached() -> a model that was loaded, and is pinned."""

    def make() -> Case:
        case = Case(engine_page, bad_server, File(model))
        case.load()
        case.page.evaluate("(url) => wispShards.putPinned(url, true)", case.url)
        return case

    return make


def publish(case: Case, server: FaultyServer, data: bytes, *, with_hashes: bool) -> None:
    """Change the file on the host."""
    case.file.data, case.file.etag, case.file.sent = data, '"2"', 0
    case.file.requests.clear()
    if with_hashes:
        server.files[case.url.rsplit("/", 1)[1] + ".records.json"] = File(hashes_of(data))


def changed(data: bytes, records: int) -> tuple[bytes, int]:
    """The file with some records changed, and their bytes."""
    new, size = bytearray(data), 0
    for record in plan_of(data)[3 : 3 + records]:
        new[record.offset + 8] ^= 1
        size += record.length
    return bytes(new), size


@pytest.mark.parametrize("records", [1, 3])
def test_only_the_header_and_changed_records_travel(
    cached: Callable[..., Case], bad_server: FaultyServer, model: bytes, records: int
) -> None:
    c = cached()
    new, size = changed(model, records)
    publish(c, bad_server, new, with_hashes=True)
    got = call_python(c.page, "updates.update", url=c.url)
    header = plan_of(model)[0].length
    assert got["stats"]["downloaded_bytes"] == c.file.sent == header + size
    c.file.requests.clear()
    again = c.load()
    assert (again["sha256"], c.file.requests) == (sha(new), [])
    listed = call_python(c.page, "shards.cached", urls=[c.url, c.url + "#next"])
    assert [(m["bytes"], m["pinned"]) for m in listed] == [(len(new), True)]


def test_without_hashes_all_of_it_travels_and_the_old_version_stays_until_then(
    cached: Callable[..., Case], bad_server: FaultyServer, model: bytes
) -> None:
    c = cached()
    new, _ = changed(model, 1)
    publish(c, bad_server, new, with_hashes=False)
    c.file.cut_at = 2_000_000
    assert call_python(c.page, "updates.update", url=c.url)["error"]["code"] == "network_error"
    assert c.load()["sha256"] == sha(model), "the old version"
    c.file.cut_at = None
    assert "stats" in call_python(c.page, "updates.update", url=c.url)
    assert c.load()["sha256"] == sha(new)


def test_the_host_is_asked_once_a_day(cached: Callable[..., Case], bad_server: FaultyServer, model: bytes) -> None:
    c = cached()

    def newer(**how: Any) -> bool:
        return call_python(c.page, "updates.newer", url=c.url, **how)

    c.file.requests.clear()
    assert not newer()
    assert c.file.requests == ["GET bytes=0-0"], "one byte"
    publish(c, bad_server, changed(model, 1)[0], with_hashes=False)
    assert not newer()
    assert c.file.requests == []
    assert newer(days=2)
    assert newer(days=-2), "the clock was set back"
    c.page.context.set_offline(True)
    assert not newer(days=2)
    c.page.context.set_offline(False)
