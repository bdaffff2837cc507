"""A chat that is longer than the context: it goes on, and the page says what the model does not see."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import new_profile, watch
from tests.support.chat_page import (
    ask,
    close_settings,
    draw_all,
    keep_engine,
    last_answer,
    open_page,
    wait_answer,
    wait_ready,
)
from tests.support.chat_store import store_chat
from tests.support.waiting import wait_for
from tools.serve import Server

CONTEXT = 512
SETTINGS = {"context_length": CONTEXT, "max_tokens": 2}


@pytest.fixture(scope="module")
def opened(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[tuple[Page, list[str]]]:
    """A page on the CPU with a small context, and its console errors."""
    context = new_profile(chromium(None), service_worker=False)
    keep_engine(context, server.url)
    page = open_page(context, server.url, settings=SETTINGS)
    yield page, watch(page)
    context.close()


def settings(page: Page, **fields: str) -> None:
    """Change settings as a user does."""
    page.get_by_role("button", name="Settings").click()
    names = {"max_tokens": "Longest answer", "context_length": "Context length"}
    for name, value in fields.items():
        page.get_by_label(names[name]).fill(value)
    close_settings(page)


def wait_used(page: Page, fits: Callable[[int], bool]) -> None:
    """Wait until the tokens that the gauge shows fit. The page counts them after an answer."""
    gauge = page.locator("#gauge")
    wait_for(lambda: gauge.is_visible() and fits(int(gauge.get_attribute("aria-valuenow") or 0)))


def test_a_hundred_turns_without_an_error(talk: Page) -> None:
    page = talk
    store_chat(page, [(f"Is {n} even?", "Yes.") for n in range(91)])
    page.reload()
    wait_ready(page)
    unsent = []
    for n in range(9):
        ask(page, f"Write the number {n} as a word, and the capital of Italy.")
        draw_all(page)
        unsent.append(
            page.locator("#thread > li").evaluate_all("items => items.findIndex((item) => item.matches('.not-sent'))")
        )
    expect(page.locator("#thread .answer-error")).to_have_count(0)
    expect(page.locator("#thread > .message")).to_have_count(200)
    expect(page.locator("#thread .not-sent")).to_have_text("not sent: the context is full")
    assert unsent == sorted(unsent)
    assert 2 <= len(set(unsent)) <= 4  # in blocks: most requests begin as the one before them did
    assert unsent[0] > 80
    wait_used(page, lambda tokens: CONTEXT // 2 < tokens <= CONTEXT)
    expect(page.locator("#gauge-tip")).to_contain_text("are not sent")
    page.locator("#gauge").focus()
    expect(page.locator("#gauge-tip")).to_be_visible()


def test_an_answer_that_fills_the_context_goes_on(talk: Page) -> None:
    page = talk
    store_chat(page, [("Name three colours.", "Red, green and blue.")] * 2)
    page.reload()
    wait_ready(page)
    settings(page, max_tokens="", context_length="128")
    page.evaluate(IGNORE_END)
    answer = ask(page, "Write a story.")
    for _ in range(2):  # first older turns are left out, then the answer's own beginning
        expect(last_answer(page).locator(".stats")).to_contain_text("cut off")
        wait_used(page, lambda tokens: tokens == 128)
        page.get_by_role("button", name="Continue the answer").click()
        longer = wait_answer(page)
        assert longer.startswith(answer.rstrip())
        assert len(longer) > len(answer)
        answer = longer
    expect(page.locator("#thread .answer-error")).to_have_count(0)
    expect(page.locator("#thread .not-sent")).to_have_count(1)
    settings(page, max_tokens="2", context_length=str(CONTEXT))  # what was left out is sent again
    ask(page, "And of France?")
    expect(page.locator("#thread .not-sent")).to_have_count(0)
    wait_used(page, lambda tokens: tokens > 128)


def test_a_question_that_is_too_long_says_what_to_do(talk: Page) -> None:
    page = talk
    ask(page, "What is the capital of Italy?")
    ask(page, "word " * 600)
    expect(last_answer(page).locator(".answer-error")).to_contain_text("Shorten")
    expect(last_answer(page).locator(".answer-error")).to_contain_text("512")
    ask(page, "What is the capital of Spain?")
    expect(last_answer(page).locator(".answer-error")).to_have_count(0)


# The answer goes on until the context is full.
IGNORE_END = """async () => {
    const engine = await (await import("/wisp.js")).Wisp.create();
    const create = engine.chat.completions.create;
    engine.chat.completions.create = (request, options) => create({ ...request, ignore_eos: true }, options);
}"""
