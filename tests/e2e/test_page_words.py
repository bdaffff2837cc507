"""The token explorer on the real page: probabilities, alternatives, branches."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.browser import new_profile, watch
from tests.support.chat_page import ask, last_answer, open_page, wait_answer
from tests.support.page_looks import faults
from tools.serve import Server


@pytest.fixture(scope="module")
def opened(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[tuple[Page, list[str]]]:
    context = new_profile(chromium(None), service_worker=False)
    page = open_page(context, server.url, settings={"max_tokens": 24})
    page.click("#settings-button")
    page.get_by_role("checkbox", name="Explore words").check()
    page.get_by_role("button", name="Done").click()
    yield page, watch(page)
    context.close()


@pytest.fixture
def page(opened: tuple[Page, list[str]]) -> Iterator[Page]:
    page, errors = opened
    errors.clear()
    yield page
    assert not errors


def words_of(page: Page) -> Locator:
    """Show the words of the newest answer."""
    answer = last_answer(page)
    answer.hover()
    answer.get_by_role("button", name="Words and their probabilities").click()
    return answer.locator(".word")


def test_words_have_probabilities_and_a_branch_goes_on_from_another_word(page: Page) -> None:
    ask(page, "Write a short story about a dragon named Ember who finds a silver key.")
    words = words_of(page)
    texts = words.all_inner_texts()
    expect(last_answer(page).locator(".body")).to_be_hidden()
    words.nth(5).hover()
    panel = page.locator(".word-panel")
    expect(panel).to_be_visible()
    shares = [
        float(text.removesuffix("%").removeprefix("<")) for text in panel.locator("span:last-child").all_inner_texts()
    ]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 100.5
    expect(panel.locator("button:disabled")).to_have_text(
        texts[5] + str(panel.locator("button:disabled span").last.inner_text())
    )
    assert faults(page) == []
    other = panel.locator("button:enabled .word-text").first.inner_text()
    panel.locator("button:enabled").first.click()
    wait_answer(page)
    branched = words_of(page).all_inner_texts()
    assert branched[:5] == texts[:5]
    assert branched[5].strip("↵\n") == other.strip("↵")
    assert page.locator("#thread > li").count() == 2
    page.get_by_role("button", name="Previous version of the answer").click()
    assert words_of(page).all_inner_texts() == texts


def test_words_work_by_keyboard(page: Page) -> None:
    words = last_answer(page).locator(".word")
    words.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(words.nth(2)).to_be_focused()
    panel = page.locator(".word-panel")
    expect(panel).to_be_visible()
    page.keyboard.press("Enter")
    expect(panel.locator("button:enabled").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(words.nth(2)).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(words.first).to_have_attribute("tabindex", "-1")


def test_a_branch_reuses_what_was_computed(page: Page) -> None:
    ask(page, "Write a short story about a fox.")
    words_of(page).nth(9).click()
    page.locator(".word-panel button:enabled").last.click()
    wait_answer(page)
    last = page.evaluate("async () => (await (await (await import('/wisp.js')).Wisp.create()).stats()).last")
    assert last["cached_tokens"] == last["prompt_tokens"] + 9  # all but the chosen word


def test_without_the_mode_no_words_are_asked_for(page: Page) -> None:
    page.click("#settings-button")
    page.get_by_role("checkbox", name="Explore words").uncheck()
    page.get_by_role("button", name="Done").click()
    ask(page, "What is the capital of Italy?")
    assert last_answer(page).get_by_role("button", name="Words and their probabilities").count() == 0
