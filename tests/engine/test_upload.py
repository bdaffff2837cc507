"""Weights on their way from the browser's storage to the GPU: what arrives there, to the byte, when all is well and
when records are damaged, lost, of an earlier version, or the load ends early.
"""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser import run_python
from tests.misbehaving import File, MisbehavingServer

GOLDEN = Path(__file__).parents[1] / "golden" / "llama"
MODEL = Path(__file__).parents[2] / "static" / "models" / "wisp-mini-q4_0.gguf"

# One load of the weights alone, in small records: kernels for running them take longer to compile.
LOAD = """
import asyncio, hashlib, js
from dataclasses import replace
from functools import partial
from py_engine.gpu import adapter as adapters
from py_engine.gpu.gpu import Gpu
from py_engine.gpu.memory import obj
from py_engine import loader, planner
from py_engine.files import parts, records, shards
from py_engine.errors import WispError
from py_engine.files.gguf_header import read_header
from py_engine.gpu.runner import GpuRunner

small = partial(records.plan_records, max_bytes=size)
loader.plan_records = parts.plan_records = small

async def contents(gpu):
    digest = hashlib.sha256()
    for name in sorted(gpu.places):
        buffer, offset, size = gpu.places[name]
        if "." in name and buffer.label.startswith("weights"):
            size = -(-size // 4) * 4
            copy = gpu.device.createBuffer(obj(size=size, usage=9))
            encoder = gpu.device.createCommandEncoder()
            encoder.copyBufferToBuffer(buffer, offset, copy, 0, size)
            gpu.device.queue.submit(js.Array.of(encoder.finish()))
            await copy.mapAsync(1)
            digest.update(copy.getMappedRange().to_bytes())
            copy.destroy()
    return digest.hexdigest()

async def load(model, early=False, during=None, software=False):
    out = {"progress": []}
    source = await shards.open_source(model, lambda *_: None)
    gpu = None
    try:
        whole = parts.Parts.of(source, await read_header(source.read, source.size))
        if early:
            whole.prefetch()
            await asyncio.sleep(0.05)
        adapter = await adapters.request_adapter()
        device = replace(adapters.device_of(adapter), software=software)  # a software GPU leaves checksums to the CPU
        plan = planner.make_plan(whole.header, device, planner.PlanOptions(64, 16, "f16"))
        gpu = await Gpu.open(adapter, device, plan)
        await gpu.upload_start()
        on_progress = lambda stage, done, size: out["progress"].append(done)
        loading = loader.Loader(whole, plan, adapter, device, "webgpu", on_progress, None)
        if during:
            asyncio.get_event_loop().call_later(0, during, gpu, asyncio.current_task())
        await loading._weights({"webgpu": GpuRunner(gpu)})
        out |= {"weights": await contents(gpu), "size": source.size, "written": loading.timings["upload_write_ms"]}
    except WispError as error:
        out["error"] = error.as_dict()["error"]["code"]
    except asyncio.CancelledError:
        out["error"] = "cancelled"
    finally:
        if gpu is not None:
            gpu.close()
        source.close()
    return out | {"stats": source.stats}
"""

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

    def __init__(self, page: Page, server: MisbehavingServer, name: str, data: bytes) -> None:
        self.page, self.file, self.url = page, File(data), server.url(name)
        server.files[name] = self.file

    def load(self, code: str = "await load(url)") -> dict[str, Any]:
        """Runs Python in which `load` brings the weights to a GPU; its result, and how much the server sent for it."""
        self.file.sent = 0
        size = 1 << (14 if len(self.file.data) < 1 << 20 else 18)  # of records
        return run_python(self.page, LOAD + code, {"url": self.url, "size": size}) | {"sent": self.file.sent}

    def damage(self, index: int, how: str) -> int:
        """Damage a record in the database; gives its length."""
        length = int(self.page.evaluate("(url) => wispShards.listRecords(url)", self.url)[index][1])
        self.page.evaluate(DAMAGE, [self.url, index, how])
        return length


@pytest.fixture(scope="module")
def models() -> Iterator[MisbehavingServer]:
    server = MisbehavingServer()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def case(
    engine_page: Page, models: MisbehavingServer, request: pytest.FixtureRequest
) -> Callable[[], tuple[Case, dict[str, Any]]]:
    def make(data: bytes = MODEL.read_bytes()) -> tuple[Case, dict[str, Any]]:
        """A case, and its first load."""
        name = hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
        made = Case(engine_page, models, f"{name}.gguf", data)
        return made, made.load()

    return make


Make = Callable[..., tuple[Case, dict[str, Any]]]


@pytest.mark.parametrize(
    "path", [MODEL, GOLDEN / "llama-bias.F16.gguf", GOLDEN / "llama.Q4_K_M.gguf"], ids=lambda p: p.stem
)
def test_what_is_kept_arrives_as_what_was_fetched(case: Make, path: Path) -> None:
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
    c, first = case()
    lengths = [c.damage(index, how) for index in (-12, -7, -3)]
    if how in ("old", "check"):  # their bytes are right
        lengths = []
    healed = c.load(f"\nawait load(url, software={software})")
    assert healed["weights"] == first["weights"]
    assert healed["sent"] == sum(lengths)
    assert healed["stats"]["healed"] == (0 if how == "gone" else len(lengths))
    assert healed["stats"]["from_cache"] == healed["stats"]["records"] - len(lengths)
    after = c.load()
    assert (after["weights"], after["sent"], after["stats"]["healed"]) == (first["weights"], 0, 0)


def test_a_file_of_this_computer_arrives_whole(case: Make) -> None:
    c, first = case()
    code = "\nawait load(js.File.new(js.Array.of(await (await js.fetch(url)).arrayBuffer()), 'mine.gguf'))"
    mine = c.load(code)
    assert mine["weights"] == first["weights"]
    assert mine["progress"][-1] == mine["size"]


# What other browsers do, and what none should.
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
def test_streams(case: Make, how: str) -> None:
    c, first = case()
    c.page.evaluate(f"() => {{ {STREAMS[how]} }}")
    try:
        again = c.load()
    finally:
        c.page.evaluate("restore()")
    assert (again["weights"], again["sent"]) == (first["weights"], 0)
    assert again["stats"]["from_cache"] == again["stats"]["records"]


def test_a_part_is_kept_and_a_part_is_on_its_way(case: Make) -> None:
    c, first = case()
    missing = sum(c.damage(index, "gone") for index in (-3, -7, -12))
    early = c.load("\nawait load(url, early=True)")
    assert (early["weights"], early["sent"]) == (first["weights"], missing)
    assert early["stats"]["cached_bytes"] == first["size"] - missing


def test_a_load_that_ends_early_leaves_nothing_behind(case: Make) -> None:
    c, first = case()
    cancelled = c.load("\nawait load(url, during=lambda gpu, task: task.cancel())")
    assert cancelled["error"] == "cancelled"
    lost = c.load("\nawait load(url, during=lambda gpu, task: gpu.device.destroy())")
    assert lost["error"] == "device_lost"
    assert c.load()["weights"] == first["weights"]
