"""A model of 340 MB is loaded from the network to the GPU without filling the WASM heap or JavaScript's heap."""

from pathlib import Path

import pytest
from playwright.sync_api import Playwright

from bench.make_model import write
from bench.shapes import SHAPES
from py_engine.files.records import MAX_RECORD
from tests.support import browser as browsers
from tools.paths import ROOT
from tools.serve import Server

MAX_WASM = 32 << 20  # no weights
MAX_PEAK = 14 * MAX_RECORD  # nine records of a download, Python's heap, and garbage of a busy machine

LOAD = """async (model) => {
  const { Wisp } = await import("/wisp.js");
  const bytes = async () => (await performance.measureUserAgentSpecificMemory()).bytes;
  const engine = await Wisp.create({ shared: false }); // the browser tells a page's memory, not a shared worker's
  await engine.load({ vocabOnly: true });
  const heap = (await engine.stats()).memory.wasm_heap;
  const before = await bytes();
  let peak = before, loading = true;
  const watching = (async () => { while (loading) peak = Math.max(peak, await bytes()); })();
  await engine.load({ model, backend: "webgpu", contextLength: 256 });
  loading = false;
  await watching;
  const stats = await engine.stats();
  await engine.unload();
  engine.terminate();
  const { memory, cache } = stats;
  return { wasm: memory.wasm_heap - heap, peak: peak - before, weights: memory.weights, cache };
}"""


@pytest.fixture(scope="module")
def large_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 0.6 billion random weights."""
    path = tmp_path_factory.mktemp("large") / "qwen3.gguf"
    write(SHAPES["qwen3-0.6b"], "Q4_0", str(path), "random weights")
    return path


def test_heaps_stay_small(playwright_run: Playwright, dist: Path, large_model: Path) -> None:
    mounts = {"tests/": ROOT / "tests" / "support" / "pages", "large/": large_model.parent}
    server = Server(dist, 0, mounts=mounts).start()
    flags = ("--enable-blink-features=ForceEagerMeasureMemory",)
    browser = browsers.launch(playwright_run, "lavapipe", extra_flags=flags)
    try:
        page = browser.new_page()
        page.set_default_timeout(300_000)
        page.goto(f"{server.url}tests/blank.html")
        workers: list[str] = []
        page.on("worker", lambda worker: workers.append(worker.url.rsplit("/", 1)[-1]))
        got = page.evaluate(LOAD, f"{server.url}large/{large_model.name}")
    finally:
        browser.close()
        server.shutdown()
        server.server_close()
    print(f"WASM heap grew by {got['wasm'] / 2**20:.1f} MiB, peak {got['peak'] / 2**20:.1f} MiB more")
    assert any(name.startswith("downloads-") for name in workers), workers
    assert large_model.stat().st_size > 1.4 * MAX_PEAK
    assert got["weights"] > 300e6
    assert got["cache"]["downloaded_bytes"] >= large_model.stat().st_size
    assert got["wasm"] < MAX_WASM
    assert got["peak"] < MAX_PEAK
