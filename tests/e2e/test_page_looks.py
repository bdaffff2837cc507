"""Every view of the page, on a phone and on a desktop, light and dark, from left to right and from right to left."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import new_profile
from tests.support.chat_page import ask, keep_engine, last_answer, new_chat, open_page
from tests.support.media import MEDIA
from tests.support.page_looks import faults
from tools.selection import fewer
from tools.serve import Server

SIZES = {"phone": (390, 844), "desktop": (1280, 800), "small phone": (320, 568), "zoomed phone": (195, 422)}
# Wide and narrow, in light and dark, from right to left, and in German, which has the longest words: they matter most
# where there is least space. Other tests use the page in English. WISP_ALL=1: wide and in German, too.
LOOKS = fewer(
    [
        ("small phone", "dark", "de"),
        ("phone", "light", "ar"),
        ("desktop", "dark", "ar"),
        ("desktop", "light", "de"),
    ],
    3,
)

LONG_NAME = "a-rather-long-name-of-a-file-that-is-no-model.gguf"
PUMP = b"The Zorbix Pro costs 420 euros. The battery of the Zorbix Pro lasts 14 hours."


@pytest.fixture(scope="module")
def opened(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """One page for all tests of this module."""
    context = new_profile(chromium(None))
    keep_engine(context, server.url)
    page = open_page(context, server.url)
    ask(page, "Make a table of France and Japan with the capital and the currency.")
    ask(page, "Write a Python function that reverses a string.")
    page.evaluate(
        """async () => (await (await import("/wisp.js")).Wisp.create()).upstreams.set({
            name: "a-server-with-a-long-name", baseURL: "http://127.0.0.1:1/v1",
            models: [..."123456789"].map((n) => `an-organisation/a-large-model-with-a-long-name-v${n}-instruct-awq`),
        })"""
    )
    page.set_input_files("#documents-input", {"name": LONG_NAME + ".txt", "mimeType": "", "buffer": PUMP})
    expect(page.locator("#ask-documents")).to_be_visible()
    ask(page, "How much does the Zorbix Pro cost?")
    expect(last_answer(page).locator(".cite")).to_be_visible()
    yield page
    context.close()


@pytest.mark.parametrize(("size", "scheme", "language"), LOOKS)
def test_every_view_fits_and_is_accessible(opened: Page, size: str, scheme: Any, language: str) -> None:
    page = opened
    page.evaluate("document.querySelectorAll('dialog[open]').forEach((dialog) => dialog.close())")
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")

    def check(what: str) -> None:
        page.wait_for_timeout(100)
        assert faults(page) == [], what

    def sidebar() -> None:
        if width < 821:
            page.click("#open-sidebar")

    page.click("#settings-button")
    page.select_option("#language", language)
    expect(page.locator("html")).to_have_attribute("lang", language)
    page.keyboard.press("Escape")
    sidebar()
    page.fill("#chat-search", "Zorbix")
    expect(page.locator("#chat-list mark").first).to_be_visible()
    check("chats")
    page.fill("#chat-search", "")
    page.locator("#chat-list .chat-open").first.click()
    expect(page.locator("#thread")).to_be_visible()
    check("conversation")
    for name in ("model", "documents", "settings"):
        page.click(f"#{name}-button")
        expect(page.locator(f"#{name}-dialog")).to_be_visible()
        check(name)
        if name == "model":
            page.click("#hub-open")
            check("hub")
            page.keyboard.press("Escape")
            page.click("#quality-button")
            expect(page.locator("#quality-dialog")).to_be_visible()
            for measure in page.locator("#quality-dialog input[type=radio]").all():
                measure.check(force=True)
                check("quality")
            page.keyboard.press("Escape")
        if name == "settings":
            page.click("#mcp-button")
            page.click("#mcp-add")
            check("mcp")
            page.keyboard.press("Escape")
        page.keyboard.press("Escape")
    for name in ("help", "monitor"):
        sidebar()
        page.click(f"#{name}-button")
        expect(page.locator("#help-dialog, .monitor").locator("visible=true")).to_be_visible()
        check(name)
        page.keyboard.press("Escape")
        if width < 821:
            page.click("#close-sidebar")
    page.click("#assistant-button")
    check("menu")
    page.get_by_role("menuitem").last.click()
    page.click("#assistants > button")
    check("presets")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.set_input_files("#file-input", {"name": LONG_NAME, "mimeType": "", "buffer": b"no"})
    expect(page.locator("#notices .error")).to_be_visible()
    check("error")
    page.locator("#notices .error > .icon-button").click()
    new_chat(page)
    check("welcome")
    page.set_input_files("#attach-input", [MEDIA / "large.png", MEDIA / "half.wav"])
    expect(page.locator("#attachments > li")).to_have_count(2)
    check("attachments")
    page.press("#prompt", "Enter")
    expect(page.locator(".answer-error")).to_be_visible()
    check("media")
    page.locator("#thread .picture").click()
    check("picture")
    page.keyboard.press("Escape")
    sidebar()
    page.click("#private-chat")
    check("private")


def test_the_page_fits_a_phone_at_a_zoom_of_200_percent(opened: Page) -> None:
    """All buttons are there: those of the header, and the one that closes the settings."""
    page = opened
    width, height = SIZES["zoomed phone"]
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("document.querySelectorAll('dialog[open]').forEach((dialog) => dialog.close())")
    page.click("#settings-button")
    page.select_option("#language", "en")
    page.keyboard.press("Escape")
    new_chat(page)
    ask(page, "What is the capital of Italy?")
    assert faults(page) == [], "conversation"
    for name in ("model", "documents", "settings", "quality", "help", "assistant"):
        if name == "quality":
            page.click("#model-button")
        if name == "help":
            page.click("#open-sidebar")
        page.click(f"#{name}-button")
        assert faults(page) == [], name
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")  # the dialog or the drawer below


def test_the_help_sheet_lists_the_shortcuts_and_returns_the_focus(opened: Page) -> None:
    page = opened
    page.set_viewport_size({"width": 1280, "height": 800})
    page.keyboard.press("Control+Comma")
    page.select_option("#language", "en")
    page.keyboard.press("Escape")
    new_chat(page)
    sheet = page.get_by_role("dialog", name="Keyboard shortcuts")
    page.press("#prompt", "?")  # a question mark, while one writes
    expect(sheet).to_be_hidden()
    page.focus("#documents-button")
    page.keyboard.press("?")
    expect(sheet.get_by_role("term").nth(2)).to_have_text("CtrlShiftO")
    expect(sheet.get_by_role("definition")).to_have_count(15)
    for _ in range(3):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    page.keyboard.press("Escape")
    expect(page.locator("#documents-button")).to_be_focused()
    page.get_by_role("button", name="Keyboard shortcuts").click()
    expect(sheet).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Keyboard shortcuts")).to_be_focused()
    page.keyboard.press("Control+KeyK")
    expect(page.locator("#chat-search")).to_be_focused()


def test_the_theme_button_overrides_the_system(opened: Page) -> None:
    page = opened
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(color_scheme="light")
    body, button = page.locator("body"), page.locator("#theme")
    light, dark = "rgb(250, 249, 246)", "rgb(16, 22, 26)"
    expect(body).to_have_css("background-color", light)
    button.click()  # light, whatever the system says
    page.emulate_media(color_scheme="dark")
    expect(body).to_have_css("background-color", light)
    button.click()  # dark
    page.emulate_media(color_scheme="light")
    expect(body).to_have_css("background-color", dark)
    page.reload()
    expect(button).to_have_attribute("title", "Colours: dark")
    expect(body).to_have_css("background-color", dark)
    button.click()  # as the system says
    expect(body).to_have_css("background-color", light)


def test_without_motion_all_colours_change_at_once(opened: Page) -> None:
    transitions = opened.evaluate(
        """() => {
            const { dataset } = document.documentElement;
            const before = dataset.theme;
            for (const theme of ["light", "dark"]) {
                dataset.theme = theme;
                document.body.offsetWidth; // styles are computed
            }
            const running = document.getAnimations().filter((animation) => animation instanceof CSSTransition);
            if (before) dataset.theme = before;
            else delete dataset.theme;
            return running.length;
        }"""
    )
    assert transitions == 0


def test_the_manifest_is_what_an_installable_page_needs(opened: Page) -> None:
    manifest = opened.evaluate("async () => (await fetch(document.querySelector('link[rel=manifest]').href)).json()")
    assert manifest["display"] == "standalone"
    icons = manifest["icons"]
    sizes = opened.evaluate(
        """async (icons) => Promise.all(icons.map(async ({ src, type }) => {
            const image = new Image();
            image.src = src;
            await image.decode();
            return [image.naturalWidth, type];
        }))""",
        icons,
    )
    assert [192, "image/png"] in sizes
    assert [512, "image/png"] in sizes
    assert any(icon.get("purpose") == "maskable" for icon in icons)
