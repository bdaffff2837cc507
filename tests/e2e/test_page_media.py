"""Pictures and sound in the page: a real camera and microphone as far as the browser can tell, and real files."""

import base64
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, JSHandle, Locator, Page, Playwright, expect

from tests.support import browser as browsers
from tests.support.browser import watch
from tests.support.chat_page import ask, open_page, send, wait_ready
from tests.support.media import MEDIA, VISION
from tests.support.waiting import wait_for
from tools.serve import Server

SEES = VISION.parent / "sees"  # drawings with questions
FAKE_DEVICES = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
TRANSFER = """([files]) => {
    const transfer = new DataTransfer();
    for (const [name, type, data] of files)
        transfer.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name, { type }));
    return transfer;
}"""
PASTE = """(files) => document.body.dispatchEvent(
    new ClipboardEvent("paste", { clipboardData: files, bubbles: true, cancelable: true }),
)"""  # true: the browser pastes by itself
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
# The media of the newest chat's questions as IndexedDB has them: [kind, name, type, bytes in Base64].
STORED = """async () => {
    const db = await new Promise((resolve) => {
        const opening = indexedDB.open("wisp-page");
        opening.onsuccess = () => resolve(opening.result);
    });
    const all = (name) => new Promise((resolve) => {
        const asked = db.transaction(name).objectStore(name).getAll();
        asked.onsuccess = () => resolve(asked.result);
    });
    const [chats, messages] = [await all("chats"), await all("messages")];
    db.close();
    const newest = chats.sort((a, b) => b.updated - a.updated)[0]?.id;
    const media = messages.filter(({ chat }) => chat === newest).flatMap(({ media = [] }) => media);
    return Promise.all(media.map(async ({ kind, name, blob }) => {
        const bytes = new Uint8Array(await blob.arrayBuffer());
        let text = "";
        for (let i = 0; i < bytes.length; i += 9000) text += String.fromCharCode(...bytes.subarray(i, i + 9000));
        return [kind, name, blob.type, btoa(text)];
    }));
}"""


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


def attached(page: Page) -> Locator:
    return page.locator("#attachments > li")


def choose(page: Page, *names: str) -> None:
    """Choose files of the golden media for the next question."""
    page.set_input_files("#attach-input", [MEDIA / name for name in names])


def transfer_of(page: Page, *files: tuple[str, str, bytes]) -> JSHandle:
    encoded = [(name, type, base64.b64encode(data).decode()) for name, type, data in files]
    return page.evaluate_handle(TRANSFER, [encoded])


def clear(page: Page) -> None:
    for button in attached(page).get_by_role("button").all():
        button.click()
    expect(page.locator("#attachments")).to_be_hidden()


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
    talk.keyboard.press("Escape")
    clear(talk)


def test_media_of_a_chat_are_stored_exported_and_imported(talk: Page, tmp_path: Path) -> None:
    choose(talk, "wide.png")
    expect(attached(talk)).to_have_count(1)
    send(talk, "")
    expect(talk.locator(".answer-error")).to_be_visible()
    data = base64.b64encode((MEDIA / "wide.png").read_bytes()).decode()
    wait_for(lambda: talk.evaluate(STORED) == [["image", "wide.png", "image/png", data]])
    talk.reload()
    wait_ready(talk)
    picture = talk.locator("#thread .picture img")
    expect(picture).to_have_js_property("naturalWidth", 150)
    picture.click()
    expect(talk.get_by_role("dialog", name="wide.png")).to_be_visible()
    talk.keyboard.press("Escape")
    with talk.expect_download() as download:
        in_menu_of_chats(talk, "Save all as JSON")
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    (chat,) = [chat for chat in saved["chats"] if chat["info"]["title"] == "wide.png"]
    ((medium,),) = [message["media"] for message in chat["messages"] if "media" in message]
    assert (medium["kind"], medium["name"], medium["data"]) == ("image", "wide.png", f"data:image/png;base64,{data}")
    chat["info"] |= {"id": "again", "title": "Again", "updated": chat["info"]["updated"] + 1}
    path = tmp_path / "again.json"
    path.write_text(json.dumps({**saved, "chats": [chat]}))
    talk.set_input_files("#import-input", path)
    talk.locator("#chat-rows").get_by_text("Again").click()
    expect(picture).to_have_js_property("naturalWidth", 150)


def test_the_bytes_of_a_file_are_read_whatever_its_type_is(talk: Page) -> None:
    """An export had wrong bytes of a type with a comma in quotes."""
    code = """async (types) => {
        const { base64Of } = await import("/repo/app/sdk/base64.js");
        return Promise.all(types.map((type) => base64Of(new Blob(type === "empty" ? [] : ["Tea"], { type }))));
    }"""
    assert talk.evaluate(code, ['text/html;profile="a,b"', "", "empty"]) == ["VGVh", "VGVh", ""]


# The names of what tabs have stored of messages that were not sent.
UNSENT = """async () => {
    const opening = indexedDB.open("wisp-unsent");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const reading = db.transaction("tabs").objectStore("tabs").getAll();
    const records = await new Promise((resolve) => (reading.onsuccess = () => resolve(reading.result)));
    db.close();
    return records.flat().map(({ name }) => name);
}"""


# Notes how many media each change stores.
COUNT_STORED = """(() => {
    const { put } = IDBObjectStore.prototype;
    globalThis.stored = [];
    IDBObjectStore.prototype.put = function (value, ...key) {
        if (this.name === "tabs") stored.push(value.length);
        return put.call(this, value, ...key);
    };
})()"""


def test_media_that_were_not_sent_outlive_a_reload(talk: Page) -> None:
    """Those of a private chat are not stored."""
    talk.add_init_script(COUNT_STORED)
    choose(talk, "wide.png", "half.wav")
    expect(attached(talk)).to_have_count(2)
    wait_for(lambda: talk.evaluate(UNSENT) == ["wide.png", "half.wav"])
    talk.reload()
    expect(attached(talk)).to_have_count(2)
    assert talk.evaluate("stored") == [2], "a second reload at any time would lose none"
    expect(attached(talk).locator("img")).to_have_js_property("naturalWidth", 150)
    expect(attached(talk).nth(1)).to_contain_text("0:01")
    expect(talk.locator("#send")).to_be_enabled()
    wait_ready(talk)
    talk.get_by_role("button", name="Remove half.wav").click()
    wait_for(lambda: talk.evaluate(UNSENT) == ["wide.png"])
    send(talk, "What is it?")
    expect(talk.locator(".answer-error")).to_be_visible()
    wait_for(lambda: talk.evaluate(UNSENT) == [])
    talk.click("#private-chat")
    choose(talk, "square.png")
    expect(attached(talk)).to_have_count(1)
    assert talk.evaluate(UNSENT) == []
    talk.reload()
    wait_ready(talk)
    expect(attached(talk)).to_have_count(0)


def test_a_duplicated_tab_stores_its_media_apart(talk: Page) -> None:
    choose(talk, "wide.png")
    wait_for(lambda: talk.evaluate(UNSENT) == ["wide.png"])
    with talk.expect_popup() as opening:
        talk.evaluate("void open(location.href)")  # with a copy of the sessionStorage, as a duplicate
    other = opening.value
    expect(attached(other)).to_have_count(1)
    wait_for(lambda: talk.evaluate(UNSENT) == ["wide.png", "wide.png"])
    other.get_by_role("button", name="Remove wide.png").click()
    wait_for(lambda: talk.evaluate(UNSENT) == ["wide.png"])
    other.close()
    talk.reload()
    expect(attached(talk)).to_have_count(1)
    wait_ready(talk)
    clear(talk)
    wait_for(lambda: talk.evaluate(UNSENT) == [])


def test_media_of_tabs_that_were_closed_long_ago_are_deleted(talk: Page) -> None:
    talk.evaluate(
        """async () => {
            const opening = indexedDB.open("wisp-unsent");
            const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
            const store = db.transaction("tabs", "readwrite").objectStore("tabs");
            const record = [{ kind: "image", name: "old.png", blob: new Blob(["old"]) }];
            for (const days of [6, 8]) {
                const time = new Date(Date.now() - days * 24 * 3600 * 1000).toISOString();
                await new Promise((resolve) => (store.put(record, `${time} a`).onsuccess = resolve));
            }
            db.close();
        }"""
    )
    talk.reload()
    wait_ready(talk)
    wait_for(lambda: len(talk.evaluate(UNSENT)) == 1)
    expect(attached(talk)).to_have_count(0)


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


def in_menu_of_chats(page: Page, name: str) -> None:
    page.click("#chats-more")
    page.get_by_role("menuitem", name=name).click()
