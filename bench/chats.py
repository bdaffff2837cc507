"""Measures the page with many stored chats: its start, and the search over all messages.

.venv/bin/python -m bench.chats [--chats 10000] [--messages 10] [--words 40] [--runs 5]
"""

import argparse
import statistics
import sys

from playwright.sync_api import BrowserContext, Page, sync_playwright

from bench.headless import launched
from tools.paths import DIST
from tools.serve import Server

IDLE_MS = 2000  # between the model and the first search of a visit: the page reads the index when it is idle
# Records when the page first shows a chat or the welcome, and when it first shows the list.
TIMES = """
globalThis.times = {};
new MutationObserver(() => {
  const shown = document.querySelector("#welcome:not([hidden]), #thread:not([hidden]) > li");
  if (shown) times.shown ??= performance.now();
  const listed = document.querySelector("#chat-rows > .chat") || !localStorage["many"];
  if (shown && listed) times.list ??= performance.now();
}).observe(document, { childList: true, subtree: true, attributes: true });
"""
WAIT = "async () => { while (!times.list) await new Promise((done) => setTimeout(done, 20)); return times; }"
# Words by Zipf's law, as in a language: few are frequent, most are rare.
FILL = """async ([chats, messages, words]) => {
  let state = 1;
  const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
  const letters = "etaoinshrdlucmfwypvbgkjqxz";
  const word = (n) => (n < 26 ? letters[n] : word(Math.floor(n / 26)) + letters[n % 26]);
  const text = () => Array.from({ length: words }, () => word(Math.floor(30_000 ** random()) + 700)).join(" ");
  const opening = indexedDB.open("wisp-page");
  const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
  for (let from = 0; from < chats; from += 500) {
    const writing = db.transaction(["chats", "messages", "unindexed"], "readwrite");
    for (let c = from; c < Math.min(chats, from + 500); c++) {
      const id = `chat-${c}`;
      const at = Date.now() - c * 3_600_000;
      const info = { id, title: text().slice(0, 40), created: at, updated: at, shown: messages - 1 };
      writing.objectStore("chats").put(info);
      writing.objectStore("unindexed").put({ id, mark: "filled" });
      for (let n = 0; n < messages; n++) {
        const role = n % 2 ? "assistant" : "user";
        const message = { chat: id, n, parent: n ? n - 1 : null, role, content: text(), finish: "stop" };
        writing.objectStore("messages").put(message);
      }
    }
    await new Promise((resolve) => (writing.oncomplete = resolve));
  }
  db.close();
  localStorage["many"] = "yes";
  localStorage["wisp.chat"] = "chat-0";
}"""
# Types a text as a user does, all at once; resolves to the time until the list shows what was found.
SEARCH = """async (text) => {
  const field = document.getElementById("chat-search");
  const status = document.getElementById("chat-found");
  status.textContent = "";
  field.value = text;
  const started = performance.now();
  field.dispatchEvent(new Event("input"));
  while (!/chats?$|words\\.$/.test(status.textContent)) await new Promise((resolve) => setTimeout(resolve));
  return performance.now() - started;
}"""
QUERIES = ("a", "en", "sht", "ein no", "toe si", "zzzz", "hoe")


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.chats", description=__doc__)
    parser.add_argument("--chats", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=10, help="of each chat")
    parser.add_argument("--words", type=int, default=40, help="of each message")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(arguments)
    server = Server(DIST, 0).start()
    with sync_playwright() as playwright, launched(playwright, None) as browser:
        none = _starts(browser.new_context(), server.url, options.runs)
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(300_000)
        page.goto(server.url)
        page.wait_for_selector("#welcome:not([hidden])")
        page.evaluate(FILL, [options.chats, options.messages, options.words])
        page.close()
        many = _starts(context, server.url, options.runs)
        print(f"{options.chats} chats, {options.chats * options.messages} messages of {options.words} words")
        for what in ("shown", "list"):
            print(f"start until {what}: {none[what]:.0f} ms with no chats, {many[what]:.0f} ms with all")
        _searches(context, server.url, options.runs)
    server.shutdown()
    return 0


def _starts(context: BrowserContext, url: str, runs: int) -> dict[str, float]:
    """Median times of the page's start."""
    seen: list[dict[str, float]] = []
    for run in range(runs + 1):  # the first one fills caches
        page = _open(context, url)
        found = page.evaluate(
            "async () => { while (!times.list) await new Promise((r) => setTimeout(r, 20)); return times }"
        )
        if run:
            seen.append(found)
        page.close()
    return {name: statistics.median(times[name] for times in seen) for name in ("shown", "list")}


def _searches(context: BrowserContext, url: str, runs: int) -> None:
    page = _open(context, url)
    page.wait_for_selector("#model-dot.ready")
    print(f"first search, with the index made: {page.evaluate(SEARCH, 'toe'):.0f} ms")
    page.close()
    page = _open(context, url)
    page.wait_for_selector("#model-dot.ready")
    page.wait_for_timeout(IDLE_MS)
    print(f"first search of a visit: {page.evaluate(SEARCH, 'toe'):.0f} ms")
    for query in QUERIES:
        times = [page.evaluate(SEARCH, query) for _ in range(runs)]
        found = page.inner_text("#chat-found")
        print(f"search for {query!r}: {statistics.median(times):.0f} ms, at most {max(times):.0f} ms ({found})")


def _open(context: BrowserContext, url: str) -> Page:
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.add_init_script(TIMES)
    page.goto(url)
    return page


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
