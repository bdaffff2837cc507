"""Pictures and sound in the page: a real camera and microphone as far as the browser can tell, and real files."""

import base64
import io
import re
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, Page, Playwright, expect

from tests.support import browser as browsers
from tests.support.attachments import PASTE, STORED, attached, choose, clear, transfer_of
from tests.support.browser import watch
from tests.support.chat_page import open_page, send
from tests.support.media import MEDIA
from tests.support.waiting import wait_for
from tools.serve import Server

FAKE_DEVICES = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")


@pytest.fixture(scope="module")
def context(playwright_run: Playwright) -> Iterator[BrowserContext]:
    """A profile of a browser with a camera, which shows a moving disc, and a microphone, which beeps."""
    browser = browsers.launch(playwright_run, None, FAKE_DEVICES)
    yield browsers.new_profile(browser, service_worker=False, permissions=["camera", "microphone"])
    browser.close()


@pytest.fixture(scope="module")
def opened(context: BrowserContext, server: Server) -> tuple[Page, list[str]]:
    page = open_page(context, server.url)
    return page, watch(page)


def in_menu(page: Page, name: str) -> None:
    page.click("#attach")
    page.get_by_role("menuitem", name=name).click()


def test_files_are_chosen_and_removed(talk: Page) -> None:
    choose(talk, "square.png", "half.wav")
    expect(attached(talk)).to_have_count(2)
    expect(attached(talk).nth(1)).to_contain_text("0:01")
    expect(talk.locator("#send")).to_be_enabled()  # a question needs no text
    talk.get_by_role("button", name="Remove square.png").click()
    expect(attached(talk)).to_have_count(1)
    clear(talk)
    expect(talk.locator("#send")).to_be_disabled()


def test_documents_are_chosen_where_pictures_are(talk: Page) -> None:
    with talk.expect_file_chooser() as chooser:
        in_menu(talk, "Documents to ask about")
    chooser.value.set_files({"name": "tea.txt", "mimeType": "text/plain", "buffer": b"Tea needs three minutes."})
    expect(talk.locator("#ask-documents")).to_have_attribute("aria-pressed", "true")
    talk.click("#documents-button")
    talk.get_by_role("button", name="Remove tea.txt").click()
    expect(talk.locator("#ask-documents")).to_be_hidden()
    talk.keyboard.press("Escape")


def test_dropped_pictures_are_attached_and_texts_are_documents(talk: Page) -> None:
    files = transfer_of(
        talk,
        ("dot.png", "image/png", (MEDIA / "dot.png").read_bytes()),
        ("notes.md", "text/markdown", b"# Notes\n\nTea."),
    )
    talk.dispatch_event("body", "drop", {"dataTransfer": files})
    expect(attached(talk)).to_have_count(1)
    expect(talk.locator("#documents-count")).to_have_text("1")
    clear(talk)


def test_pasted_pictures_are_attached(talk: Page) -> None:
    files = transfer_of(talk, ("image.png", "image/png", (MEDIA / "wide.png").read_bytes()))
    talk.evaluate(PASTE, files)
    expect(attached(talk).locator("img")).to_have_attribute("alt", "image.png")
    clear(talk)


def test_formatted_text_is_pasted_as_text(talk: Page) -> None:
    """Programs such as Excel put a picture of the cells beside them."""
    files = transfer_of(talk, ("image.png", "image/png", (MEDIA / "wide.png").read_bytes()))
    files.evaluate("(data) => { data.setData('text/html', '<b>Tea</b>'); data.setData('text/plain', 'Tea'); }")
    assert talk.evaluate(PASTE, files)


def test_pasted_texts_are_documents_and_other_files_are_named(talk: Page) -> None:
    files = transfer_of(
        talk, ("pasted.md", "text/markdown", b"# Pasted\n\nTea."), ("film.mp4", "video/mp4", b"film")
    )  # fmt: skip
    talk.evaluate(PASTE, files)
    expect(talk.locator("#document-list")).to_contain_text("pasted.md")
    notice = talk.locator(".notice", has_text="film.mp4 was not added.")
    expect(notice).to_be_visible()
    notice.get_by_role("button").click()


def test_a_chosen_file_of_no_use_is_named(talk: Page) -> None:
    talk.set_input_files("#attach-input", {"name": "film.mp4", "mimeType": "video/mp4", "buffer": b"film"})
    notice = talk.locator(".notice", has_text="film.mp4 was not added.")
    expect(notice).to_be_visible()
    notice.get_by_role("button").click()


@pytest.mark.parametrize("order", "<>")
def test_a_photo_is_turned_upright(talk: Page, order: str) -> None:
    """EXIF data, in either order of bytes, state how it was held. What is attached has its rows turned, and no EXIF."""
    photo, file, exif = Image.new("RGB", (64, 32), "blue"), io.BytesIO(), Image.Exif()
    photo.paste("red", (0, 0, 32, 32))  # the left half, which is the upper one when it is turned to the right
    exif.endian, exif[0x0112] = order, 6
    photo.save(file, "JPEG", exif=exif)
    talk.evaluate(PASTE, transfer_of(talk, ("photo.jpg", "image/jpeg", file.getvalue())))
    expect(attached(talk).locator("img")).to_have_js_property("naturalWidth", 32)
    stored = talk.evaluate(
        """async () => {
            const { src } = document.querySelector("#attachments img");
            const bytes = new Uint8Array(await (await fetch(src)).arrayBuffer());
            return btoa(String.fromCharCode(...bytes));
        }"""
    )
    turned = Image.open(io.BytesIO(base64.b64decode(stored)))
    assert turned.size == (32, 64)
    assert 0x0112 not in turned.getexif()
    upper, lower = (np.array(turned)[rows].mean((0, 1)) for rows in (slice(24), slice(40, 64)))
    np.testing.assert_allclose(upper, (255, 0, 0), atol=5)
    np.testing.assert_allclose(lower, (0, 0, 255), atol=5)
    clear(talk)


def test_the_camera_takes_a_photo(talk: Page) -> None:
    in_menu(talk, "Take a photo")
    expect(talk.locator("#camera-take")).to_be_enabled()
    talk.click("#camera-take")
    expect(talk.locator("#camera-dialog")).to_be_hidden()
    expect(attached(talk).locator("img")).to_have_js_property("complete", True)
    assert talk.locator("#attachments img").evaluate("(image) => image.naturalWidth") >= 320
    expect(talk.locator("#camera-picture")).to_have_js_property("srcObject", None)  # the camera is off
    clear(talk)


def test_the_microphone_records_a_wav_file(talk: Page) -> None:
    in_menu(talk, "Record sound")
    # Each text is there for a second.
    expect(talk.locator("#recorder-time")).to_have_text(re.compile(r"^(0:0[1-9]|0:[1-5]\d|[1-9]\d*:\d\d)$"))
    expect(talk.locator("#prompt")).to_be_hidden()
    talk.click("#recorder-stop")
    expect(attached(talk).locator(".wave")).to_be_visible()
    send(talk, "What do you hear?")
    expect(talk.locator("#thread audio")).to_be_visible()
    wait_for(lambda: len(talk.evaluate(STORED)) == 1)
    ((kind, name, type, data),) = talk.evaluate(STORED)
    assert (kind, name, type) == ("audio", "Recording.wav", "audio/wav")
    recorded = base64.b64decode(data)
    assert recorded[:4] == b"RIFF"
    assert int.from_bytes(recorded[24:28], "little") == 16_000
    assert len(recorded) > 44 + 16_000  # half a second


def test_a_recording_can_be_cancelled(talk: Page) -> None:
    in_menu(talk, "Record sound")
    talk.click("#recorder-cancel")
    expect(talk.locator("#prompt")).to_be_focused()
    expect(attached(talk)).to_have_count(0)


def test_a_recording_that_ends_by_itself_is_attached(talk: Page) -> None:
    """As where the microphone is unplugged."""
    talk.evaluate(
        """() => {
            const { start } = MediaRecorder.prototype;
            MediaRecorder.prototype.start = function () {
                MediaRecorder.prototype.start = start;
                start.call(this);
                setTimeout(() => this.stop(), 500);
            };
        }"""
    )
    in_menu(talk, "Record sound")
    expect(attached(talk)).to_have_count(1)
    expect(talk.locator("#prompt")).to_be_focused()
    attached(talk).get_by_role("button", name="Remove").click()


def test_a_recording_can_begin_while_the_last_one_ends(talk: Page) -> None:
    in_menu(talk, "Record sound")
    expect(talk.locator("#recorder-stop")).to_be_visible()
    talk.evaluate(
        """() => {
            const stop = MediaRecorder.prototype.stop;
            MediaRecorder.prototype.stop = function () {
                MediaRecorder.prototype.stop = stop;
                setTimeout(() => stop.call(this), 1500); // the encoder takes its time
            };
        }"""
    )
    talk.evaluate(
        """async () => {
            document.querySelector("#recorder-cancel").click();
            await new Promise((resolve) => setTimeout(resolve));
            document.querySelector("#attach").click(); // hidden now, but not for a script
            for (const item of document.querySelectorAll("[role=menuitem]"))
                if (item.textContent.includes("Record")) item.click();
        }"""
    )
    talk.wait_for_timeout(2500)
    expect(talk.locator("#recorder-stop")).to_be_visible()  # of the second recording
    talk.click("#recorder-stop")
    expect(attached(talk)).to_have_count(1)
    attached(talk).get_by_role("button", name="Remove").click()


@pytest.mark.parametrize(("entry", "begun"), [("Record sound", "#recorder-stop"), ("Take a photo", "#camera-take")])
def test_a_device_is_opened_once_however_often_it_is_chosen(talk: Page, entry: str, begun: str) -> None:
    """Nothing would turn the stream off that is opened before another one."""
    talk.evaluate(
        """() => {
            const { mediaDevices } = navigator;
            const open = MediaDevices.prototype.getUserMedia;
            let allow;
            const allowed = new Promise((resolve) => (allow = resolve));
            globalThis.devices = { asked: 0, allow };
            mediaDevices.getUserMedia = async (wanted) => {
                devices.asked += 1;
                await allowed;
                return open.call(mediaDevices, wanted);
            };
        }"""
    )
    in_menu(talk, entry)
    in_menu(talk, entry)
    talk.evaluate("devices.allow()")
    expect(talk.locator(begun)).to_be_visible()  # a button that is not shown yet is enabled, too
    expect(talk.locator(begun)).to_be_enabled()
    assert talk.evaluate("devices.asked") == 1
    talk.evaluate("() => { delete navigator.mediaDevices.getUserMedia; }")
    if entry == "Record sound":
        talk.click("#recorder-cancel")
    else:
        talk.keyboard.press("Escape")
    expect(talk.locator(begun)).to_be_hidden()
