"""Shows answers in a page without an engine."""

from typing import Any

from playwright.sync_api import BrowserContext, FrameLocator, Page

from tests.support.openai_client import bundle
from tools.paths import ROOT

OPEN = """async (script) => {
  globalThis.answers = await import(script);
  await answers.open();
  await Promise.all([answers.loadMath(), answers.loadLanguage("python")]);
}"""
SHOW = """([text, growing]) => {
  document.querySelector("#answer")?.remove();
  const list = document.createElement("ol");
  list.id = "answer";
  list.innerHTML = '<li class="message assistant"><div class="body"></div></li>';
  document.body.prepend(list);
  globalThis.shown = new answers.Markdown(list.querySelector(".body"));
  shown.render(text, growing);
}"""


def open_answers(context: BrowserContext, server: str) -> Page:
    """A page that shows answers, without an engine. `server`: the address of the tests' server."""
    page = context.new_page()
    page.goto(f"{server}tests/blank.html")
    page.evaluate(OPEN, bundle("answers", ROOT / "tests" / "support" / "answer_page.js"))
    return page


def preview(page: Page, language: str, code: str) -> FrameLocator:
    """Show code in an answer and press its Preview button."""
    body = show(page, f"```{language}\n{code}\n```")
    body.get_by_role("button", name="Preview").click()
    return page.frame_locator(".artifact-frame").frame_locator("iframe")


def show(page: Page, text: str, *, growing: bool = False) -> Any:
    """Render an answer."""
    page.evaluate(SHOW, [text, growing])
    return page.locator("#answer .body")
