"""Videos in the page's chats: what the model sees of them is shown, stored, exported and imported."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.support.attachments import attached, clear
from tests.support.browser import new_profile, watch
from tests.support.chat_page import ask, open_page, wait_ready
from tools.goldens import GOLDEN
from tools.serve import Server

VIDEO = GOLDEN / "video" / "colours.webm"  # three seconds (tests/golden/make/video.py)
CAPTION = re.compile(r"^colours\.webm · 0:03 · 3 pictures · \d+ tokens$")
ENCODED = """async () => {
    const { Wisp } = await import("/wisp.js");
    return (await (await Wisp.create()).stats()).projector.encoded;
}"""
# Waits until the browser has four blocks of the chat.
WRITTEN = """async () => {
    const { Wisp } = await import("/wisp.js");
    const engine = await Wisp.create();
    while ((await engine.stats()).prefixes.written_tokens < 256) await new Promise((done) => setTimeout(done, 50));
}"""
# The tokens that the video adds to a question, by a request of its own.
COST = """async (name) => {
    const { Wisp } = await import("/wisp.js");
    const engine = await Wisp.create();
    const url = URL.createObjectURL(await (await fetch("/repo/tests/golden/video/colours.webm")).blob());
    const count = async (...content) =>
        (await engine.countTokens({ messages: [{ role: "user", content }] })).tokens;
    const text = { type: "text", text: "." };
    return (await count({ type: "video_url", video_url: { url } }, text)) - (await count(text));
}"""
EDGES = "(element) => { const { left, right } = element.getBoundingClientRect(); return [left, right]; }"
# Shows a question with a video of eight pictures and a long name.
SHOW_EIGHT = """async () => {
    const { videoMedium } = await import("/repo/app/ui/media/video_frames.js");
    const { mediaList } = await import("/repo/app/ui/media/views.js");
    const blob = await (await fetch("/repo/tests/golden/video/colours.webm")).blob();
    const made = await videoMedium(new File([blob], `${"a-long-name".repeat(9)}.webm`));
    const { bytes } = made.frames[0], picture = made.blob.slice(0, bytes);
    const frames = Array.from({ length: 8 }, (_, i) => ({ seconds: 60 * i, bytes }));
    const medium = { ...made, frames, blob: new Blob(Array(8).fill(picture)), tokens: 2048, seconds: 480 };
    const [item, asked] = ["li", "div"].map((tag) => document.createElement(tag));
    item.className = "message user";
    asked.className = "asked";
    asked.append(mediaList([medium]));
    item.append(asked);
    document.querySelector("#welcome").hidden = true;
    document.querySelector("#thread").append(item);
    document.querySelector("#thread").hidden = false;
}"""
# A chat's parts for another server: the text before each picture, and the beginning of its address.
SENT = """async (name) => {
    const { videoMedium } = await import("/repo/app/ui/media/video_frames.js");
    const { contentOf, withMedia } = await import("/repo/app/ui/chats/media_parts.js");
    const blob = await (await fetch("/repo/tests/golden/video/colours.webm")).blob();
    const question = { n: 0, role: "user", content: "Why?", media: [await videoMedium(new File([blob], "a.webm"))] };
    const messages = [{ role: "user", content: contentOf(question, { image: true, audio: false }) }];
    const sent = await withMedia({ messages }, [question], true);
    return sent.messages[0].content.map(({ text, image_url }) => text ?? image_url.url.slice(0, 27));
}"""


@pytest.fixture(scope="module")
def opened(engine_context: BrowserContext, server: Server) -> tuple[Page, list[str]]:
    """The page with Wisp Mini Sees, whose engine lives on between its reloads, and the errors that it logs."""
    page = open_page(engine_context, server.url)
    errors = watch(page)
    page.set_input_files("#attach-input", VIDEO)
    page.get_by_role("button", name="Use Wisp Mini Sees").click()
    expect(page.locator("#model-name")).to_have_text("Wisp Mini Sees")
    wait_ready(page)
    clear(page)
    return page, errors


def film(page: Page) -> Locator:
    return page.locator("#thread .film")


def check_film(page: Page) -> None:
    """Three pictures with their times, and a caption. A picture opens."""
    expect(film(page)).to_have_count(1)
    expect(film(page).locator("figcaption")).to_have_text(CAPTION)
    expect(film(page).locator("small")).to_have_text(["0:00", "0:01", "0:02"])
    for i in range(3):
        expect(film(page).locator("img").nth(i)).to_have_js_property("naturalWidth", 96)
    film(page).get_by_role("button", name="Show colours.webm 0:02").click()
    expect(page.get_by_role("dialog", name="colours.webm 0:02")).to_be_visible()
    page.keyboard.press("Escape")


def test_an_attached_video_says_what_the_model_sees(talk: Page) -> None:
    """Its times count: it takes what the same video takes in a request."""
    talk.set_input_files("#attach-input", VIDEO)
    expect(attached(talk)).to_have_count(1)
    expect(attached(talk).locator("img")).to_have_js_property("naturalWidth", 96)
    expect(attached(talk)).to_contain_text("0:03")
    expect(attached(talk).locator("small")).to_have_text(f"3 pictures · {talk.evaluate(COST)} tokens")
    talk.get_by_role("button", name="Remove colours.webm").click()
    expect(attached(talk)).to_have_count(0)


def test_a_chat_about_a_video_encodes_it_once(talk: Page, tmp_path: Path) -> None:
    """Also after a reload, and in an imported chat: their pictures are the same bytes."""
    talk.set_input_files("#attach-input", VIDEO)
    expect(attached(talk).locator("small")).to_contain_text("tokens")
    before = talk.evaluate(ENCODED)
    ask(talk, "What colour is it?")
    check_film(talk)
    encoded = talk.evaluate(ENCODED)
    assert encoded - before <= 3
    ask(talk, "And now?")
    assert talk.evaluate(ENCODED) == encoded
    talk.reload()
    wait_ready(talk)
    check_film(talk)
    ask(talk, "Is it red?")
    assert talk.evaluate(ENCODED) == encoded
    chat = exported(talk)
    (medium,) = [medium for message in chat["messages"] for medium in message.get("media", [])]
    assert (medium["kind"], medium["name"], len(medium["frames"])) == ("video", "colours.webm", 3)
    path = tmp_path / "again.json"
    chat["info"] |= {"id": "again", "title": "Again", "updated": chat["info"]["updated"] + 1}
    path.write_text(json.dumps({"format": "wisp-chats", "version": 1, "chats": [chat]}))
    talk.set_input_files("#import-input", path)
    talk.locator("#chat-rows").get_by_text("Again").click()
    check_film(talk)
    ask(talk, "Is it green?")
    assert talk.evaluate(ENCODED) == encoded


def test_a_new_engine_reads_what_was_computed_for_a_video(
    chromium: Callable[[str | None], Browser], server: Server
) -> None:
    """After a reload nothing is encoded: the prompt cache has the blocks of the chat that have the video."""
    context = new_profile(chromium(None), service_worker=False)
    page = open_page(context, server.url)
    page.set_input_files("#attach-input", VIDEO)
    page.get_by_role("button", name="Use Wisp Mini Sees").click()
    expect(page.locator("#model-name")).to_have_text("Wisp Mini Sees")
    wait_ready(page)
    expect(attached(page).locator("small")).to_contain_text("tokens")
    ask(page, "What colour is it?")
    ask(page, "And now?")
    page.evaluate(WRITTEN)
    page.reload()
    wait_ready(page)
    ask(page, "Is it red?")
    assert page.evaluate(ENCODED) == 0
    context.close()


def exported(page: Page) -> dict[str, Any]:
    """The newest chat, as the page saves it."""
    with page.expect_download() as download:
        page.click("#chats-more")
        page.get_by_role("menuitem", name="Save all as JSON").click()
    chats: list[dict[str, Any]] = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))["chats"]
    return max(chats, key=lambda chat: float(chat["info"]["updated"]))


def test_a_video_that_was_not_sent_outlives_a_reload(talk: Page) -> None:
    talk.set_input_files("#attach-input", VIDEO)
    expect(attached(talk).locator("small")).to_contain_text("3 pictures")
    talk.reload()
    wait_ready(talk)
    expect(attached(talk).locator("small")).to_contain_text("3 pictures")
    expect(attached(talk).locator("img")).to_have_js_property("naturalWidth", 96)
    clear(talk)


def test_a_long_row_of_pictures_scrolls_by_itself(talk: Page) -> None:
    """Also on a phone, the video is no wider than the thread."""
    talk.evaluate(SHOW_EIGHT)
    for width in (390, 1280):
        talk.set_viewport_size({"width": width, "height": 800})
        for i in range(8):
            expect(film(talk).locator("img").nth(i)).to_have_js_property("naturalWidth", 96)
        assert talk.evaluate("document.documentElement.scrollWidth") <= width
        left, right = talk.locator("#thread").evaluate(EDGES)
        first, last = film(talk).evaluate(EDGES)
        assert (left <= first, last <= right) == (True, True)
        row = film(talk).locator("ul")
        assert row.evaluate("(row) => row.scrollWidth > row.clientWidth")
        row.evaluate("(row) => row.scrollTo(row.scrollWidth, 0)")
        expect(film(talk).get_by_role("button").last).to_be_in_viewport(ratio=0.9)
    talk.reload()
    wait_ready(talk)


def test_another_server_gets_pictures_with_their_times(talk: Page) -> None:
    """It knows no videos, perhaps."""
    picture = "data:image/jpeg;base64,/9j/"
    sent = talk.evaluate(SENT)
    assert [part for part in sent if not part.startswith("[")] == [picture] * 3 + ["Why?"]
    assert [re.sub(r"\d\ds\]$", "", part) for part in sent[:6:2]] == ["[0m0.", "[0m1.", "[0m2."]
