"""Opening models in the page: local files, addresses, and the errors of bad ones."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.attachments import transfer_of
from tests.support.browser import new_profile
from tests.support.chat_page import (
    ask,
    close_settings,
    keep_engine,
    last_answer,
    new_chat,
    open_page,
    send,
    use_wisp_mini,
    wait_answer,
    wait_ready,
)
from tools.paths import ROOT
from tools.serve import Server

REMOVE_ALL = """async () => {
  const { models } = await (await import("/wisp.js")).Wisp.create();
  for (const { url } of await models.cached()) await models.delete(url);
}"""
Q8 = ROOT / "static" / "models" / "wisp-mini-q8_0.gguf"


@pytest.fixture(scope="module")
def opened(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """One page for all tests of this module."""
    context = new_profile(chromium("swiftshader"), service_worker=False)
    keep_engine(context, server.url)
    context.add_init_script("window.asked = 0; navigator.storage.persist = async () => (asked++, true);")
    yield open_page(context, server.url)
    context.close()


@pytest.fixture
def talk(opened: Page) -> Page:
    """The page with an empty chat and the model that it begins with."""
    new_chat(opened)
    use_wisp_mini(opened)
    return opened


def error_notice(page: Page) -> str:
    """Wait for the notice about the failed load; return its text."""
    notice = page.locator("#notices .error[data-key=load]")  # the queue of downloads may have one of its own
    expect(notice).to_be_visible()
    return notice.inner_text()


def test_the_picker_shows_the_catalog_and_switches(talk: Page) -> None:
    """Wisp Mini is in it once, although the API has a variant of it."""
    talk.click("#model-button")
    models = talk.locator("#model-list button")
    expect(models).to_have_count(2)
    expect(models.first).to_contain_text("in use")
    talk.fill("#url-input", "/repo/static/models/wisp-mini-q8_0.gguf")
    talk.press("#url-input", "Enter")
    wait_ready(talk)
    expect(talk.locator("#model-name")).not_to_have_text("Wisp Mini")
    talk.click("#model-button")
    expect(models.first).not_to_contain_text("in use")
    models.first.click()
    wait_ready(talk)
    expect(talk.locator("#model-name")).to_have_text("Wisp Mini")


def test_cached_models_can_be_removed(talk: Page) -> None:
    """The page still answers, because the model is in memory."""
    talk.click("#model-button")
    cached = talk.locator("#cached-list li")
    expect(cached.first).to_contain_text("MB")
    count = cached.count()
    name = cached.first.locator("span").inner_text()
    talk.get_by_role("button", name=f"Remove {name} from this browser").click()
    expect(cached).to_have_count(count - 1)
    talk.keyboard.press("Escape")
    assert "Paris" in ask(talk, "What is the capital of France?")


def exposed(page: Page) -> str:
    """The texts that assistive technology gets of the page now, without what a modal dialog makes inert."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    return "\n".join(str(node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"])


def test_what_a_sheet_does_is_read_out_and_its_errors_are_in_it(talk: Page) -> None:
    """All else of the page is inert while a sheet is open, its live region and notices, too."""
    talk.click("#model-button")
    talk.fill("#url-input", "/repo/static/models/wisp-mini-q8_0.gguf?once")
    talk.press("#url-input", "Enter")
    wait_ready(talk)
    talk.click("#model-button")
    item = talk.locator("#cached-list li", has_text="wisp-mini-q8_0")
    item.get_by_role("button", name="Remove wisp-mini-q8_0 from this browser").click()
    expect(talk.locator("#live")).to_have_text("wisp-mini-q8_0 is deleted.")
    assert "wisp-mini-q8_0 is deleted." in exposed(talk)
    expect(item).to_have_count(0)
    talk.fill("#url-input", "/repo/static/models/wisp-mini-q8_0.gguf?again")
    talk.press("#url-input", "Enter")
    wait_ready(talk)
    talk.click("#model-button")
    expect(item).to_have_count(1)
    talk.evaluate(REMOVE_ALL)  # as another tab may
    item.get_by_role("button", name="Remove wisp-mini-q8_0 from this browser").click()
    notice = talk.locator("#model-dialog .notice.error")
    expect(notice).to_contain_text("This failed.")
    assert "This failed." in exposed(talk)
    expect(item).to_have_count(0)
    talk.keyboard.press("Escape")
    talk.locator("#notices .error").get_by_role("button", name="Dismiss").click()
    expect(talk.locator("#prompt")).to_be_focused()


def test_a_file_of_this_computer_answers(talk: Page) -> None:
    talk.click("#model-button")
    with talk.expect_file_chooser() as chooser:
        talk.get_by_role("button", name="Open a .gguf file").click()
    chooser.value.set_files(Q8)
    expect(talk.locator("#model-name")).to_have_text("wisp-mini-q8_0")
    wait_ready(talk)
    assert "Madrid" in ask(talk, "What is the capital of Spain?")


def test_a_bad_file_is_refused_and_the_old_model_answers(talk: Page) -> None:
    name = talk.inner_text("#model-name")
    talk.set_input_files("#file-input", {"name": "notes.gguf", "mimeType": "", "buffer": b"Dear diary, today ..." * 99})
    text = error_notice(talk)
    assert "notes was not loaded" in text
    assert "GGUF" in text
    assert f"{name} still answers" in text
    expect(talk.locator("#model-name")).to_have_text(name)
    assert "Rome" in ask(talk, "What is the capital of Italy?")
    talk.locator("#notices .error").get_by_role("button", name="Dismiss").click()
    expect(talk.locator("#notices .error")).to_have_count(0)


def test_the_browser_is_asked_once_not_to_evict_models(talk: Page) -> None:
    talk.set_input_files("#file-input", Q8)
    wait_ready(talk)
    expect(talk.locator("#model-name")).to_have_text(Q8.stem)
    assert talk.evaluate("asked") == 1  # for Wisp Mini, which was loaded before


def test_a_truncated_file_is_refused(talk: Page, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(Q8.read_bytes()[:5_000_000])
    talk.set_input_files("#file-input", cut)
    assert "cut was not loaded" in error_notice(talk)
    assert "Rome" in ask(talk, "What is the capital of Italy?")


def test_a_file_can_be_dropped_on_the_page(talk: Page) -> None:
    transfer = talk.evaluate_handle(
        """() => {
            const transfer = new DataTransfer();
            transfer.items.add(new File(["not a model"], "dropped.gguf"));
            return transfer;
        }"""
    )
    talk.dispatch_event("body", "dragenter", {"dataTransfer": transfer})
    expect(talk.locator("#drop")).to_be_visible()
    talk.dispatch_event("body", "drop", {"dataTransfer": transfer})
    expect(talk.locator("#drop")).to_be_hidden()
    assert "dropped was not loaded" in error_notice(talk)


def test_a_dropped_file_is_a_model_by_its_name_or_its_first_bytes(talk: Page) -> None:
    """What is neither is not said to be a bad model."""
    files = transfer_of(talk, ("letter.docx", "", b"PK and so on"), ("sha256-1", "", b"GGUF, as Ollama names them"))
    talk.dispatch_event("body", "drop", {"dataTransfer": files})
    assert "sha256-1 was not loaded" in error_notice(talk)
    letter = talk.locator('#notices [data-key="medium letter.docx"]')
    expect(letter).to_contain_text("letter.docx was not added.")
    letter.get_by_role("button", name="Dismiss").click()


def test_an_address_is_loaded_or_refused(talk: Page, server: Server) -> None:
    def load(address: str) -> None:
        talk.click("#model-button")
        talk.fill("#url-input", address)
        talk.press("#url-input", "Enter")

    load(f"{server.url}assets/no-such-model.gguf")
    assert "404" in error_notice(talk)
    load("not an address")
    expect(talk.locator("#url-input")).to_have_attribute("aria-invalid", "true")
    expect(talk.locator("#url-error")).to_contain_text("ends in .gguf")
    expect(talk.locator("#url-error")).to_be_in_viewport(ratio=0.9)
    talk.keyboard.press("Escape")
    talk.click("#model-button")
    expect(talk.locator("#url-error")).to_be_hidden()
    talk.keyboard.press("Escape")
    load("/repo/tests/golden/split/llama.split.F16-00002-of-00003.gguf")  # any file of a set stands for all
    expect(talk.locator("#model-name")).to_have_text("llama.split.F16")
    wait_ready(talk)
    load("/repo/static/models/wisp-mini-q8_0.gguf")
    expect(talk.locator("#notices .error")).to_have_count(0)
    expect(talk.locator("#model-name")).to_have_text("wisp-mini-q8_0")
    wait_ready(talk)
    talk.reload()  # the choice is saved
    wait_ready(talk)
    expect(talk.locator("#model-name")).to_have_text("wisp-mini-q8_0")


@pytest.fixture
def cpu_context(chromium: Callable[[str | None], Browser]) -> Iterator[BrowserContext]:
    """A fresh profile without WebGPU."""
    made = new_profile(chromium(None), service_worker=False)
    yield made
    made.close()


def test_an_engine_that_does_not_start_can_be_started_again(context: BrowserContext, server: Server) -> None:
    page = context.new_page()
    page.route("**/assets/worker-*.js", lambda route: route.abort())
    page.goto(server.url)
    assert "worker did not load" in error_notice(page)
    page.unroute("**/assets/worker-*.js")
    page.get_by_role("button", name="Try again").click()
    wait_ready(page)
    assert "Rome" in ask(page, "What is the capital of Italy?")


def test_a_message_sent_while_the_model_loads_is_answered(cpu_context: BrowserContext, server: Server) -> None:
    page = cpu_context.new_page()
    page.goto(server.url)
    expect(page.locator("#loading")).to_be_visible()
    assert "Rome" in ask(page, "What is the capital of Italy?")


def test_settings_that_are_closed_unchanged_load_nothing(cpu_context: BrowserContext, server: Server) -> None:
    """Though a model with another context has been loaded while they were open."""
    page = cpu_context.new_page()
    page.add_init_script("""localStorage["wisp.settings.models"] = '{"Wisp Mini": {"context_length": 256}}'""")
    page.goto(server.url)
    page.get_by_role("button", name="Settings").click()
    wait_ready(page)
    page.evaluate(
        """() => {
            globalThis.loads = 0;
            const seen = () => (loads += document.querySelector("#model-dot").className === "dot busy");
            new MutationObserver(seen).observe(document.querySelector("#model-dot"), { attributes: true });
        }"""
    )
    close_settings(page)
    assert page.evaluate("loads") == 0
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Context length").fill("512")  # of all models; this one's own stays
    close_settings(page)
    assert page.evaluate("loads") == 0
    page.get_by_role("button", name="Settings").click()
    page.get_by_text("This model", exact=True).click()
    page.get_by_label("Context length").fill("384")
    close_settings(page)
    assert page.evaluate("loads") > 0


def test_a_load_can_be_cancelled_and_resumed(cpu_context: BrowserContext, server: Server) -> None:
    page = cpu_context.new_page()
    page.goto(server.url)
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#loading")).to_be_hidden()
    expect(page.locator("#notices")).to_contain_text("No model is loaded")
    send(page, "What is the capital of Italy?")
    expect(page.locator(".answer-error")).to_contain_text("No model is loaded")
    page.locator("#notices").get_by_role("button", name="Load").click()
    wait_ready(page)
    page.get_by_role("button", name="Answer again").click()
    assert "Rome" in wait_answer(page)


def test_the_context_length_is_obeyed_and_its_error_explained(cpu_context: BrowserContext, server: Server) -> None:
    page = open_page(cpu_context, server.url, settings={"context_length": 256, "max_tokens": 8})
    page.click("#model-button")
    expect(page.locator("#model-facts")).to_contain_text("256 tokens")
    page.keyboard.press("Escape")
    send(page, "Remember this number: " + "4 8 15 16 23 42 " * 25)
    error = last_answer(page).locator(".answer-error")
    expect(error).to_have_attribute("data-code", "context_length_exceeded")
    expect(error).to_contain_text("Settings")
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Context length").fill("640")
    close_settings(page)
    page.get_by_role("button", name="Answer again").click()
    wait_answer(page)
    expect(last_answer(page).locator(".answer-error")).to_have_count(0)
