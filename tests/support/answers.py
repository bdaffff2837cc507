"""Shows answers in a page without an engine."""

from typing import Any

from playwright.sync_api import Page

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


def show(page: Page, text: str, *, growing: bool = False) -> Any:
    """Render an answer."""
    page.evaluate(SHOW, [text, growing])
    return page.locator("#answer .body")
