"""Which chat is shown, while chats are read, imported, renamed, and asked before they are there."""

import json

from playwright.sync_api import FilePayload, Page, expect

from tests.support.browser import wait_until
from tests.support.chat_page import ask, new_chat, wait_answer

# Chooses chats, and sends a question at once.
CHOOSE_AND_ASK = """([names, text]) => {
    for (const name of names)
        [...document.querySelectorAll("#chat-list .chat-open")]
            .find(({ textContent }) => textContent.includes(name)).click();
    document.querySelector("#prompt").value = text;
    document.querySelector("#composer").requestSubmit();
}"""
# The page's next read of its list follows an import. It ends with `goOn()`; `listed` is true once it has begun.
HOLD_LIST = """() => {
    const { getAll } = IDBObjectStore.prototype;
    const allowed = new Promise((resolve) => (globalThis.goOn = resolve));
    IDBObjectStore.prototype.getAll = function (...given) {
        const request = getAll.apply(this, given);
        if (this.name !== "chats") return request;
        IDBObjectStore.prototype.getAll = getAll;
        globalThis.listed = true;
        const listen = request.addEventListener;
        request.addEventListener = (name, listener) =>
            listen.call(request, name, (event) => void allowed.then(() => listener(event)));
        return request;
    };
}"""


def test_a_question_goes_to_the_chat_that_was_chosen_before_it(old_chats: Page) -> None:
    """Also if it is sent before that chat is shown."""
    page = old_chats
    shown = page.locator("#thread > .user")
    row = page.locator("#chat-list .chat-open", has_text="The z chat")
    row.evaluate(
        """(row, text) => {
            row.click();
            const field = document.querySelector("#prompt");
            field.value = text;
            document.querySelector("#composer").requestSubmit();
        }""",
        "What is the capital of Norway?",
    )
    wait_answer(page)
    expect(row).to_have_attribute("aria-current", "page")
    expect(shown).to_have_count(2)
    page.locator("#chat-list .chat-open", has_text="The x chat").click()
    expect(shown).to_have_count(1)


def test_a_question_is_given_back_if_another_chat_is_chosen_before_it_is_sent(old_chats: Page) -> None:
    page = old_chats
    page.evaluate(
        """(text) => {
            const open = (name) => [...document.querySelectorAll("#chat-list .chat-open")]
                .find(({ textContent }) => textContent.includes(name)).click();
            open("The z chat");
            const field = document.querySelector("#prompt");
            field.value = text;
            document.querySelector("#composer").requestSubmit();
            open("The y chat");
        }""",
        "What is the capital of Norway?",
    )
    expect(page.locator("#chat-title")).to_have_text("The y chat")
    expect(page.locator("#prompt")).to_have_value("What is the capital of Norway?")
    for name in "yzx":
        page.locator("#chat-list .chat-open", has_text=f"The {name} chat").click()
        expect(page.locator("#chat-title")).to_have_text(f"The {name} chat")
        expect(page.locator("#thread > .user")).to_have_count(1)
    page.fill("#prompt", "")


def test_the_shown_chat_can_be_chosen_again_while_another_one_is_read(old_chats: Page) -> None:
    page = old_chats
    page.evaluate(CHOOSE_AND_ASK, [["The z chat", "The x chat"], "What is the capital of Norway?"])
    wait_answer(page)
    expect(page.locator("#chat-title")).to_have_text("The x chat")
    expect(page.locator("#thread > .user")).to_have_count(2)


def test_a_chat_that_cannot_be_read_leaves_the_shown_one_in_use(old_chats: Page) -> None:
    page = old_chats
    page.evaluate(
        """() => {
            for (const name of ["getAll", "getAllKeys"]) {
                const read = IDBObjectStore.prototype[name];
                IDBObjectStore.prototype[name] = function (...given) {
                    if (this.name !== "messages") return read.apply(this, given);
                    IDBObjectStore.prototype[name] = read;
                    throw new DOMException("No such luck.", "UnknownError");
                };
            }
        }"""
    )
    text = "What is the capital of Norway?"
    page.evaluate(CHOOSE_AND_ASK, [["The z chat"], text])
    expect(page.locator("#prompt")).to_have_value(text)  # given back
    notice = page.locator("#notices .error")
    expect(notice).to_contain_text("This chat cannot be read.")
    notice.get_by_role("button", name="Dismiss").click()
    page.press("#prompt", "Enter")
    wait_answer(page)
    expect(page.locator("#chat-title")).to_have_text("The x chat")
    expect(page.locator("#thread > .user")).to_have_count(2)


def test_a_chat_that_is_begun_during_an_import_stays_in_the_list(old_chats: Page) -> None:
    page = old_chats
    node = {"message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["Hallo"]}}}
    brought = {"title": "Brought in", "create_time": 1, "update_time": 2, "mapping": {"x": node}}
    file = FilePayload(name="c.json", mimeType="application/json", buffer=json.dumps([brought]).encode())
    page.evaluate(HOLD_LIST)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Files and presets").click()
        page.get_by_role("menuitem", name="Import chats").click()
    chooser.value.set_files([file])
    wait_until(page, "globalThis.listed")
    new_chat(page)
    ask(page, "What is a kite?")
    page.evaluate("goOn()")
    expect(page.locator("#chat-list .chat-open", has_text="Brought in")).to_have_count(1)
    expect(page.locator("#chat-list .chat-open", has_text="What is a kite?")).to_have_count(1)


def test_a_chat_that_is_shown_leaves_the_focus_where_the_user_is(old_chats: Page) -> None:
    page = old_chats
    page.locator("#chat-list .chat-open", has_text="The z chat").evaluate(
        "(row) => { row.click(); document.querySelector('#chat-search').focus(); }"
    )
    expect(page.locator("#chat-title")).to_have_text("The z chat")
    expect(page.locator("#chat-search")).to_be_focused()


def test_a_title_that_is_written_while_its_chat_opens_stays(old_chats: Page) -> None:
    page = old_chats
    page.locator("#chat-list .chat", has_text="The y chat").evaluate(
        """(row) => {
            row.querySelector(".chat-open").click();
            row.querySelector(".chat-open + .icon-button").click();
            document.querySelector(".chat-rename").value = "Half a ti";
        }"""
    )
    expect(page.locator("#chat-title")).to_have_text("The y chat")
    expect(page.locator(".chat-rename")).to_be_focused()
    expect(page.locator(".chat-rename")).to_have_value("Half a ti")
    page.keyboard.press("Escape")
    expect(page.locator("#chat-list .chat.current .chat-open")).to_have_text("The y chat")
