"""A chat of thousands of messages: what is far from view costs little, and is drawn when one scrolls near."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import new_profile, watch
from tests.support.chat_page import ask, keep_engine, open_page
from tests.support.chat_store import store_chat
from tools.serve import Server

TURNS = 1000
ANSWER = """Answer {n}, **in bold**, with $a^2$:

```python
print({n})
```

| a | b |
|---|---|
| 1 | 2 |
"""
IN_VIEW_IS_DRAWN = """() => {
    const { top, bottom } = document.querySelector("#scroller").getBoundingClientRect();
    const inView = [...document.querySelectorAll("#thread > .message")].filter((item) => {
        const place = item.getBoundingClientRect();
        return place.bottom > top && place.top < bottom;
    });
    return inView.length > 0 && inView.every((item) => !item.matches(".later"));
}"""


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """A page that shows a long chat."""
    context = new_profile(chromium(None))
    keep_engine(context, server.url)
    page = open_page(context, server.url)
    errors = watch(page)
    store_chat(page, [(f"Question {n}", ANSWER.format(n=n)) for n in range(TURNS)])
    page.reload()
    expect(page.locator("#thread > .message")).to_have_count(2 * TURNS, timeout=90_000)
    yield page
    assert not errors
    context.close()


def test_it_opens_at_its_end_and_draws_only_the_newest_messages(page: Page) -> None:
    expect(page.locator("#thread > .message").last.locator("strong")).to_have_text("in bold")
    expect(page.locator("#thread > .message").last).to_be_in_viewport()
    assert page.locator("#thread > .later").count() > 2 * TURNS - 100
    assert page.evaluate("document.querySelectorAll('#thread *').length") < 10 * TURNS


def test_what_is_in_view_stays_while_earlier_messages_are_drawn(page: Page) -> None:
    drawn = page.locator("#thread > .message:not(.later)").first.evaluate_handle("(item) => item")
    before = page.locator("#thread > .later").count()
    top = "(item) => Math.round(item.getBoundingClientRect().top)"
    place = drawn.evaluate(
        f"""(item) => {{
            item.scrollIntoView({{ block: "center", behavior: "instant" }});
            return ({top})(item);
        }}"""
    )
    page.wait_for_function("(before) => document.querySelectorAll('#thread > .later').length < before", arg=before)
    page.wait_for_function(IN_VIEW_IS_DRAWN)
    assert abs(drawn.evaluate(top) - place) <= 2


def test_the_first_message_is_drawn_when_one_scrolls_there(page: Page) -> None:
    first = page.locator("#thread > .message").nth(1)
    expect(first).to_have_class("message assistant later")
    page.evaluate("() => (document.querySelector('#scroller').scrollTop = 0)")
    expect(first.locator("strong")).to_have_text("in bold")
    expect(first.locator(".katex").first).to_be_attached()
    expect(page.locator("#thread > .message").first.get_by_role("button", name="Edit and send again")).to_be_attached()
    page.click("#to-end")
    expect(page.locator("#thread > .message").last).to_be_in_viewport()


def test_it_goes_on_with_a_question(page: Page) -> None:
    assert "Rome" in ask(page, "What is the capital of Italy?")
    expect(page.locator("#thread > .message")).to_have_count(2 * TURNS + 2)
    expect(page.locator("#thread > .message").last).to_be_in_viewport()
