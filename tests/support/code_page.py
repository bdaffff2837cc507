"""A page with the code tools, without an engine."""

from typing import Any

from playwright.sync_api import Browser, Page

from tests.support.browser import new_profile
from tests.support.openai_client import bundle
from tools.paths import ROOT
from tools.serve import Server

OPEN = """async (script) => {
  globalThis.code = await import(script);
  await code.open();
  globalThis.source = code.codeTools({ seconds: 300 }); // even a busy machine imports pandas within
  globalThis.run = async (name, text, { tools } = source) => {
    const tool = tools.find((each) => each.name === name);
    const { signal } = (globalThis.stopping = new AbortController());
    const { text: said, failed, files } = await tool.run({ code: text }, { signal, chat: "one" });
    const data = async ({ name, blob }) => [name, blob.type, [...new Uint8Array(await blob.arrayBuffer())]];
    const frames = document.querySelectorAll("iframe").length;
    return { said, failed, files: await Promise.all(files.map(data)), frames };
  };
}"""


def open_code_page(browser: Browser, server: Server) -> Page:
    """A page in a profile of its own, with `code`, `source` and `run`."""
    page = new_profile(browser).new_page()
    page.goto(f"{server.url}tests/blank.html")
    page.evaluate(OPEN, bundle("code", ROOT / "tests" / "support" / "code_page.js"))
    return page


def python(page: Page, code: str) -> dict[str, Any]:
    """What Python code of the chat \"one\" results in."""
    found: dict[str, Any] = page.evaluate("(text) => run('python', text)", code)
    return found


def prepare(page: Page) -> None:
    """Have the service worker store the tools' files."""
    page.evaluate("""async () => {
      await navigator.serviceWorker.register("/sw.js");
      await navigator.serviceWorker.ready;
      while (!navigator.serviceWorker.controller) await new Promise((resolve) => setTimeout(resolve, 20));
      await source.prepare();
      source.end();
    }""")
