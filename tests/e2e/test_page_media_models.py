"""Models with and without a projector in the page: what they do with attached pictures and sound."""

import base64
import json
import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.attachments import PASTE, attached, choose, clear, transfer_of
from tests.support.browser import watch
from tests.support.chat_page import ask, open_page, send, wait_ready
from tests.support.media import VISION
from tests.support.recorded_video import RECORD_WITH_SOUND
from tools.serve import Server

SEES = VISION.parent / "sees"  # drawings with questions
# Half a second of a tone in a compressed format.
RECORDED = """async () => {
    const context = new AudioContext(), tone = context.createOscillator(), out = context.createMediaStreamDestination();
    tone.connect(out);
    tone.start();
    const recorder = new MediaRecorder(out.stream), parts = [];
    recorder.ondataavailable = ({ data }) => parts.push(data);
    const stopped = new Promise((resolve) => (recorder.onstop = resolve));
    recorder.start();
    await new Promise((resolve) => setTimeout(resolve, 500));
    recorder.stop();
    await stopped;
    context.close();
    const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
    return btoa(String.fromCharCode(...bytes));
}"""


@pytest.fixture(scope="module")
def opened(context: BrowserContext, server: Server) -> tuple[Page, list[str]]:
    page = open_page(context, server.url)
    return page, watch(page)


def test_a_model_without_projector_says_so(talk: Page) -> None:
    choose(talk, "square.png")
    expect(attached(talk)).to_contain_text("not for this model")
    expect(talk.locator(".notice", has_text="does not see pictures")).to_be_visible()
    send(talk, "What is it?")
    expect(talk.locator(".answer-error")).to_have_attribute("data-code", "no_projector")
    choose(talk, "square.png")
    expect(attached(talk)).to_have_count(1)
    talk.get_by_role("button", name="Add a projector").click()
    expect(talk.locator("#projector-url")).to_be_focused()
    talk.fill("#projector-url", "no address")
    talk.press("#projector-url", "Enter")
    expect(talk.locator("#projector-url")).to_have_attribute("aria-invalid", "true")
    expect(talk.locator("#projector-url-error")).to_have_text("That is no address. Write one that ends in .gguf.")
    expect(talk.locator("#projector-url-error")).to_be_in_viewport(ratio=0.9)
    talk.keyboard.press("Escape")
    talk.click("#model-button")
    expect(talk.locator("#projector-url-error")).to_be_hidden()
    talk.keyboard.press("Escape")
    clear(talk)


def test_a_model_that_sees_is_one_click_away(talk: Page) -> None:
    """The model that answers reads text alone; the catalog has one that sees, and the picture stays attached."""
    probe = next(
        one for one in json.loads((SEES / "probes.json").read_text("utf-8")) if one["picture"] == "shapes-1.png"
    )
    question, answer = probe["turns"][0]
    talk.set_input_files("#attach-input", SEES / probe["picture"])
    talk.get_by_role("button", name="Use Wisp Mini Sees").click()
    expect(talk.locator("#model-name")).to_have_text("Wisp Mini Sees")
    wait_ready(talk)
    expect(attached(talk)).to_contain_text(re.compile(r"\d+ tokens"))
    assert ask(talk, question) == answer


def test_a_model_with_its_projector_sees_and_hears(talk: Page) -> None:
    talk.set_input_files("#file-input", [VISION / "gemma4.gguf", VISION / "gemma4.mmproj.gguf"])
    expect(talk.locator("#model-name")).to_have_text("gemma4")
    wait_ready(talk)
    choose(talk, "square.png", "half.wav")
    expect(attached(talk).nth(0)).to_contain_text("83 tokens")  # 81, and a mark on each side
    expect(attached(talk).nth(1)).to_contain_text("15 tokens")
    recorded = base64.b64decode(talk.evaluate(RECORDED))
    talk.evaluate(PASTE, transfer_of(talk, ("beep.webm", "audio/webm", recorded)))  # the page decodes it for the worker
    expect(attached(talk).nth(2)).to_contain_text(re.compile(r"\d+ tokens"))
    ask(talk, "What is it?")
    expect(talk.locator(".answer-error")).to_have_count(0)
    expect(talk.locator("#thread .media > li")).to_have_count(3)
    talk.click("#model-button")
    expect(talk.locator("#model-facts")).to_contain_text("text, pictures, and sound")
    talk.keyboard.press("Escape")


def test_a_model_that_hears_gets_the_sound_of_a_video(talk: Page) -> None:
    """As a clip that can be removed; a silent video has none."""
    record = f"""async () => {{ {RECORD_WITH_SOUND}
        return btoa(String.fromCharCode(...new Uint8Array(await recorded.arrayBuffer()))); }}"""
    film = base64.b64decode(talk.evaluate(record))
    talk.evaluate(PASTE, transfer_of(talk, ("film.webm", "video/webm", film)))
    expect(attached(talk)).to_have_count(2)
    expect(attached(talk).nth(0)).to_contain_text(re.compile(r"pictures? · \d+ tokens"))
    expect(attached(talk).nth(1).locator(".wave")).to_be_visible()
    expect(attached(talk).nth(1)).to_contain_text(re.compile(r"\d+ tokens"))
    ask(talk, "What is it?")
    expect(talk.locator(".answer-error")).to_have_count(0)
    talk.set_input_files("#attach-input", VISION.parent / "video" / "colours.webm")
    expect(attached(talk)).to_contain_text(re.compile(r"pictures · \d+ tokens"))
    expect(attached(talk)).to_have_count(1)
    clear(talk)


def test_a_model_at_an_address_gets_a_projector_and_finds_it_again(talk: Page) -> None:
    talk.click("#model-button")
    talk.fill("#url-input", "/repo/tests/golden/vision/gemma3.gguf")
    talk.press("#url-input", "Enter")
    expect(talk.locator("#model-name")).to_have_text("gemma3")
    wait_ready(talk)
    choose(talk, "square.png")
    expect(attached(talk)).to_contain_text("not for this model")
    talk.get_by_role("button", name="Add a projector").click()
    talk.fill("#projector-url", "/repo/tests/golden/vision/gemma3.mmproj.gguf")
    talk.press("#projector-url", "Enter")
    expect(attached(talk)).to_contain_text("11 tokens")
    talk.reload()
    wait_ready(talk)
    talk.click("#model-button")
    expect(talk.locator("#projector-state")).to_have_text("gemma3 takes text and pictures.")
