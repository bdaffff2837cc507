"""The page as a person uses it: the real page, the real engine, Wisp Mini."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import new_profile, wait_until, watch
from tests.support.chat_page import ask, last_answer, new_chat, open_page, send, wait_answer
from tests.support.slow_engine import slowed
from tests.support.waiting import wait_for
from tools.serve import Server

STORY = "Write a short story about a dragon named Ember who finds a silver key."


@pytest.fixture(scope="module")
def opened(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[tuple[Page, list[str]]]:
    """One page for all tests of this module, and its console errors."""
    permissions = ["clipboard-read", "clipboard-write"]
    context = new_profile(chromium("swiftshader"), service_worker=False, permissions=permissions)
    page = open_page(context, server.url)
    yield page, watch(page)
    context.close()


def test_a_question_is_answered_with_its_speed(talk: Page) -> None:
    assert "Rome" in ask(talk, "What is the capital of Italy?")
    stats = last_answer(talk).locator(".stats")
    expect(stats).to_contain_text("tokens/s")
    expect(stats).to_contain_text("first token in")
    expect(talk.locator("#live")).to_contain_text("Rome")  # screen readers hear the finished answer


def test_an_answer_streams(talk: Page) -> None:
    """Its text grows several times before its end, which is not awaited: a busy page shows a quick answer at once."""
    talk.evaluate(
        """() => {
            const lengths = globalThis.lengths = new Set();
            const text = () => document.querySelector("#thread > .assistant .body")?.textContent ?? "";
            new MutationObserver(() => lengths.add(text().length))
                .observe(document.querySelector("#thread"), {childList: true, subtree: true, characterData: true});
        }"""
    )
    with slowed(talk):
        send(talk, STORY)
        wait_until(talk, "lengths.size >= 4")
        talk.keyboard.press("Escape")
        expect(last_answer(talk).locator(".stats")).to_contain_text("stopped")


def test_follow_ups_see_what_was_said(talk: Page) -> None:
    ask(talk, "Hi, my name is Nadia.")
    assert "Nadia" in ask(talk, "What is my name?")


def test_an_example_is_sent_with_one_click(talk: Page) -> None:
    talk.get_by_role("button", name="What is WebGPU?").click()
    assert "graphics card" in wait_answer(talk)


def test_escape_stops_an_answer_and_the_next_works(talk: Page) -> None:
    with slowed(talk):
        send(talk, STORY)
        expect(last_answer(talk).locator(".block").first).to_be_visible()
        talk.keyboard.press("Escape")
        expect(last_answer(talk).locator(".stats")).to_contain_text("stopped")
    expect(talk.locator("#send")).to_be_visible()
    assert len(last_answer(talk).locator(".body").inner_text()) > 0
    assert "Rome" in ask(talk, "What is the capital of Italy?")


def test_the_stop_button_stops_and_gives_the_focus_back(talk: Page) -> None:
    with slowed(talk):
        send(talk, STORY)
        talk.get_by_role("button", name="Stop").click()
        expect(last_answer(talk).locator(".stats")).to_contain_text("stopped")
    expect(talk.locator("#prompt")).to_be_focused()


def test_regenerate_answers_again_in_place(talk: Page) -> None:
    first = ask(talk, "What is the capital of Poland?")
    last_answer(talk).get_by_role("button", name="Answer again").click()
    assert wait_answer(talk) == first  # greedy
    assert talk.locator("#thread > li").count() == 2


def test_the_last_question_can_be_edited(talk: Page) -> None:
    assert "Warsaw" in ask(talk, "What is the capital of Poland?")
    question = talk.locator("#thread > .user").last
    question.hover()
    question.get_by_role("button", name="Edit and send again").click()
    field = talk.get_by_role("textbox", name="Edit your message")
    expect(field).to_be_focused()
    field.press("Escape")
    assert "Poland" in question.inner_text()
    question.hover()
    question.get_by_role("button", name="Edit and send again").click()
    field.fill("What is the capital of Spain?")
    field.press("Enter")
    assert "Madrid" in wait_answer(talk)
    assert talk.locator("#thread > li").count() == 2


def test_copy_gives_the_markdown(talk: Page) -> None:
    ask(talk, "Write a Python function that reverses a string.")
    last_answer(talk).get_by_role("button", name="Copy the answer").click()
    expect(talk.locator("#live")).to_have_text("Copied.")
    copied = talk.evaluate("navigator.clipboard.readText()")
    assert "```python" in copied
    last_answer(talk).get_by_role("button", name="Copy the code").first.click()
    wait_for(lambda: talk.evaluate("navigator.clipboard.readText()") != copied)
    code = talk.evaluate("navigator.clipboard.readText()")
    assert code.startswith("def ")
    assert "```" not in code


def test_markdown_is_rendered(talk: Page) -> None:
    ask(talk, "Make a table of France and Japan with the capital and the currency.")
    table = last_answer(talk).locator("table")
    expect(table.locator("tr")).to_have_count(3)
    expect(table).to_contain_text("Tokyo")
    ask(talk, "List three fruits.")
    assert last_answer(talk).locator("li").count() == 3


def test_shift_enter_makes_a_new_line(talk: Page) -> None:
    talk.fill("#prompt", "one")
    talk.press("#prompt", "Shift+Enter")
    talk.keyboard.type("two")
    assert talk.input_value("#prompt") == "one\ntwo"
    expect(talk.locator("#thread > li")).to_have_count(0)
    talk.fill("#prompt", "")


def test_an_empty_message_is_not_sent(talk: Page) -> None:
    send(talk, "   \n ")
    expect(talk.locator("#send")).to_be_disabled()
    expect(talk.locator("#thread > li")).to_have_count(0)
    talk.fill("#prompt", "")


def test_dialogs_work_by_keyboard(talk: Page) -> None:
    for name in ("Settings", "Wisp Mini"):
        button = talk.get_by_role("banner").get_by_role("button", name=name)
        button.focus()
        talk.keyboard.press("Enter")
        expect(talk.locator("dialog[open]")).to_be_visible()
        talk.keyboard.press("Escape")
        expect(talk.locator("dialog[open]")).to_have_count(0)
        expect(button).to_be_focused()
    talk.keyboard.press("/")
    expect(talk.locator("#prompt")).to_be_focused()


def test_the_system_prompt_and_the_limit_are_obeyed(talk: Page) -> None:
    settings = talk.locator("#settings-dialog")
    talk.get_by_role("button", name="Settings").click()
    settings.get_by_label("System prompt").fill("Always answer in upper case.")
    settings.get_by_role("button", name="Done").click()
    answer = ask(talk, "What is the opposite of fast?")
    assert answer == answer.upper()
    talk.get_by_role("button", name="Settings").click()
    settings.get_by_label("System prompt").fill("")
    settings.get_by_label("Longest answer").fill("3")
    settings.get_by_role("button", name="Done").click()
    ask(talk, STORY)
    expect(last_answer(talk).locator(".stats")).to_contain_text("3 tokens")
    expect(last_answer(talk).locator(".stats")).to_contain_text("cut off")
    talk.get_by_role("button", name="Settings").click()
    settings.get_by_label("Longest answer").fill("160")
    settings.get_by_role("button", name="Done").click()


def test_chats_are_listed_renamed_deleted_and_brought_back(talk: Page) -> None:
    chats = talk.locator("#chat-list .chat-open")
    before = chats.count()
    ask(talk, "What is 47 + 38?")
    new_chat(talk)
    expect(chats).to_have_count(before + 1)
    chats.first.click()
    expect(talk.locator("#thread")).to_contain_text("85")
    chat = talk.locator("#chat-list .chat").first
    chat.hover()
    chat.get_by_role("button", name="Rename").click()
    talk.keyboard.type("Sums")
    talk.keyboard.press("Enter")
    expect(chats.first).to_have_text("Sums")
    expect(talk).to_have_title("Sums · Wisp")
    chat.hover()
    chat.get_by_role("button", name="Delete").click()
    expect(chats).to_have_count(before)
    expect(talk.locator("#welcome")).to_be_visible()
    talk.get_by_role("button", name="Undo").click()
    expect(chats.first).to_have_text("Sums")


def test_two_deleted_chats_are_both_brought_back(talk: Page) -> None:
    chats = talk.locator("#chat-list .chat-open")
    before = chats.count()
    for sum_ in ("11 + 12", "13 + 14"):
        new_chat(talk)
        ask(talk, f"What is {sum_}?")
    for _ in range(2):
        chat = talk.locator("#chat-list .chat").first
        chat.hover()
        chat.get_by_role("button", name="Delete").click()
    expect(chats).to_have_count(before)
    for sum_ in ("11 + 12", "13 + 14"):
        talk.locator(".notice", has_text=sum_).get_by_role("button", name="Undo").click()
    expect(chats).to_have_count(before + 2)
    expect(chats.first).to_contain_text("13 + 14")


def test_leaving_a_chat_stops_and_keeps_its_partial_answer(talk: Page) -> None:
    with slowed(talk):
        send(talk, STORY)
        expect(last_answer(talk).locator(".block").first).to_be_visible()
        new_chat(talk)
    assert "Rome" in ask(talk, "What is the capital of Italy?")
    talk.locator("#chat-list .chat-open").nth(1).click()
    expect(last_answer(talk).locator(".stats")).to_contain_text("stopped")
    assert last_answer(talk).locator(".body").inner_text()


def test_thinking_and_function_calls_are_shown_folded(talk: Page) -> None:
    """Wisp Mini does not think, so its answer is replaced by the chunks of a model that does."""
    talk.evaluate(
        """async () => {
            const engine = await (await import("/wisp.js")).Wisp.create();
            const create = engine.chat.completions.create;
            const chunk = (delta, finish_reason = null) => ({ choices: [{ index: 0, delta, finish_reason }] });
            engine.chat.completions.create = async () => (async function* () {
                engine.chat.completions.create = create;
                yield chunk({ role: "assistant", content: "" });
                yield chunk({ reasoning_content: "They ask\\nfor 2 < 3." });
                await new Promise((resolve) => (globalThis.goOn = resolve));
                yield chunk({ content: "**Yes**." });
                yield chunk({ tool_calls: [{ index: 0, id: "a", function: { name: "compare", arguments: "" } }] });
                yield chunk({ tool_calls: [{ index: 0, function: { arguments: '{"a":2,"b"' } }] });
                yield chunk({ tool_calls: [{ index: 0, function: { arguments: ":3}" } }] });
                yield chunk({}, "tool_calls");
            })();
        }"""
    )
    send(talk, "Is 2 < 3?")
    thought = last_answer(talk).locator(".thought")
    expect(thought.locator("p")).to_be_visible()
    assert thought.locator("p").inner_text() == "They ask\nfor 2 < 3."
    expect(thought.locator("summary")).to_have_text("Thinking…")
    talk.evaluate("() => goOn()")
    assert wait_answer(talk) == "Yes."
    expect(thought.locator("p")).to_be_hidden()
    expect(thought.locator("summary")).to_have_text(re.compile(r"Thought for [\d.]+ m?s"))
    thought.locator("summary").click()
    expect(thought.locator("p")).to_be_visible()
    call = last_answer(talk).locator(".tool-call")
    call.get_by_text("Calls compare").click()
    expect(call.locator("pre")).to_have_text('{\n  "a": 2,\n  "b": 3\n}')
    assert "Rome" in ask(talk, "What is the capital of Italy?")
    expect(last_answer(talk).locator(".thought")).to_be_hidden()
