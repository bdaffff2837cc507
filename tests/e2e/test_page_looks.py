"""The page on a phone and on a desktop, light and dark: no overflow, every control has a name, enough contrast."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.chat_page import ask, keep_engine, last_answer, new_chat, open_page
from tools.paths import ROOT
from tools.serve import Server

SIZES = {"phone": (390, 844), "desktop": (1280, 800), "small phone": (320, 568)}

LONG_NAME = "a-rather-long-name-of-a-file-that-is-no-model.gguf"
PUMP = b"The Zorbix Pro costs 420 euros. The battery of the Zorbix Pro lasts 14 hours."
FAULTS = (ROOT / "tests" / "support" / "page_faults.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def opened(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """One page for all tests of this module. Reduced motion keeps animations out of the screenshots."""
    context = chromium(None).new_context(reduced_motion="reduce")
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_nothing_overflows_and_everything_has_a_name(opened: Page, tmp_path: Path, size: str, scheme: Any) -> None:
    page = opened
    page.evaluate("document.querySelectorAll('dialog[open]').forEach((dialog) => dialog.close())")
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")

    def check(what: str) -> None:
        page.wait_for_timeout(100)
        page.screenshot(path=tmp_path / f"{what}.png")
        faults = page.evaluate(FAULTS)
        assert not faults, f"{what}: {json.dumps(faults, indent=1)}"

    narrow = width < 821
    if narrow:
        page.click("#open-sidebar")
        check("chats")
    page.locator("#chat-list .chat-open").first.click()
    expect(page.locator("#thread")).to_be_visible()
    check("conversation")
    for name in ("model", "documents", "settings"):
        button, dialog = f"#{name}-button", f"#{name}-dialog"
        page.click(button)
        expect(page.locator(dialog)).to_be_visible()
        check(dialog[1:])
        page.keyboard.press("Escape")
    page.click("#assistant-button")
    check("menu")
    page.get_by_role("menuitem", name="Edit assistants and snippets").click()
    page.get_by_role("button", name="New assistant").click()
    check("presets")
    page.get_by_role("button", name="Cancel").click()
    page.keyboard.press("Escape")
    page.set_input_files("#file-input", {"name": LONG_NAME, "mimeType": "", "buffer": b"no"})
    expect(page.locator("#notices .error")).to_be_visible()
    check("error")
    page.locator("#notices .error").get_by_role("button", name="Dismiss").click()
    new_chat(page)
    check("welcome")


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
