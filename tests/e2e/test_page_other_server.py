"""Chats with a model of another server: its mark in a narrow header, and what the page says where it refuses."""

import re
from datetime import datetime, timedelta

from playwright.sync_api import Page, expect

from tests.support.chat_page import last_answer, send, wait_answer, wait_ready
from tests.support.scripted_server import ScriptedServer


def test_the_mark_of_another_server_fits_a_narrow_header(talk: Page) -> None:
    """A phone's page at a zoom of 200 %: the mark is there, and covers no button."""
    size = talk.viewport_size
    assert size
    talk.set_viewport_size({"width": 195, "height": 422})
    try:
        mark, button, icon = (
            talk.locator(selector).evaluate("(element) => element.getBoundingClientRect().toJSON()")
            for selector in ("#model-badge", "#model-button", "#model-badge .icon")
        )
    finally:
        talk.set_viewport_size(size)
    assert button["left"] <= mark["left"] < mark["right"] <= button["right"]
    assert icon["width"] >= 12


HEADER = """() => {
    const [bar, name] = [".topbar", "#model-name"].map((selector) => document.querySelector(selector));
    return [bar.scrollWidth - bar.clientWidth, name.scrollWidth - name.clientWidth];
}"""


def test_a_narrow_header_has_the_model_and_the_mark_of_another_server(talk: Page) -> None:
    """Beside the mark, the model's name had two pixels on a phone that is 360 wide."""
    size = talk.viewport_size
    assert size
    cut = {}
    for language in ("de", "es", "fr", "ja", "zh", "ar", "en"):
        talk.set_viewport_size(size)
        talk.click("#settings-button")
        talk.select_option("#language", language)
        talk.keyboard.press("Escape")
        talk.set_viewport_size({"width": 360, "height": 740})
        cut[language] = talk.evaluate(HEADER)
    talk.set_viewport_size(size)
    assert set(map(tuple, cut.values())) == {(0, 0)}, cut


UNTIL = re.compile(r"The server asks to wait until (?:.*, )?([\d:]+ [AP]M)\.")


def test_a_server_that_is_asked_too_often_says_until_when(talk: Page, scripted: ScriptedServer) -> None:
    """The moment is stored: it is as true after a reload."""
    scripted.wait = "90"
    before = datetime.now()
    send(talk, "Is it?")
    error = last_answer(talk).locator(".answer-error")
    expect(error).to_contain_text("script: Rate limit reached. Try again in 90 s.")
    scripted.wait = ""
    said = UNTIL.search(error.inner_text().replace("\u202f", " "))
    assert said
    first, last = (moment + timedelta(seconds=90) for moment in (before, datetime.now()))
    until = datetime.strptime(said[1], "%I:%M:%S %p")  # without its day, and without parts of a second
    after_first = (until - first.replace(microsecond=0, year=until.year, month=until.month, day=until.day)).seconds
    assert after_first <= (last - first).seconds + 1
    text = error.inner_text()
    talk.reload()
    wait_ready(talk)
    expect(error).to_have_text(text, use_inner_text=True)
    scripted.script = ["Yes."]
    last_answer(talk).get_by_role("button", name="Answer again").click()
    assert wait_answer(talk) == "Yes."
