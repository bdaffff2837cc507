"""Many chats: storage, the list, search, branches. test_page_chat_choice.py has their choice."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, Page, expect

from tests.support.browser import wait_until
from tests.support.chat_page import ask, last_answer, new_chat, wait_answer, wait_ready
from tests.support.chat_store import chat, store_chats

LISBON = [("Wo ist das Café?", "Beside the Müller bakery."), ("And 首都?", "Tokyo.")]


def show_lisbon(page: Page, *, others: int) -> None:
    """Store other chats and "Lisbon trip", and visit the page again, which shows that."""
    more = [
        chat([(f"Question {n}", f"The answer is {n * n}.")], id=f"many-{n}", title=f"Chat {n}") for n in range(others)
    ]
    store_chats(page, [*more, chat(LISBON, id="special", title="Lisbon trip")])
    page.reload()
    expect(page.locator("#thread")).to_contain_text("bakery")
    wait_ready(page)


# What a tab leaves that crashed a minute ago: the search index got the question alone, and the answer grew later.
CRASHED = """(id) => new Promise((resolve, reject) => {
    const opening = indexedDB.open("wisp-page");
    opening.onerror = reject;
    opening.onsuccess = () => {
        const writing = opening.result.transaction(["messages", "unindexed"], "readwrite");
        const answer = { chat: id, n: 1, parent: 0, role: "assistant", content: "The lighthouse keeper slept." };
        writing.objectStore("messages").put(answer);
        const growth = { id: `growth:${id}`, chat: id, mark: "m", at: Date.now() - 60_000 };
        writing.objectStore("unindexed").put(growth);
        writing.oncomplete = () => (opening.result.close(), resolve());
    };
})"""


TITLES = "#chat-list .chat-open > span"


def titles(page: Page) -> list[str]:
    """The titles in the list."""
    return page.locator(TITLES).all_inner_texts()


def seek(page: Page, text: str) -> None:
    """Search the chats, and wait for the result: what is shown before belongs to another search."""
    found = page.locator("#chat-found")
    page.fill("#chat-search", "")
    expect(found).to_be_hidden()
    page.fill("#chat-search", text)
    expect(found).to_be_visible()


def test_chats_of_version_1_are_there(old_chats: Page) -> None:
    expect(old_chats.locator("#thread")).to_contain_text("mathematician")
    expect(last_answer(old_chats).locator(".stats")).to_contain_text("stopped")  # it had no end
    expect(old_chats.locator("#chat-list .chat-open")).to_have_count(3)
    assert sorted(titles(old_chats)) == ["The x chat", "The y chat", "The z chat"]


def test_each_edit_and_each_regeneration_is_a_branch(old_chats: Page) -> None:
    page = old_chats
    new_chat(page)
    ask(page, "What is the capital of Poland?")
    assert "Rome" in ask(page, "What is the capital of Italy?")
    first = page.locator("#thread > .user").first
    first.hover()
    first.get_by_role("button", name="Edit and send again").click()
    page.get_by_role("textbox", name="Edit your message").fill("What is the capital of Spain?")
    page.keyboard.press("Enter")
    assert "Madrid" in wait_answer(page)
    expect(page.locator("#thread > .message")).to_have_count(2)
    last_answer(page).get_by_role("button", name="Answer again").click()
    assert "Madrid" in wait_answer(page)
    expect(last_answer(page).locator(".versions")).to_have_text("2/2")
    expect(first.locator(".versions")).to_have_text("2/2")
    first.get_by_role("button", name="Previous version of the question").click()
    expect(page.locator("#thread > .message")).to_have_count(4)
    expect(page.locator("#thread")).to_contain_text("Rome")
    expect(first.locator(".versions")).to_have_text("1/2")
    page.reload()  # the shown branch is stored, and the others
    expect(page.locator("#thread > .message")).to_have_count(4)
    first.get_by_role("button", name="Next version of the question").click()
    expect(page.locator("#thread")).to_contain_text("Madrid")
    last_answer(page).get_by_role("button", name="Previous version of the answer").click()
    expect(last_answer(page).locator(".versions")).to_have_text("1/2")
    wait_ready(page)
    ask(page, "And of France?")  # goes on from the shown answer
    expect(page.locator("#thread > .assistant").first.locator(".versions")).to_have_text("1/2")


def test_the_list_is_virtual_and_search_finds_titles_and_messages(old_chats: Page) -> None:
    page = old_chats
    show_lisbon(page, others=2000)
    expect(page.locator("#chat-rows > .chat").first).to_be_visible()
    assert page.locator("#chat-rows > li").count() < 100
    expect(page.locator("#chat-rows > li").first).to_have_attribute("aria-setsize", "2005")  # 3 old ones, 1 heading
    found = page.locator("#chat-found")
    for text, expected in (
        ("lisbon", ["Lisbon trip"]),
        ("cafe mull", ["Lisbon trip"]),
        ("首", ["Lisbon trip"]),
        ("answer 3996001", ["Chat 1999"]),
        ("3996001 lisbon", []),
    ):
        seek(page, text)
        expect(found).to_have_text(f"{len(expected)} chat" if expected else "No chat has these words.")
        expect(page.locator(TITLES)).to_have_text(expected)
    seek(page, "bakery")
    expect(page.locator("#chat-rows mark")).to_have_text("bakery")
    seek(page, "3996001")
    expect(page.locator(TITLES)).to_have_text(["Chat 1999"])
    page.evaluate(COUNT_CHANGES, "#chat-found")
    page.locator(TITLES).click()
    expect(page.locator("#chat-title")).to_have_text("Chat 1999")
    page.wait_for_timeout(300)  # longer than a search takes
    assert page.evaluate("changes") == 0  # it is not read out again: what it found is the same
    seek(page, "answer")
    expect(found).to_have_text("2,000 chats")
    page.press("#chat-search", "Escape")
    expect(found).to_be_hidden()


COUNT_CHANGES = """(selector) => {
    globalThis.changes = 0;
    const options = { childList: true, characterData: true, subtree: true };
    new MutationObserver(() => globalThis.changes++).observe(document.querySelector(selector), options);
}"""
LEFT = """(async () => {
    const opening = indexedDB.open("wisp-page");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const counting = db.transaction("unindexed").objectStore("unindexed").count();
    const left = await new Promise((resolve) => (counting.onsuccess = () => resolve(counting.result)));
    db.close();
    return left;
})()"""


def test_the_index_is_read_before_the_first_search(old_chats: Page) -> None:
    wait_ready(old_chats)
    wait_until(old_chats, f"(await {LEFT}) === 0")
    seek(old_chats, "mathematician")
    expect(old_chats.locator("#chat-found")).to_have_text("3 chats")


def test_what_changes_is_found_and_what_is_deleted_is_not(old_chats: Page) -> None:
    page = old_chats
    new_chat(page)
    ask(page, "What is a zeppelin?")
    seek(page, "zeppel")
    expect(page.locator("#chat-found")).to_have_text("1 chat")
    row = page.locator("#chat-rows > .chat").first
    row.hover()
    row.get_by_role("button", name="Rename").click()
    page.keyboard.type("Airships")
    page.keyboard.press("Enter")
    seek(page, "airsh")
    expect(page.locator("#chat-found")).to_have_text("1 chat")
    row.hover()
    row.get_by_role("button", name="Delete").click()
    seek(page, "zeppelin")
    expect(page.locator("#chat-found")).to_have_text("No chat has these words.")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#chat-found")).to_have_text("1 chat")  # nobody searched again
    seek(page, "airships")
    expect(page.locator("#chat-found")).to_have_text("1 chat")
    page.fill("#chat-search", "")


def test_an_answer_is_found_whose_tab_crashed(old_chats: Page) -> None:
    """Though it was never stored as complete."""
    store_chats(old_chats, [chat([("A story, please.", "The")], id="story", title="A story")])
    seek(old_chats, "lighthouse")
    expect(old_chats.locator("#chat-found")).to_have_text("No chat has these words.")
    old_chats.evaluate(CRASHED, "story")
    old_chats.reload()
    wait_ready(old_chats)
    seek(old_chats, "lighthouse")
    expect(old_chats.locator("#chat-found")).to_have_text("1 chat")
    old_chats.fill("#chat-search", "")


def test_the_start_page_has_no_newest_message_to_go_to(old_chats: Page) -> None:
    page = old_chats
    new_chat(page)
    size = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 300})
    for place in ("scroller.scrollHeight", "0"):
        page.evaluate(f"() => void ((scroller) => (scroller.scrollTop = {place}))(document.querySelector('#scroller'))")
        page.wait_for_timeout(100)
    expect(page.locator("#to-end")).to_be_hidden()
    page.set_viewport_size(size or {"width": 1280, "height": 720})


def test_pins_and_folders(old_chats: Page) -> None:
    page = old_chats
    show_lisbon(page, others=10)
    row = page.locator("#chat-rows > .chat").filter(has_text="Lisbon")

    def choose(entry: str) -> None:
        seek(page, "Lisbon")
        row.hover()
        row.get_by_role("button", name=re.compile("^More for")).click()
        page.get_by_role("menuitem", name=entry, exact=True).click()

    choose("Move to a folder")
    page.keyboard.type("Travel")
    page.keyboard.press("Enter")
    page.locator("#chat-search").fill("")
    heads = page.locator("#chat-rows h2")
    expect(heads.first).to_have_text("Travel (1)")
    expect(row).to_have_count(1)
    page.get_by_role("button", name="Travel (1)").click()
    expect(row).to_have_count(0)
    page.get_by_role("button", name="Travel (1)").click()
    choose("Pin")
    page.locator("#chat-search").fill("")
    expect(heads.first).to_have_text("Pinned")
    page.reload()
    expect(heads.first).to_have_text("Pinned")
    choose("Unpin")
    page.locator("#chat-search").fill("")
    expect(heads.first).to_have_text("Travel (1)")


def test_chats_are_saved_and_imported(old_chats: Page, tmp_path: Path) -> None:
    page = old_chats
    show_lisbon(page, others=500)
    moved = chat(LISBON, id="special", title="Lisbon trip")
    moved["info"]["folder"] = "Travel"
    store_chats(page, [moved])
    page.reload()
    wait_ready(page)
    more = page.get_by_role("button", name="Files and presets")

    def choose(files: dict[str, str]) -> None:
        payload = [FilePayload(name=n, mimeType="application/json", buffer=t.encode()) for n, t in files.items()]
        with page.expect_file_chooser() as chooser:
            more.click()
            page.get_by_role("menuitem", name="Import chats").click()
        chooser.value.set_files(payload)

    with page.expect_download() as download:
        more.click()
        page.get_by_role("menuitem", name="Save all as JSON").click()
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    assert len(saved["chats"]) == 3 + 500 + 1
    special = next(chat for chat in saved["chats"] if chat["info"]["id"] == "special")
    assert (special["info"]["folder"], special["messages"][0]["content"]) == ("Travel", "Wo ist das Café?")
    choose({"all.json": json.dumps(saved)})  # all are there
    expect(page.locator("#notices")).to_contain_text("0 chats imported")
    changed = json.loads(json.dumps(special))
    changed["info"] |= {"title": "Porto trip", "updated": special["info"]["updated"] + 1}
    new = {"info": {**changed["info"], "id": "new", "title": "Faro trip"}, "messages": changed["messages"]}
    node = {"message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["Hallo"]}}}
    foreign = [{"id": "f", "title": "From afar", "create_time": 1, "update_time": 2, "mapping": {"x": node}}]
    broken = saved | {"chats": [new, {"info": {}}]}
    choose(
        {
            "own.json": json.dumps(saved | {"chats": [changed]}),
            "foreign.json": json.dumps(foreign),
            "broken.json": json.dumps(broken),
        }
    )
    expect(page.locator("#notices .error")).to_contain_text("chats[1]")
    seek(page, "trip")
    expect(page.locator("#chat-found")).to_have_text("2 chats")  # the old one, too; none of the broken file
    assert sorted(titles(page)) == ["Lisbon trip", "Porto trip"]
    seek(page, "hallo afar")
    expect(page.locator("#chat-found")).to_have_text("1 chat")
    row = page.locator("#chat-rows > .chat").first
    row.hover()
    row.get_by_role("button", name=re.compile("^More for")).click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="Save as Markdown").click()
    assert download.value.suggested_filename == "From-afar.md"
    assert "## You\n\nHallo" in Path(download.value.path()).read_text(encoding="utf-8")
    page.get_by_role("searchbox").fill("")
    page.locator("#notices .error").get_by_role("button", name="Dismiss").click()


def test_an_answer_of_another_model_is_a_branch(old_chats: Page) -> None:
    page = old_chats
    new_chat(page)
    ask(page, "What is the capital of Italy?")
    last_answer(page).get_by_role("button", name="Answer with another model").click()
    page.get_by_role("menuitem", name="Wisp Mini, 8-bit").click()
    expect(page.locator("#model-name")).to_have_text("Wisp Mini, 8-bit")
    expect(last_answer(page).locator(".versions")).to_have_text("2/2")
    assert "Rome" in wait_answer(page)


# A model that thinks whatever it is told: the first request for a title ends within its thoughts.
THINKER = """async () => {
    const { completions } = (await (await import("/wisp.js")).Wisp.create()).chat;
    const create = completions.create;
    globalThis.asked = [];
    completions.create = (request, options) => {
        if (request.stream) return create.call(completions, request, options);
        asked.push([request.reasoning_effort, request.max_tokens]);
        if (globalThis.hangs)
            return new Promise((_, reject) => options.signal.addEventListener("abort", () => reject("interrupted")));
        const message = { reasoning_content: "Well, a title. ", content: request.max_tokens > 24 ? "Sums" : "" };
        return Promise.resolve({ choices: [{ message, finish_reason: message.content ? "stop" : "length" }] });
    };
    globalThis.asWritten = () => void (completions.create = create);
}"""


@pytest.fixture
def thinker(old_chats: Page) -> Iterator[Page]:
    """The page with a new chat and a model that thinks when it is asked for a title."""
    new_chat(old_chats)
    old_chats.evaluate(THINKER)
    old_chats.evaluate("localStorage['wisp.titles'] = 'always'")
    yield old_chats
    old_chats.evaluate("asWritten()")
    old_chats.evaluate("localStorage['wisp.titles'] = 'never'")


def test_a_model_that_always_thinks_makes_a_title(thinker: Page) -> None:
    page = thinker
    ask(page, "What is 12 + 31?")
    current = page.locator("#chat-rows .chat.current .chat-open > span")
    expect(current).to_have_text("Sums")  # once it is idle
    assert page.evaluate("asked") == [["none", 24], ["none", 512]]
    new_chat(page)
    ask(page, "What is 12 + 32?")
    expect(current).to_have_text("Sums")
    assert page.evaluate("asked.slice(2)") == [["none", 512]]  # it is known to think


def test_a_title_that_questions_interrupt_is_given_up(thinker: Page) -> None:
    page = thinker
    page.evaluate("globalThis.hangs = true")
    for tries in (1, 2, 3, 3):
        ask(page, "What is 12 + 33?")
        wait_until(page, f"asked.length === {tries}")
    page.wait_for_timeout(2500)  # longer than a title waits
    assert page.evaluate("asked.length") == 3


def test_the_model_makes_titles_when_it_is_idle_and_the_user_s_win(old_chats: Page) -> None:
    page = old_chats
    new_chat(page)
    question = "What is 12 + 30?"  # the model, asked for a title, gives the sum
    ask(page, question)
    current = page.locator("#chat-rows .chat.current .chat-open > span")
    expect(current).to_have_text(question)
    page.evaluate("localStorage['wisp.titles'] = 'always'")
    ask(page, "And at night?")
    expect(current).not_to_have_text(question)  # once it is idle
    row = page.locator("#chat-rows .chat.current")
    row.hover()
    row.get_by_role("button", name="Rename").click()
    page.keyboard.type("My own")
    page.keyboard.press("Enter")
    ask(page, "And of Spain?")
    page.wait_for_timeout(2500)  # longer than a title waits
    expect(current).to_have_text("My own")
    page.evaluate("localStorage['wisp.titles'] = 'never'")
