"""A chat of thousands of messages: only those near the view are in the document."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import new_profile, watch
from tests.support.chat_page import ask, keep_engine, open_page
from tests.support.chat_store import chat, store_chats
from tests.support.page_looks import faults
from tests.support.waiting import wait_for
from tools.serve import Server

TURNS = 2500
SHORTER = 50  # turns of another chat
OFF = 3  # px that a message in view may move by: scrolling is by whole pixels, in each frame that draws messages
MOST = 5000  # elements of the thread, with 5,000 messages in the chat
ANSWER = """Answer {n}, **in bold**, with $a^2$:

```python
print({n})
```

| a | b |
|---|---|
| 1 | 2 |
"""
ESSAY = "A paragraph with *marks* and `code`.\n\n" * 2_000 + "The very end."  # takes more than a frame
# Whether a print has the essay's last words.
PRINT = """() => {
    dispatchEvent(new Event("beforeprint"));
    const hasEnd = document.querySelector("#thread").textContent.includes("The very end.");
    dispatchEvent(new Event("afterprint"));
    return hasEnd;
}"""
COUNT = "document.querySelectorAll('#thread *').length"
# From now on, `counted` is the number of messages whose tokens the page has asked for.
COUNT_MESSAGES = """async () => {
    const engine = await (await import("/wisp.js")).Wisp.create();
    const count = engine.countTokens.bind(engine);
    globalThis.counted = 0;
    engine.countTokens = (request) => {
        globalThis.counted += request.messages.length;
        return count(request);
    };
}"""
# Whether messages without a gap fill the view, in their order.
FILLED = """() => {
    const { top, bottom } = document.querySelector("#scroller").getBoundingClientRect();
    const inView = [...document.querySelectorAll("#thread > *")].filter((item) => {
        const place = item.getBoundingClientRect();
        return place.bottom > top && place.top < bottom;
    });
    const places = inView.map((item) => Number(item.ariaPosInSet));
    return places.length > 0 && places.every((place, i) => place > 0 && place === places[0] + i);
}"""
# The top of an item, once messages fill the view and the item has stayed in its place for ten frames: messages near the
# view are drawn in further frames.
TOP = f"""async (item) => {{
    const top = () => item.getBoundingClientRect().top;
    for (let frames = 0, before = top(); frames < 10; before = top()) {{
        await new Promise(requestAnimationFrame);
        frames = ({FILLED})() && top() === before ? frames + 1 : 0;
    }}
    return top();
}}"""
# Moves the view in steps, a frame each; returns the most elements of the thread, and how often a gap was in view.
SCROLL = f"""async ({{ from, by, steps }}) => {{
    const scroller = document.querySelector("#scroller");
    scroller.scrollTop = from;
    let most = 0, gaps = 0;
    for (let step = 0; step < steps; step++) {{
        scroller.scrollTop += by;
        await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
        most = Math.max(most, {COUNT});
        gaps += !({FILLED})();
    }}
    return {{ most, gaps }};
}}"""


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """A page that shows a long chat."""
    context = new_profile(chromium(None), service_worker=False, permissions=["clipboard-read", "clipboard-write"])
    keep_engine(context, server.url)
    page = open_page(context, server.url, settings={"context_length": 512})  # the model reads less of the chat
    errors = watch(page)
    turns = [(f"Question {n}", ANSWER.format(n=n)) for n in range(TURNS)]
    essay = [("An essay?", ESSAY), *turns[:SHORTER]]
    store_chats(
        page,
        [chat(turns[:SHORTER], id="shorter", title="Shorter"), chat(essay, id="essay", title="Essay"), chat(turns)],
    )
    page.reload()
    expect(last(page)).to_have_attribute("aria-posinset", str(2 * TURNS))
    yield page
    assert not errors
    context.close()


def last(page: Page) -> Any:
    return page.locator("#thread > .message").last


def message(page: Page, number: int) -> Any:
    """The message of a number from 1, if it is drawn."""
    return page.locator(f'#thread > .message[aria-posinset="{number}"]')


def show_shorter(page: Page) -> None:
    page.get_by_role("link", name="Shorter", exact=True).click()
    expect(page.locator("#chat-title")).to_have_text("Shorter")


def scroll_to(page: Page, place: str) -> None:
    page.evaluate(f"() => {{ const scroller = document.querySelector('#scroller'); scroller.scrollTop = {place}; }}")
    page.wait_for_function(FILLED)


def test_it_opens_at_its_end_and_draws_only_the_newest_messages(page: Page) -> None:
    expect(last(page).locator("strong")).to_have_text("in bold")
    expect(last(page)).to_be_in_viewport()
    expect(last(page)).to_have_attribute("aria-setsize", str(2 * TURNS))
    expect(message(page, 1)).to_have_count(0)
    assert page.evaluate(COUNT) < MOST


def test_scrolling_needs_a_bounded_number_of_elements(page: Page) -> None:
    for by in (-300, 500, 40_000):
        seen = page.evaluate(SCROLL, {"from": 200_000, "by": by, "steps": 12})
        assert seen["most"] < MOST, by
        assert seen["gaps"] == 0, by


# Scrolls to a third of the chat; returns the first message in view once messages fill it, and its top at that time.
TO_A_THIRD = f"""async () => {{
    const scroller = document.querySelector("#scroller");
    scroller.scrollTop = scroller.scrollHeight / 3;
    while (!({FILLED})()) await new Promise(requestAnimationFrame);
    const {{ top }} = scroller.getBoundingClientRect();
    const messages = [...document.querySelectorAll("#thread > .message")];
    const item = messages.find((item) => item.getBoundingClientRect().bottom > top);
    return {{ item, top: item.getBoundingClientRect().top }};
}}"""
# The two messages above the view.
ABOVE = """() => {
    const { top } = document.querySelector("#scroller").getBoundingClientRect();
    const items = [...document.querySelectorAll("#thread > .message")];
    return items.filter((item) => item.getBoundingClientRect().bottom <= top).slice(-2);
}"""
GROW = "(items, height) => { for (const item of items) item.style.minHeight = height; }"


@pytest.mark.parametrize("slowness", [1, 4], ids=["fast", "slow"])  # a slow machine draws in more frames
def test_what_is_in_view_stays_while_messages_above_it_are_drawn(page: Page, slowness: int) -> None:
    devtools = page.context.new_cdp_session(page)
    devtools.send("Emulation.setCPUThrottlingRate", {"rate": slowness})
    found = page.evaluate_handle(TO_A_THIRD)
    shown, place = found.get_property("item"), found.get_property("top").json_value()
    assert abs(shown.evaluate(TOP) - place) <= OFF
    page.evaluate("() => { document.querySelector('#scroller').scrollTop -= 200; }")
    assert abs(shown.evaluate(TOP) - place - 200) <= OFF
    above = page.evaluate_handle(ABOVE)
    for height in ("1400px", "1000px", ""):  # messages above grow, as when their pictures come, and shrink
        above.evaluate(GROW, height)
        assert abs(shown.evaluate(TOP) - place - 200) <= OFF, height
    devtools.detach()  # the page is as fast as before


def test_the_first_message_is_drawn_when_one_scrolls_there(page: Page) -> None:
    scroll_to(page, "0")
    expect(message(page, 2).locator("strong")).to_have_text("in bold")
    expect(message(page, 2).locator(".katex").first).to_be_attached()
    expect(message(page, 1).get_by_role("button", name="Edit and send again")).to_be_attached()
    assert faults(page) == []
    page.click("#to-end")
    expect(last(page)).to_be_in_viewport()
    expect(last(page)).to_have_attribute("aria-posinset", str(2 * TURNS))


def test_what_one_writes_in_a_message_is_there_when_one_returns(page: Page) -> None:
    scroll_to(page, "0")
    message(page, 1).get_by_role("button", name="Edit and send again").click()
    field = page.get_by_label("Edit your message")
    field.fill("Half a thought")
    scroll_to(page, "scroller.scrollHeight / 2")
    expect(field).to_be_focused()  # it stays in the document while it has the focus
    page.keyboard.type(" more")
    scroll_to(page, "scroller.scrollHeight / 2")
    page.focus("#prompt")
    scroll_to(page, "scroller.scrollHeight / 2 + 50")
    expect(field).to_have_count(0)
    scroll_to(page, "0")
    expect(field).to_have_value("Half a thought more")
    page.get_by_role("button", name="Cancel").click()


def test_tab_goes_on_to_messages_that_were_far(page: Page) -> None:
    scroll_to(page, "scroller.scrollHeight / 2")
    number = page.evaluate(
        """() => {
            const { top } = document.querySelector("#scroller").getBoundingClientRect();
            const items = [...document.querySelectorAll("#thread > .user")];
            const item = items.find((item) => item.getBoundingClientRect().top > top);
            item.querySelector("button").focus();
            return Number(item.ariaPosInSet);
        }"""
    )
    for _ in range(12):
        for _ in range(5):
            page.keyboard.press("Tab")
        page.wait_for_function(FILLED)  # as a reader's pace allows on any machine
    at = page.evaluate("Number(document.activeElement.closest('#thread > .message')?.ariaPosInSet)")
    assert at > number + 10
    page.wait_for_function(FILLED)
    assert page.evaluate(COUNT) < MOST


def test_selected_text_stays_selected_when_it_leaves_the_view(page: Page) -> None:
    scroll_to(page, "0")
    page.evaluate("() => getSelection().selectAllChildren(document.querySelector('#thread .bubble'))")
    scroll_to(page, "scroller.scrollHeight / 2")
    assert page.evaluate("`${getSelection()}`") == "Question 0"
    page.evaluate("() => getSelection().removeAllRanges()")
    scroll_to(page, "scroller.scrollHeight / 2 + 50")
    expect(message(page, 1)).to_have_count(0)


# Selects from a character of the first message's text on; extends it to the end of the last message's first block.
SELECT_FROM = """() => {
    const text = document.querySelector("#thread .bubble").firstChild;
    getSelection().setBaseAndExtent(text, 4, text, 8);
}"""
SELECT_TO = """() => {
    const block = [...document.querySelectorAll("#thread .message .block")].at(-1);
    getSelection().extend(block.closest(".body").querySelector("strong"), 1);
}"""
COPIED = """async () => {
    const [item] = await navigator.clipboard.read();
    const read = async (type) => [type, await (await item.getType(type)).text()];
    return Object.fromEntries(await Promise.all(["text/plain", "text/html"].map(read)));
}"""


def copied(page: Page) -> tuple[str, str]:
    """What Ctrl+C copies of the selection: text and HTML."""
    page.evaluate("navigator.clipboard.writeText('')")
    page.keyboard.press("Control+KeyC")
    wait_for(lambda: page.evaluate("navigator.clipboard.readText()"))
    found = page.evaluate(COPIED)
    return found["text/plain"], found["text/html"]


def test_a_selection_over_messages_that_are_not_drawn_is_copied_whole(page: Page) -> None:
    scroll_to(page, "0")
    page.evaluate(SELECT_FROM)
    page.click("#to-end")
    expect(last(page)).to_be_in_viewport()
    page.evaluate(SELECT_TO)
    expect(message(page, TURNS)).to_have_count(0)
    text, html = copied(page)
    assert text.startswith("tion 0\n")
    assert text.endswith(f"Answer {TURNS - 1}, in bold")
    parts = [part for n in range(1, TURNS) for part in (f"Question {n}\n", f"Answer {n}, **in bold**, with $a^2$:")]
    places = [text.find(part) for part in parts]
    assert -1 not in places[:-1]  # the last answer is as it is shown
    assert places[:-1] == sorted(places[:-1])
    assert "print(1234)\n```" in text
    assert "| 1 | 2 |" in text
    assert html.count("<strong>in bold</strong>") == TURNS
    assert html.count("<table>") == TURNS - 1
    assert "Question 1234" in html
    assert page.evaluate("`${getSelection()}`").startswith("tion 0")  # it is selected as before
    page.evaluate("() => getSelection().removeAllRanges()")


def test_select_all_copies_the_whole_chat(page: Page) -> None:
    scroll_to(page, "scroller.scrollHeight / 2")
    page.locator("#thread .bubble").first.click()
    page.keyboard.press("Control+KeyA")
    text, html = copied(page)
    assert text.startswith("## You\n\nQuestion 0\n")
    assert [text.count(part) for part in ("Question ", "## You\n", "print(")] == [TURNS] * 3
    assert html.count("<strong>in bold</strong>") == TURNS
    page.evaluate("() => getSelection().removeAllRanges()")
    page.fill("#prompt", "my own words")
    page.keyboard.press("Control+KeyA")
    page.keyboard.press("Control+KeyC")
    wait_for(lambda: page.evaluate("navigator.clipboard.readText()") == "my own words")
    page.fill("#prompt", "")


def test_a_selection_of_drawn_messages_is_copied_as_it_is_shown(page: Page) -> None:
    newest = "[...document.querySelectorAll('#thread .body')].at(-1)"
    scroll_to(page, "scroller.scrollHeight")
    wait_for(lambda: f"Answer {TURNS - 1}, in bold" in page.evaluate(f"{newest}?.textContent ?? ''"))
    page.evaluate(f"() => getSelection().selectAllChildren({newest})")
    assert copied(page)[0].startswith(f"Answer {TURNS - 1}, in bold")
    page.evaluate("() => getSelection().removeAllRanges()")


def test_a_click_that_changes_nothing_lets_a_message_go(page: Page) -> None:
    """Elements of messages that are far away are dropped. Only what may have been changed stays as it was."""
    scroll_to(page, "0")
    item = message(page, 2)
    mark = "(item) => { item.marked = true; }"
    for clicked in (item.locator("strong"), item.get_by_role("button", name="Copy the answer")):
        item.evaluate(mark)
        clicked.click()
        page.focus("#prompt")
        scroll_to(page, "scroller.scrollHeight / 2")
        expect(item).to_have_count(0)
        scroll_to(page, "0")
        assert not item.evaluate("(item) => item.marked")
    message(page, 1).get_by_role("button", name="Edit and send again").click()
    message(page, 1).evaluate(mark)
    page.get_by_role("button", name="Cancel").click()
    scroll_to(page, "scroller.scrollHeight / 2")
    scroll_to(page, "0")
    assert message(page, 1).evaluate("(item) => item.marked")


def test_a_search_goes_to_the_message_that_it_found(page: Page) -> None:
    page.fill("#chat-search", "Question 1234")
    found = page.locator(".chat-open", has=page.locator("mark")).first
    expect(found).to_contain_text("Question 0")  # the first message with one of the words
    page.fill("#chat-search", "1234")
    expect(found).to_contain_text("Question 1234")
    for number in (2469, 2470, 2469):
        found.click()
        expect(message(page, number)).to_be_focused()
        expect(message(page, number)).to_be_in_viewport()
    page.fill("#chat-search", "")


def test_a_print_has_all_messages(page: Page) -> None:
    show_shorter(page)
    expect(message(page, 1)).to_have_count(0)
    pages = re.findall(rb"/Type\s*/Page\b", page.pdf())
    assert len(pages) > SHORTER / 10  # a page has place for a few turns
    expect(message(page, 1)).to_have_count(0)


def test_a_print_has_the_end_of_a_long_answer(page: Page) -> None:
    """The browser lays a print out as soon as the event's listeners have returned."""
    page.get_by_role("link", name="Essay", exact=True).click()
    expect(page.locator("#chat-title")).to_have_text("Essay")
    expect(message(page, 2)).to_have_count(0)
    assert page.evaluate(PRINT)
    expect(message(page, 2)).to_have_count(0)


def test_it_goes_on_with_a_question(page: Page) -> None:
    show_shorter(page)
    scroll_to(page, "0")
    assert "Rome" in ask(page, "What is the capital of Italy?")
    expect(last(page)).to_be_in_viewport()
    expect(message(page, 1)).to_have_count(0)
    expect(last(page)).to_have_attribute("aria-setsize", re.compile(f"{2 * SHORTER + 2}|{2 * SHORTER + 3}"))


def test_a_question_is_asked_without_counting_the_whole_chat(page: Page) -> None:
    page.evaluate(COUNT_MESSAGES)
    page.get_by_role("link", name="Stored", exact=True).click()
    expect(page.locator("#chat-title")).to_have_text("Stored")
    assert "Rome" in ask(page, "What is the capital of Italy?")
    expect(page.locator("#gauge-tip")).to_contain_text("are not sent")
    assert 0 < page.evaluate("counted") < TURNS  # messages, of all counts together
