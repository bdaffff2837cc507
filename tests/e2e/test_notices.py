"""Notices above the composer: which of many stay."""

from collections.abc import Callable

from playwright.sync_api import Browser, expect

from tests.support.answers import OPEN
from tests.support.browser import new_profile
from tests.support.openai_client import bundle
from tools.paths import ROOT
from tools.serve import Server

MANY = """() => {
    const actions = [{ label: "Reload", run: () => (globalThis.reloaded = true) }];
    answers.notify({ key: "update", text: "A newer Wisp is ready.", actions });
    for (let i = 0; i < 40; i++) answers.notify({ key: `file-${i}`, text: `File ${i} cannot be read.` });
}"""
QUESTIONS = """() => {
    const actions = [{ label: "Undo", run: () => {} }];
    for (let i = 0; i < 30; i++) answers.notify({ key: `question-${i}`, text: `Question ${i}`, actions });
    answers.notify({ key: "last", text: "The last one." });
}"""


def test_the_oldest_notice_without_a_button_makes_way(
    chromium: Callable[[str | None], Browser], server: Server
) -> None:
    context = new_profile(chromium(None))
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    page.evaluate(OPEN, bundle("answers", ROOT / "tests" / "support" / "answer_page.js"))
    page.evaluate(MANY)
    notices = page.locator("#notices > .notice")
    expect(notices).to_have_count(20)
    expect(notices.last).to_contain_text("File 39")
    expect(notices.nth(1)).to_contain_text("File 21")
    notices.first.get_by_role("button", name="Reload").click()
    assert page.evaluate("reloaded")
    page.evaluate(QUESTIONS)  # none of these is dropped
    expect(notices.filter(has=page.get_by_role("button", name="Undo"))).to_have_count(30)
    expect(notices.last).to_contain_text("The last one.")
    context.close()
