"""Upload of weights from the browser's storage to the GPU. The weights must arrive exactly, also if records are
damaged, lost or of an earlier version, or if the load ends early.
"""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support.browser import call_python
from tests.support.faulty_server import FaultyServer, File
from tests.support.waiting import wait_for

GOLDEN = Path(__file__).parents[1] / "golden" / "llama"
MODEL = Path(__file__).parents[2] / "static" / "models" / "wisp-mini-q4_0.gguf"
SMALL = GOLDEN / "llama.Q4_0.gguf"  # where a record is missing, such a small file is downloaded whole

DAMAGE = """async ([url, index, how]) => {
    const [offset, length] = (await wispShards.listRecords(url)).at(index);
    const db = await new Promise((resolve) => {
        const asked = indexedDB.open("wisp-models");
        asked.onsuccess = () => resolve(asked.result);
    });
    const done = (asked) => new Promise((resolve) => { asked.onsuccess = () => resolve(asked.result); });
    const store = () => db.transaction("records", "readwrite").objectStore("records");
    const entry = await done(store().get([url, offset, length]));
    const bytes = new Uint8Array(await entry.data.arrayBuffer());
    bytes[length >> 1] ^= 1;
    const { check, ...old } = entry;
    const put = { bit: { ...entry, data: new Blob([bytes]) }, short: { ...entry, data: new Blob(["x"]) },
                  old, "old and bit": { ...old, data: new Blob([bytes]) },
                  check: { ...entry, check: [check[0], check[1] ^ 1] } }[how];
    await done(put ? store().put(put, [url, offset, length]) : store().delete([url, offset, length]));
    db.close();
}"""


class Case:
    """A model on a server of its own, and the page that loads it."""

    def __init__(self, page: Page, server: FaultyServer, name: str, data: bytes) -> None:
        self.page, self.file, self.url = page, File(data), server.url(name)
        server.files[name] = self.file

    def load(self, name: str = "weights.load", **how: Any) -> dict[str, Any]:
        """Load the weights to a GPU; return the result of tests/support/page/weights.py and the bytes sent."""
        wait_for(lambda: not self.file.under_way)
        self.file.sent = 0
        size = 1 << (14 if len(self.file.data) < 1 << 20 else 18)  # of records
        return call_python(self.page, name, url=self.url, size=size, **how) | {"sent": self.file.sent}

    def damage(self, index: int, how: str) -> int:
        """Damage a record in the database; return its length."""
        length = int(self.page.evaluate("(url) => wispShards.listRecords(url)", self.url)[index][1])
        self.page.evaluate(DAMAGE, [self.url, index, how])
        return length


@pytest.fixture(scope="module")
def models() -> Iterator[FaultyServer]:
    server = FaultyServer()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def case(
    engine_page: Page, models: FaultyServer, request: pytest.FixtureRequest
) -> Callable[[], tuple[Case, dict[str, Any]]]:
    def make(data: bytes = SMALL.read_bytes()) -> tuple[Case, dict[str, Any]]:
        """A model on its own server and page, and the result of its first load."""
        name = hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
        made = Case(engine_page, models, f"{name}.gguf", data)
        return made, made.load()

    return make


Make = Callable[..., tuple[Case, dict[str, Any]]]


@pytest.mark.parametrize(
    "path", [MODEL, GOLDEN / "llama-bias.F16.gguf", GOLDEN / "llama.Q4_K_M.gguf"], ids=lambda p: p.stem
)
def test_cached_weights_equal_the_fetched_ones(case: Make, path: Path) -> None:
    c, first = case(path.read_bytes())
    assert first["sent"] == first["size"]
    again = c.load()
    assert again["weights"] == first["weights"]
    assert again["sent"] == 0
    records = again["stats"]["records"]
    assert records > 10
    assert (again["stats"]["from_cache"], again["stats"]["cached_bytes"]) == (records, first["size"])
    assert again["progress"] == sorted(again["progress"])
    assert again["progress"][-1] == first["size"]
    assert again["written"] > 0


@pytest.mark.parametrize("how", ["bit", "bit, on a CPU", "short", "gone", "old", "old and bit", "check"])
def test_damaged_records_are_healed(case: Make, how: str) -> None:
    how, software = how.removesuffix(", on a CPU"), how.endswith("CPU")
    c, first = case((MODEL if how in ("short", "gone") else SMALL).read_bytes())
    lengths = [c.damage(index, how) for index in (-12, -7, -3)]
    if how in ("old", "check"):  # their bytes are right
        lengths = []
    healed = c.load(software=software)
    assert healed["weights"] == first["weights"]
    assert healed["sent"] == sum(lengths)
    assert healed["stats"]["healed"] == (0 if how == "gone" else len(lengths))
    assert healed["stats"]["from_cache"] == healed["stats"]["records"] - len(lengths)
    after = c.load()
    assert (after["weights"], after["sent"], after["stats"]["healed"]) == (first["weights"], 0, 0)


def test_a_file_of_this_computer_arrives_whole(case: Make) -> None:
    c, first = case()
    mine = c.load("weights.load_file_of_this_computer")
    assert mine["weights"] == first["weights"]
    assert mine["progress"][-1] == mine["size"]


# Behaviour of other browsers, and faults that no browser should have.
STREAMS = {
    "without reading into given memory": """
        const { getReader } = ReadableStream.prototype;
        ReadableStream.prototype.getReader = function (how) {
            if (how?.mode === "byob") throw new TypeError("not here");
            return getReader.call(this);
        };
        globalThis.restore = () => { ReadableStream.prototype.getReader = getReader; };""",
    "that stand still": """
        const { stream } = Blob.prototype, wait = setTimeout;
        let count = 0;
        Blob.prototype.stream = function () {
            const pull = () => new Promise(() => {});
            return count++ % 3 ? stream.call(this) : new ReadableStream({ type: "bytes", pull });
        };
        globalThis.setTimeout = (f, ms, ...rest) => wait(f, ms >= 30000 ? 100 : ms, ...rest);
        globalThis.restore = () => { Blob.prototype.stream = stream; globalThis.setTimeout = wait; };""",
}


@pytest.mark.parametrize("how", STREAMS)
def test_weights_arrive_from_blobs_with_unusual_streams(case: Make, how: str) -> None:
    c, first = case()
    c.page.evaluate(f"() => {{ {STREAMS[how]} }}")
    try:
        again = c.load()
    finally:
        c.page.evaluate("restore()")
    assert (again["weights"], again["sent"]) == (first["weights"], 0)
    assert again["stats"]["from_cache"] == again["stats"]["records"]


def test_cached_and_missing_records_mix(case: Make) -> None:
    c, first = case(MODEL.read_bytes())
    missing = sum(c.damage(index, "gone") for index in (-3, -7, -12))
    early = c.load(early=True)
    assert (early["weights"], early["sent"]) == (first["weights"], missing)
    assert early["stats"]["cached_bytes"] == first["size"] - missing


def test_a_load_that_ends_early_leaves_nothing_behind(case: Make) -> None:
    c, first = case()
    cancelled = c.load(interruption="cancel")
    assert cancelled["error"] == "cancelled"
    lost = c.load(interruption="lose the device")
    assert lost["error"] == "device_lost"
    assert c.load()["weights"] == first["weights"]
