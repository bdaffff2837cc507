"""One question to two models: their answers side by side, the pick, and what stays of both."""

from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.support.browser import watch
from tests.support.chat_page import ask, last_answer, new_chat, open_page, send, wait_ready
from tests.support.page_looks import faults
from tests.support.waiting import wait_for
from tools.serve import Server

ITALY = "What is the capital of Italy?"
TIGHT = """async () => {
  const engine = await (await import("/wisp.js")).Wisp.create();
  const { models } = await engine.stats();
  const most = Math.max(...models.map(({ bytes }) => bytes));
  await (await import("/wisp.js")).Wisp.create({ memoryBudget: Math.round(1.5 * most) });
  await engine.unload("wisp-mini-q8_0"); // loaded again by the next request
}"""
UNLOAD = "async () => (await (await import('/wisp.js')).Wisp.create()).unload('wisp-mini-sees-q4_0')"
LOADED = """async () => {
  const { models } = await (await (await import("/wisp.js")).Wisp.create()).stats();
  return models.filter(({ bytes }) => bytes).map(({ id }) => id).sort();
}"""


@pytest.fixture(scope="module")
def opened(context: BrowserContext, server: Server) -> Iterator[Page]:
    """A page; a test fails if it logged an error."""
    page = open_page(context, server.url)
    errors = watch(page)
    yield page
    assert not errors


@pytest.fixture
def page(opened: Page) -> Page:
    """The page with its second model, which the test before may have turned off."""
    button = opened.locator(".second-model")
    if button.get_attribute("aria-pressed") != "true":
        button.click()
        opened.get_by_role("menuitem", name="Wisp Mini, 8-bit").click()
        expect(button).to_have_attribute("aria-pressed", "true")
        wait_ready(opened)
    return opened


def answers(page: Page) -> Locator:
    """The two finished answers."""
    expect(page.locator("#thread .pair .growing")).to_have_count(0)
    expect(page.locator("#send")).to_be_visible()
    return page.locator("#thread .pair .assistant")


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_columns_look_right(page: Page, size: tuple[int, int], scheme: Literal["light", "dark"]) -> None:
    if not page.locator("#thread .pair").count():
        new_chat(page)
        send(page, ITALY)
        answers(page)
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    found = faults(page)
    assert not found, "\n".join(found)


def test_both_answer_and_the_user_picks_one(page: Page) -> None:
    new_chat(page)
    send(page, ITALY)
    expect(answers(page)).to_contain_text(["Rome", "Rome"])
    assert len(set(answers(page).locator(".answered-by").all_inner_texts())) == 2
    answers(page).nth(1).get_by_role("button", name="Go on with this answer").click()
    expect(page.locator("#thread .pair")).to_have_count(0)
    expect(last_answer(page).locator(".versions")).to_contain_text("2/2")
    last_answer(page).get_by_role("button", name="Previous version of the answer").click()
    expect(last_answer(page)).to_contain_text("Rome")


def test_the_columns_stay_when_another_tab_adds_a_version(page: Page, context: BrowserContext, server: Server) -> None:
    """Of the question and of its answer; the columns' answers can still be picked."""
    new_chat(page)
    send(page, ITALY)
    answers(page)
    texts = answers(page).all_inner_texts()
    other = open_page(context, server.url)
    try:
        other.locator("#chat-list .chat-open").first.click()
        expect(last_answer(other)).to_contain_text("Rome")
        last_answer(other).get_by_role("button", name="Answer again").click()
        expect(last_answer(other).locator(".versions")).to_contain_text("3/3")
        other.locator("#thread > .user").get_by_role("button", name="Edit and send again").click()
        other.get_by_role("textbox", name="Edit your message").fill("What is the capital of Spain?")
        other.keyboard.press("Enter")
        expect(last_answer(other)).to_contain_text("Madrid")
        expect(page.locator("#thread > .user .versions")).to_contain_text("1/2")
        assert answers(page).all_inner_texts() == texts
        answers(page).nth(1).get_by_role("button", name="Go on with this answer").click()
        expect(page.locator("#thread .pair")).to_have_count(0)
        expect(last_answer(page).locator(".versions")).to_contain_text("2/3")
    finally:
        other.close()


def test_the_next_question_goes_on_with_the_first_answer(page: Page) -> None:
    new_chat(page)
    send(page, ITALY)
    answers(page)
    send(page, "What is the capital of France?")
    expect(answers(page)).to_contain_text(["Paris", "Paris"])
    expect(page.locator("#thread > .assistant .versions")).to_contain_text("1/2")


def test_one_model_stays_chosen_while_another_is_still_loading(page: Page) -> None:
    for name in ("Wisp Mini Sees", "Ask one model only"):
        page.locator(".second-model").click()
        page.get_by_role("menuitem", name=name).click()
    wait_for(lambda: "wisp-mini-sees-q4_0" in page.evaluate(LOADED))
    wait_ready(page)
    expect(page.locator(".second-model")).to_have_attribute("aria-pressed", "false")
    page.evaluate(UNLOAD)


def test_one_after_the_other_where_memory_holds_one(page: Page) -> None:
    assert len(page.evaluate(LOADED)) >= 2
    page.evaluate(TIGHT)
    new_chat(page)
    send(page, ITALY)
    expect(answers(page)).to_contain_text(["Rome", "Rome"])
    send(page, "What is the capital of France?")
    expect(answers(page)).to_contain_text(["Paris", "Paris"])
    assert len(page.evaluate(LOADED)) == 1


def test_one_model_again(page: Page) -> None:
    new_chat(page)
    page.locator(".second-model").click()
    page.get_by_role("menuitem", name="Ask one model only").click()
    assert "Rome" in ask(page, ITALY)
    expect(page.locator("#thread .pair")).to_have_count(0)
