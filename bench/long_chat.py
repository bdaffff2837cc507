"""Measures a question in a chat of thousands of messages: from Enter until the answer's first token is shown.

.venv/bin/python -m bench.long_chat [--messages 5000] [--context-length 2048] [--runs 3] [--dist FOLDER ...]
"""

import argparse
import random
import statistics
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from bench.headless import launched
from tests.support.chat_page import keep_engine, new_chat, open_page, wait_answer, wait_ready
from tests.support.chat_store import chat, store_chats
from tools.paths import DIST
from tools.serve import Server

COMMON = (
    "the of and to in is that it was for on are with as his they at be this have from or one had by word but not what"
)
WORDS = COMMON.split()
ANSWER = (
    "{n}. **{title}** holds for $x^{n}$:\n\n{text}\n\n```python\nprint({n})\n```\n\n| a | b |\n|---|---|\n| 1 | {n} |\n"
)
QUESTIONS = ("What is the capital of Italy?", "And of France?")
ASK = """async (text) => {
  const last = () => [...document.querySelectorAll("#thread > .message")].at(-1);
  const before = last();
  const field = document.getElementById("prompt");
  field.value = text;
  field.dispatchEvent(new Event("input"));
  const started = performance.now();
  field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
  while (last() === before || !last().querySelector(".body")?.textContent.trim()) {
    const error = last()?.querySelector(".answer-error");
    if (error && last() !== before) throw new Error(error.textContent);
    await new Promise((done) => setTimeout(done, 2));
  }
  return performance.now() - started;
}"""


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.long_chat", description=__doc__)
    parser.add_argument("--messages", type=int, default=5000, help="of the long chat")
    parser.add_argument("--context-length", type=int, default=2048)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--idle", type=float, default=0, help="seconds from when the chat is shown until the question")
    parser.add_argument("--dist", type=Path, nargs="+", default=[DIST], help="pages that are measured by turns")
    options = parser.parse_args(arguments)
    seen: dict[Path, list[dict[str, float]]] = {folder: [] for folder in options.dist}
    with sync_playwright() as playwright:
        for run in range(options.runs):
            for folder, figures in seen.items():
                server = Server(folder, 0).start()
                with launched(playwright, None) as browser:
                    figures.append(_run(browser, server.url, run, options))
                print(run, folder, {what: round(ms) for what, ms in figures[-1].items()}, file=sys.stderr, flush=True)
                server.shutdown()
                server.server_close()
    for folder, figures in seen.items():
        print(f"{folder}: ms from Enter until the first token, medians of {options.runs}")
        for what in figures[0]:
            print(f"  {what}: {statistics.median(times[what] for times in figures):.0f}")
    return 0


def _run(browser: Browser, url: str, run: int, options: argparse.Namespace) -> dict[str, float]:
    """Ask in a new profile: in a new chat, then twice in a long one."""
    context = browser.new_context()
    keep_engine(context, url)
    page = open_page(context, url, settings={"context_length": options.context_length, "max_tokens": 8})
    page.set_default_timeout(300_000)
    _ask(page, "Hello!")  # what only the first request of a visit takes
    new_chat(page)
    found = {"new chat": _ask(page, QUESTIONS[0])}
    words = random.Random(run)
    store_chats(page, [chat([_turn(words, n) for n in range(options.messages // 2)])])
    page.reload()
    wait_ready(page)
    shown = page.locator("#thread > .message").last
    expect(shown).to_have_attribute("aria-posinset", str(options.messages // 2 * 2), timeout=90_000)
    page.wait_for_timeout(1000 * options.idle)
    return found | {f"long chat, question {n}": _ask(page, text) for n, text in enumerate(QUESTIONS, 1)}


def _ask(page: Page, question: str) -> float:
    ms: float = page.evaluate(ASK, question)
    wait_answer(page)
    return ms


def _turn(words: random.Random, n: int) -> tuple[str, str]:
    title, question, text = (" ".join(words.choices(WORDS, k=k)) for k in (3, 15, 60))
    return f"{question}?", ANSWER.format(n=n, title=title, text=text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
