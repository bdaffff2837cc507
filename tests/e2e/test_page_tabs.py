"""The page in two tabs: neither loses what the other stores, and each shows it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.browser import watch
from tests.support.chat_page import (
    answer_by,
    ask,
    cards,
    keep_engine,
    last_answer,
    new_chat,
    open_page,
    send,
    switch_on,
    wait_answer,
)
from tests.support.scripted_server import ScriptedServer
from tools.serve import Server


@pytest.fixture(scope="module")
def errors(context: BrowserContext) -> list[list[str]]:
    """The errors of each tab that is opened."""
    of_tabs: list[list[str]] = []
    context.on("page", lambda page: of_tabs.append(watch(page)))
    return of_tabs


@pytest.fixture(scope="module")
def opened(context: BrowserContext, server: Server, scripted: ScriptedServer, errors: list[list[str]]) -> list[Page]:
    """Two tabs with the scripted model."""
    keep_engine(context, server.url)
    first = open_page(context, server.url)
    answer_by(first, scripted.url)
    second = open_page(context, server.url)
    expect(second.locator("#model-name")).to_have_text("scripted")
    assert len(errors) == 3
    return [first, second]


@pytest.fixture
def tabs(opened: list[Page], scripted: ScriptedServer, errors: list[list[str]]) -> Iterator[list[Page]]:
    """Two tabs that show the same chat, which has one question. A test fails if any tab logged an error."""
    first, second = opened
    for of_tab in errors:
        of_tab.clear()
    new_chat(first)
    new_chat(second)
    scripted.script = ["One."]
    ask(first, "The beginning")
    open_newest(second)
    yield [first, second]
    assert not [error for of_tab in errors for error in of_tab if "localStorage" not in error]  # the sandbox's


@pytest.fixture
def third(tabs: list[Page], server: Server) -> Iterator[Page]:
    """Another tab that shows the chat."""
    page = open_page(tabs[0].context, server.url)
    open_newest(page)
    yield page
    page.close()


def open_newest(page: Page) -> None:
    """Open the chat that changed last, and wait for its first answer."""
    page.locator("#chat-list .chat-open").first.click()
    expect(page.locator("#thread > .assistant").first).to_contain_text("One.")


@contextmanager
def held(scripted: ScriptedServer, *pages: tuple[Page, str, str]) -> Iterator[list[threading.Event]]:
    """Ask in tabs, one after another: (tab, question, answer). The end of each answer waits for its event."""
    events = []
    try:
        for page, question, answer in pages:
            scripted.script, scripted.rest = [answer], threading.Event()
            events.append(scripted.rest)
            send(page, question)
            expect(last_answer(page)).to_contain_text(answer)
            for other in page.context.pages[1:]:
                if "chat=" in other.url:
                    expect(other.locator("#thread > .growing")).not_to_have_count(0)
        yield events
    finally:
        scripted.rest = None
        for event in events:
            event.set()


def texts(page: Page) -> list[str]:
    """The questions and answers that a tab shows."""
    # an answer that has just been rendered may end with a line break
    return [text.strip() for text in page.locator("#thread > li").locator(".bubble, .body").all_inner_texts()]


def test_a_chat_goes_on_in_both_tabs(tabs: list[Page], scripted: ScriptedServer) -> None:
    first, second = tabs
    scripted.script = ["Two."]
    ask(second, "In the second tab")
    expect(last_answer(first)).to_contain_text("Two.")
    scripted.script = ["Three."]
    ask(first, "In the first tab")
    expect(last_answer(second)).to_contain_text("Three.")
    both = ["The beginning", "One.", "In the second tab", "Two.", "In the first tab", "Three."]
    assert [message["content"] for message in scripted.asked[-1]["messages"]] == both[:-1]
    assert texts(first) == texts(second) == both
    second.reload()
    expect(last_answer(second)).to_contain_text("Three.")
    assert texts(second) == both


def test_a_reload_shows_the_chat_of_its_tab(tabs: list[Page]) -> None:
    first, second = tabs
    new_chat(second)
    ask(second, "A chat of the second tab")
    first.reload()
    expect(first.locator("#thread .bubble").first).to_have_text("The beginning")
    second.reload()
    expect(second.locator("#thread .bubble")).to_have_text("A chat of the second tab")


def test_an_answer_of_one_tab_grows_in_the_other(tabs: list[Page], scripted: ScriptedServer) -> None:
    first, second = tabs
    scripted.script = ["It grows."]
    scripted.rest = threading.Event()
    try:
        send(first, "Slowly, please")
        expect(last_answer(first)).to_contain_text("It grows.")
        expect(second.locator("#thread > .growing")).to_have_count(1)
        second.reload()  # it is not stopped there
        expect(second.locator("#thread > .growing")).to_have_count(1)
        expect(second.locator(".stats", has_text="stopped")).to_have_count(0)
    finally:
        scripted.rest.set()
        scripted.rest = None
    assert wait_answer(first) == "It grows."
    expect(second.locator("#thread > .growing")).to_have_count(0)
    assert wait_answer(second) == "It grows."


def test_an_answer_whose_tab_was_closed_is_stopped(tabs: list[Page], scripted: ScriptedServer, server: Server) -> None:
    _, second = tabs
    third = open_page(second.context, server.url)
    third.locator("#chat-list .chat-open").first.click()
    expect(last_answer(third)).to_contain_text("One.")
    scripted.script = ["It begins."]
    scripted.rest = threading.Event()
    try:
        send(third, "Slowly, please")
        expect(second.locator("#thread > .growing")).to_have_count(1)
        third.close()
        expect(last_answer(second).get_by_role("button", name="Answer again")).to_be_visible()
        expect(last_answer(second)).to_contain_text("stopped")
    finally:
        scripted.rest.set()
        scripted.rest = None


def test_the_lists_are_the_same_and_lose_a_deleted_chat(tabs: list[Page], scripted: ScriptedServer) -> None:
    first, second = tabs
    new_chat(second)
    ask(second, "A chat of the second tab")
    rows = first.locator("#chat-list .chat-open")
    expect(rows.first).to_have_text("A chat of the second tab")
    entry = second.locator("#chat-list li", has=second.locator(".chat-open")).nth(1)
    entry.hover()
    entry.get_by_role("button", name="Delete").click()
    expect(first.locator("#welcome")).to_be_visible()  # it showed the chat
    expect(first.get_by_text("This chat was deleted in another tab.")).to_be_visible()
    count = rows.count()
    second.get_by_role("button", name="Undo").click()
    expect(rows).to_have_count(count + 1)
    rows.nth(1).click()
    expect(last_answer(first)).to_contain_text("One.")


def test_a_chat_that_goes_on_before_the_deletion_is_heard_of_is_stored_whole(tabs: list[Page]) -> None:
    """A tab that the browser had suspended hears of it late."""
    first, second = tabs
    code = """async () => {
        const opening = indexedDB.open("wisp-page");
        const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
        const writing = db.transaction(["chats", "messages"], "readwrite");
        for (const name of writing.objectStoreNames) writing.objectStore(name).clear();
        await new Promise((resolve) => (writing.oncomplete = resolve));
        db.close();
    }"""
    second.evaluate(code)
    ask(first, "And on")
    second.reload()
    second.locator("#chat-list .chat-open").first.click()
    expect(last_answer(second)).to_be_visible()
    assert texts(second)[:3] == ["The beginning", "One.", "And on"]


# In px, once the page is drawn.
TOP = """(element) => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(
    () => resolve(element.getBoundingClientRect().top))))"""
LONG = "\n\n".join(f"Line {i}." for i in range(150))


@pytest.mark.parametrize("how", ["both end", "the other tab closes"])
def test_a_finished_answer_is_never_overwritten(
    tabs: list[Page], third: Page, scripted: ScriptedServer, how: str
) -> None:
    first, second = tabs
    with held(scripted, (first, "Slowly", "The first answer."), (third, "And you?", "The third answer.")) as ends:
        ends[0].set()
        expect(first.locator("#send")).to_be_visible()
        if how == "the other tab closes":
            third.close()
        else:
            ends[1].set()
            wait_answer(third)
    if not third.is_closed():
        assert texts(third)[2:] == ["Slowly", "The first answer.", "And you?", "The third answer."]
        scripted.script = ["More."]
        ask(third, "Go on")
        assert [message["content"] for message in scripted.asked[-1]["messages"]][3] == "The first answer."
    expect(second.locator("#thread > .growing")).to_have_count(0)
    second.reload()
    expect(second.locator("#thread > .assistant").nth(1)).to_contain_text("The first answer.")
    assert texts(second)[2:4] == ["Slowly", "The first answer."]


def test_questions_sent_at_once_are_both_stored(tabs: list[Page], scripted: ScriptedServer) -> None:
    first, second = tabs
    scripted.script = ["An answer."]
    late = """() => {
      const { postMessage } = BroadcastChannel.prototype;  // its news comes when the other tab has sent, too
      let kept = [];
      BroadcastChannel.prototype.postMessage = function (news) { kept.push(() => postMessage.call(this, news)); };
      globalThis.tell = () => {
        BroadcastChannel.prototype.postMessage = postMessage;
        for (const post of kept) post();
      };
    }"""
    first.evaluate(late)
    ask(first, "From the first tab")
    ask(second, "From the second tab")
    first.evaluate("tell()")
    for page, own, other in ((first, "first", "second"), (second, "second", "first")):
        expect(page.locator("#thread .user .versions")).to_contain_text("/2")
        assert texts(page)[2:] == [f"From the {own} tab", "An answer."]
        page.reload()
        expect(page.locator("#thread .user .versions")).to_contain_text("/2")
        shown = texts(page)[2]
        step = "Next" if "1/2" in page.locator("#thread .user .versions").inner_text() else "Previous"
        page.locator("#thread .user").last.hover()
        page.get_by_role("button", name=f"{step} version of the question").click()
        expect(page.locator("#thread .bubble").last).not_to_have_text(shown)
        assert {shown, texts(page)[2]} == {f"From the {own} tab", f"From the {other} tab"}
        assert texts(page)[3] == "An answer."


def test_a_question_that_could_not_be_stored_stays(tabs: list[Page], scripted: ScriptedServer) -> None:
    first, second = tabs
    scripted.script = ["An answer."]
    second.evaluate(
        """() => {
          const { put } = IDBObjectStore.prototype;
          globalThis.mend = () => (IDBObjectStore.prototype.put = put);
          IDBObjectStore.prototype.put = () => { throw new DOMException("", "QuotaExceededError"); };
        }"""
    )
    ask(second, "Not stored yet")
    expect(second.get_by_text("This browser could not store the chat.")).to_be_visible()
    ask(first, "Stored")
    expect(second.locator("#thread .user .versions")).to_contain_text("/2")
    assert texts(second)[2:] == ["Not stored yet", "An answer."]
    second.evaluate("void mend()")
    ask(second, "Stored again")
    second.reload()
    expect(second.locator("#thread .bubble").last).to_have_text("Stored again")
    assert texts(second)[2] == "Not stored yet"


def test_calls_of_tools_are_shown_in_the_other_tab(tabs: list[Page], scripted: ScriptedServer) -> None:
    first, second = tabs
    switch_on(first)
    scripted.script = [[("javascript", {"code": "return 1"}), ("javascript", {"code": "return 2"})], "It is 2."]
    send(first, "Go")
    cards(first).first.get_by_role("button", name="Allow once").click()
    for page in tabs:
        expect(cards(page)).to_have_count(2)
        expect(cards(page).first).to_have_attribute("data-state", "done")
        expect(cards(page).last).to_have_attribute("data-state", "asked")
    cards(first).last.get_by_role("button", name="Refuse").click()
    assert wait_answer(first) == wait_answer(second) == "It is 2."
    expect(cards(second).first.locator(".call-result")).to_contain_text("1")
    expect(cards(second).last).to_have_attribute("data-state", "refused")


def test_an_answer_ends_in_a_chat_that_was_opened_again(
    tabs: list[Page], third: Page, scripted: ScriptedServer
) -> None:
    _, second = tabs
    with held(scripted, (third, "Slowly", "It begins.")):
        new_chat(second)
        open_newest(second)
        expect(second.locator("#thread > .growing")).to_have_count(1)
        third.close()
        expect(second.locator("#thread > .growing")).to_have_count(0)
        expect(last_answer(second)).to_contain_text("stopped")


def test_an_answer_ends_though_this_tab_answers_when_its_tab_is_closed(
    tabs: list[Page], third: Page, scripted: ScriptedServer
) -> None:
    _, second = tabs
    with held(scripted, (third, "Slowly", "It begins."), (second, "And you?", "Mine.")) as ends:
        third.close()
        ends[1].set()
        expect(second.locator("#send")).to_be_visible()
        expect(second.locator("#thread > .growing")).to_have_count(0)
        expect(second.locator("#thread > .assistant").nth(1)).to_contain_text("stopped")


def test_what_comes_while_a_question_is_edited_is_shown_after_it(tabs: list[Page], scripted: ScriptedServer) -> None:
    first, second = tabs
    second.locator("#thread .user").hover()
    second.get_by_role("button", name="Edit and send again").click()
    second.locator("#thread .editor textarea").fill("What the user writes")
    scripted.script = ["Another."]
    first.get_by_role("button", name="Answer again").click()
    expect(last_answer(first)).to_contain_text("Another.")
    wait_answer(first)
    expect(second.locator("#chat-list .chat-open").first).to_be_visible()
    expect(second.locator("#thread .editor textarea")).to_have_value("What the user writes")
    second.get_by_role("button", name="Cancel").click()
    expect(second.locator("#thread .assistant .versions")).to_contain_text("1/2")
    scripted.script = ["Two."]
    ask(second, "And on")
    assert texts(second) == ["The beginning", "One.", "And on", "Two."]


def test_a_reader_scrolls_up_as_the_view_follows_an_answer(tabs: list[Page]) -> None:
    """Between the view's own scrolling and its event."""
    first, _ = tabs
    grown = """() => new Promise((resolve) => {
        const [list, scroller] = ["thread", "scroller"].map((id) => document.getElementById(id));
        new ResizeObserver((_, observer) => {
            if (scroller.scrollHeight < 4000) return;
            observer.disconnect();
            scroller.scrollTo({ top: 150, behavior: "instant" });
            setTimeout(() => resolve(scroller.scrollTop), 500);
        }).observe(list);
        list.style.minHeight = "4000px";
    })"""
    assert first.evaluate(grown) == 150
    expect(first.locator("#to-end")).to_be_visible()
    first.evaluate("() => document.getElementById('thread').style.removeProperty('min-height')")
    expect(first.locator("#to-end")).to_be_hidden()


def test_a_reader_stays_where_they_are(tabs: list[Page], scripted: ScriptedServer) -> None:
    first, second = tabs
    scripted.script = [LONG]
    ask(first, "At length")
    expect(last_answer(second)).to_contain_text("Line 149.")
    expect(second.locator("#thread > .growing")).to_have_count(0)
    second.locator("#scroller").evaluate("(scroller) => scroller.scrollTo({ top: 150, behavior: 'instant' })")
    expect(second.locator("#to-end")).to_be_visible()
    line = second.get_by_text("Line 1.", exact=True)
    expect(line).to_be_in_viewport()
    before = line.evaluate(TOP)
    first.get_by_role("button", name="Answer again").last.click()
    expect(first.locator("#thread .assistant .versions")).to_contain_text("2/2")
    wait_answer(first)
    expect(second.locator("#thread .assistant .versions")).to_contain_text("1/2")
    assert abs(line.evaluate(TOP) - before) < 2
    second.click("#to-end")
    expect(second.locator("#to-end")).to_be_hidden()
