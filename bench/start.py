"""Measures the start without a GPU, from navigation to the first token of Wisp Mini, which the browser has.

.venv/bin/python -m bench.start [--runs 9] [--json FILE]

The measure is Pyodide's own start: a page whose worker calls loadPyodide() with the same files, and nothing else. Both
pages start in turn, each in a profile of its own. A first visit has nothing of the page cached, a later one has all.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, sync_playwright

from bench.headless import write_figures
from tests.support.browser import launch
from tools.paths import DIST, ROOT
from tools.serve import Server

PAUSE_S = 1.5  # for the shared worker of the last visit to end
# Asks a question as soon as the page takes one, and notes when the model is ready and when the answer begins.
ASK = """
globalThis.times = {};
localStorage.removeItem("wisp.chat"); // else the last visit's chat is shown
const look = () => {
  times.page ??= document.querySelector("#examples button") && performance.now();
  if (times.page && !times.asked) {
    times.asked = performance.now();
    document.querySelector("#examples button").click();
  }
  if (document.querySelector("#model-dot.ready")) times.ready ??= performance.now();
  const answer = document.querySelector("#thread .message.assistant .body");
  if (answer?.textContent.trim()) times.first ??= performance.now();
};
new MutationObserver(look).observe(document, { childList: true, subtree: true, attributes: true, characterData: true });
"""
WAIT = """async () => {
  while (!times.first || !times.ready) await new Promise((done) => setTimeout(done, 20));
  return times;
}"""
WAIT_BARE = """async () => {
  while (!globalThis.startedMs) await new Promise((done) => setTimeout(done, 20));
  return { first: startedMs };
}"""


# Leaves the model, and nothing else of the last visit.
FORGET = """async () => {
  for (const registration of await navigator.serviceWorker.getRegistrations()) await registration.unregister();
  for (const name of await caches.keys()) await caches.delete(name);
}"""
NAMES = {"page": "page shown", "ready": "model ready", "first": "first token"}


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(arguments)
    server = Server(DIST, 0, mounts={"bare/": ROOT / "bench" / "bare"}).start()
    pyodide = next(DIST.glob("assets/pyodide-*")).relative_to(DIST).as_posix()
    bare_url = f"{server.url}bare/?/{pyodide}/"
    found: dict[str, list[dict[str, float]]] = {}
    with sync_playwright() as playwright:
        browser = launch(playwright, "cpu")
        wisp, bare = browser.new_context(), browser.new_context()
        _visit(wisp, server.url, ASK, WAIT, stay=True)
        _visit(bare, bare_url, "", WAIT_BARE)
        for _ in range(options.runs):
            for visit in ("later", "first"):  # a first visit leaves what a later one needs
                if visit == "first":
                    _forget(wisp, server.url)
                    _forget(bare, server.url)
                times = _visit(wisp, server.url, ASK, WAIT, stay=visit == "first")
                alone = _visit(bare, bare_url, "", WAIT_BARE)
                found.setdefault(visit, []).append(times | {"pyodide": alone["first"]})
        browser.close()
    server.shutdown()
    for visit, runs in found.items():
        medians = {name: statistics.median(times[name] for times in runs) for name in runs[0]}
        own = medians["pyodide"]
        figures = [f"{what} {medians[name]:.0f} ms ({medians[name] / own:.2f})" for name, what in NAMES.items()]
        print(f"{visit} visit: {', '.join(figures)}; Pyodide alone {own:.0f} ms (1)")
    write_figures(found, options.json)
    return 0


def _visit(context: BrowserContext, url: str, script: str, wait: str, *, stay: bool = False) -> dict[str, float]:
    """Times of one visit. `stay`: until the service worker has stored the page."""
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.add_init_script(script)
    page.goto(url)
    times: dict[str, Any] = page.evaluate(wait)
    if stay:
        page.evaluate("async () => void (await navigator.serviceWorker.ready)")
    page.close()
    time.sleep(PAUSE_S)
    return times


def _forget(context: BrowserContext, url: str) -> None:
    """Clear the caches of a page."""
    page = context.new_page()
    page.goto(f"{url}notices.html")
    page.evaluate(FORGET)
    context.new_cdp_session(page).send("Network.clearBrowserCache")
    page.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
