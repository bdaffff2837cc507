"""Runs the bench's pages in a headless browser: bench.html from dist/, peer.html from a server of its own."""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from tools import dist
from tools.browser import launch_options
from tools.catalog import MODELS, entries
from tools.failure import Failure
from tools.headers import HEADERS
from tools.paths import DIST, NODE_MODULES, ROOT
from tools.serve import MIME, Server

PEER = NODE_MODULES / "@wllama" / "wllama" / "esm"
PEER_BACKENDS = ("wasm", "wasm threads", "webgpu")
CPU_BACKENDS = ("wasm", "wasm threads")
PEER_CSP = "default-src 'self' blob: data: 'unsafe-inline' 'unsafe-eval'; connect-src * blob:"  # its worker is a blob
READY_MS = 120_000
INSTANT = Path(__file__).with_name("instant.js")
DEFAULT = MODELS / "wisp-mini-q4_0.gguf"
# Options of load() with which a software GPU gets the kernels of a real one, which need no results.
AS_ON_GPU = {"variant": {"software": False}, "tune": False, "prove": False}

RUN = """async () => {
  try {
    return { result: await wispBench((row) => wispRow(row)) };
  } catch (error) {
    return { error: error.message };
  }
}"""
RUN_PEER = """async (options) => {
  try {
    return { result: await measurePeer(options, (what, value) => wispRow({ what, value, unit: "" })) };
  } catch (error) {
    return { error: String(error?.message ?? error) };
  }
}"""


@contextmanager
def launched(playwright: Playwright, adapter: str | None) -> Iterator[Browser]:
    """A browser with one of the tests' software GPUs, or with the machine's GPU (`adapter` None)."""
    if adapter:
        from tests.support import browser as tests_browser

        browser = tests_browser.launch(playwright, adapter)
    else:
        browser = playwright.chromium.launch(**launch_options())
    try:
        yield browser
    finally:
        browser.close()


def add_common(parser: argparse.ArgumentParser, *, runs: int, context_length: int) -> None:
    """The options that all measurements of one model by evaluated() have."""
    parser.add_argument("--model", type=Path, default=DEFAULT, help="a .gguf file (default: Wisp Mini)")
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--backend", choices=["auto", "webgpu", "cpu"], default="auto")
    parser.add_argument(
        "--adapter", choices=["swiftshader", "lavapipe"], help="a software GPU (default: the machine's)"
    )
    parser.add_argument("--context-length", type=int, default=context_length)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")


def write_figures(found: dict[str, Any], file: Path | None) -> None:
    """Write figures as JSON where a file was asked for (--json)."""
    if file is not None:
        file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def evaluated(
    script: str, model: Path, asked: dict[str, Any], adapter: str | None, mounts: dict[str, Path] | None = None,
    in_worker: str = "",
) -> dict[str, Any]:  # fmt: skip
    """What a function of JavaScript returns in a page of a new copy of dist/, for `asked` and the model's address.

    `mounts`: further folders by the beginning of their addresses, which the page has as well. `in_worker`: JavaScript
    that the engine's worker runs before its own.
    """
    folders = {"model/": model.resolve().parent, **(mounts or {})}
    server = Server(dist.made(), 0, mounts=folders).start()
    try:
        with sync_playwright() as playwright, launched(playwright, adapter) as browser:
            page = browser.new_page()
            page.set_default_timeout(READY_MS)
            if in_worker:
                run_before_worker(page, DIST, in_worker)
            page.goto(f"{server.url}notices.html")
            found: dict[str, Any] = page.evaluate(script, {"model": f"{server.url}model/{model.name}", **asked})
            return found
    finally:
        server.shutdown()


def run_before_worker(page: Page, build: Path, script: str, prefix: str = "") -> None:
    """Have the engine's worker of a build run JavaScript before its own. `prefix`: where the server has the build."""
    (worker,) = build.glob("assets/worker-*.js")
    body, headers = script + worker.read_text(encoding="utf-8"), {**HEADERS, "Content-Type": MIME[".js"]}
    page.route(f"**/{prefix}assets/{worker.name}", lambda route: route.fulfill(body=body, headers=headers))


def instant(wanted: bool) -> str:
    """What run_before_worker() needs so that the GPU does nothing, if that is wanted: to measure the host."""
    return INSTANT.read_text(encoding="utf-8") if wanted else ""


@contextmanager
def _page(browser: Browser, server: Server, path: str) -> Iterator[Page]:
    page = browser.new_context().new_page()
    page.set_default_timeout(READY_MS)
    page.expose_function("wispRow", _report)
    server.start()
    try:
        page.goto(server.url + path)
        yield page
    finally:
        page.context.close()
        server.shutdown()
        server.server_close()


def _report(row: dict[str, Any]) -> None:
    """Print progress to stderr. The tables go to stdout at the end."""
    print(f"  {row['what']}: {row['value']:.4g} {row['unit']}".rstrip(), file=sys.stderr, flush=True)


def _file(model: str | None) -> Path | None:
    path = Path(model) if model else None
    if path and path.is_file():
        return path
    if model and model.endswith(".gguf") and "://" not in model:
        raise Failure(f"There is no file {model}")
    return None


def measure(browser: Browser, options: argparse.Namespace) -> dict[str, Any]:
    """Run bench.html and return its result."""
    file = _file(options.model)
    query = {
        "model": "@file" if file else options.model or "",
        "backend": options.backend,
        "runs": options.runs,
        "prompts": ",".join(map(str, options.prompts)),
        "contexts": ",".join(map(str, options.contexts)),
        "tokens": options.tokens,
        "contextLength": options.context_length or "",
        "threads": options.threads or "",
    }
    with _page(browser, Server(DIST, 0), f"bench.html?{urlencode(query)}") as page:
        if file:
            page.set_input_files("input[name=file]", str(file))
        print("Wisp", file=sys.stderr, flush=True)
        answer = page.evaluate(RUN)
    if "error" in answer:
        raise Failure(answer["error"])
    result: dict[str, Any] = answer["result"]
    return result


def measure_peers(browser: Browser, options: argparse.Namespace, n_ctx: int) -> list[dict[str, Any]]:
    """Measure wllama on the same file. A backend that does not start gives an error."""
    file, address = _peer_model(options.model)
    found: list[dict[str, Any]] = []
    for backend in CPU_BACKENDS if options.backend == "cpu" else PEER_BACKENDS:
        request = {
            "backend": backend,
            "file": address,
            "prompts": options.prompts,
            "contexts": options.contexts,
            "tokens": options.tokens,
            "runs": options.runs,
            "n_ctx": n_ctx,
        }
        print(f"wllama, {backend}", file=sys.stderr, flush=True)
        answer = _measure_peer(browser, file, request)
        if "error" in answer:  # with threads, wllama sometimes misparses its worker's answer
            answer = _measure_peer(browser, file, request)
        found.append(answer["result"] if "result" in answer else {"backend": backend, "error": answer["error"]})
    return found


def _measure_peer(browser: Browser, file: Path | None, request: dict[str, Any]) -> dict[str, Any]:
    mounts = {"wllama/": PEER, "models/": MODELS}
    server = Server(ROOT / "bench", 0, headers={"Content-Security-Policy": PEER_CSP}, mounts=mounts)
    with _page(browser, server, "peer.html") as page:
        if file:
            page.set_input_files("#file", str(file))
        answer: dict[str, Any] = page.evaluate(RUN_PEER, request)
        return answer


def _peer_model(model: str | None) -> tuple[Path | None, str | None]:
    """The model that Wisp measured: (file, None) or (None, address)."""
    file = _file(model)
    if file or (model and "://" in model):
        return file, None if file else model
    known = {entry["id"]: entry for entry in entries()}
    default = next((entry for entry in known.values() if entry.get("default")), None)
    chosen = known.get(model) if model else default
    if chosen is None or not (MODELS / chosen["file"]).exists():
        raise Failure(f"The peer cannot read {json.dumps(model)}. Give a file or an address with --model.")
    return None, f"models/{quote(chosen['file'])}"
