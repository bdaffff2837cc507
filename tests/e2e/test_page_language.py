"""The page in its seven languages: chosen by the browser's, switched without a reload, mirrored for Arabic."""

from collections.abc import Callable

from playwright.sync_api import Browser, Page, expect

from tests.support.browser import new_profile
from tests.support.chat_page import ask, last_answer, new_chat, open_page, send, wait_answer, wait_ready
from tests.support.waiting import wait_for
from tools.serve import Server

STORY = "Write a short story about a fox who finds a silver key."
SEND = {
    "en": "Send",
    "de": "Senden",
    "es": "Enviar",
    "fr": "Envoyer",
    "ja": "送信",
    "zh": "发送",
    "ar": "إرسال",
}


def switch(page: Page, code: str) -> None:
    """Choose a language in the settings."""
    page.click("#settings-button")
    page.select_option("#language", code)
    expect(page.locator("html")).to_have_attribute("lang", code)
    page.keyboard.press("Escape")


def test_the_language_is_switched_while_an_answer_grows(
    chromium: Callable[[str | None], Browser], server: Server
) -> None:
    context = new_profile(chromium(None), locale="fr-CA")
    fetched: list[str] = []
    context.on("request", lambda request: None if request.service_worker else fetched.append(request.url))
    page = open_page(context, server.url)
    prompt, button = page.locator("#prompt"), page.locator("#send")
    expect(prompt).to_have_attribute("placeholder", "Écrivez un message")
    languages = {url.rpartition("/")[2][:3] for url in fetched if "/languages/" in url}
    assert languages == {"fr-"}, "a page waits for one language"

    cached = """async () => {
        const parts = Object.entries(document.getElementById("parts").dataset);
        const languages = parts.filter(([name]) => name.startsWith("language"));
        return (await Promise.all(languages.map(([, path]) => caches.match(path)))).filter(Boolean).length;
    }"""
    wait_for(lambda: page.evaluate(cached) == 6)  # all of them are there for offline use

    page.evaluate("globalThis.sameVisit = true")
    send(page, STORY)
    for code, label in SEND.items():
        switch(page, code)
        expect(button).to_have_attribute("aria-label", label)
    assert wait_answer(page)
    expect(last_answer(page).locator(".stats")).to_contain_text("رمز/ث")

    sidebar, code_block = page.locator("#sidebar"), last_answer(page).locator("pre")
    expect(page.locator("html")).to_have_attribute("dir", "rtl")
    assert sidebar.bounding_box()["x"] > page.locator("#scroller").bounding_box()["x"]  # type: ignore[index]
    ask(page, "Write a Python function that reverses a string.")
    expect(code_block).to_have_css("direction", "ltr")
    expect(last_answer(page).locator(".code-head")).to_have_css("direction", "rtl")
    expect(page.locator("#thread .bubble").last).to_have_css("direction", "ltr")  # as its text is
    assert page.evaluate("globalThis.sameVisit")

    page.reload()
    wait_ready(page)
    expect(button).to_have_attribute("aria-label", SEND["ar"])
    switch(page, "en")
    new_chat(page)
    expect(page.locator("#welcome h1")).to_have_text("What shall we try?")
    expect(sidebar).to_have_css("direction", "ltr")
    context.close()
