"""Questions about documents: real files in the real page. A real embedding model searches, and Wisp Mini answers."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.browser import watch
from tests.support.chat_page import ask, last_answer, new_chat, open_page, wait_ready
from tests.support.documents_page import BERT, INDEX, drop, listed, use_model
from tests.support.pdf_file import endless, pdf, repeated, unpacking
from tools import minilm
from tools.paths import NODE_MODULES
from tools.serve import Server

SERVICE_WORKER = True

MINILM = NODE_MODULES / ".cache" / "wisp" / "minilm.gguf"
MANUAL = pdf(
    [
        [("The Aldermoor Museum", 24, 80), ("The Aldermoor Museum was built in 1874. It has", 11, 130),
         ("three floors and a gar-", 11, 144), ("den with old trees.", 11, 158)],
        [("Visits (2025)", 18, 80), ("The Aldermoor Museum opens at 10 am. The Aldermoor", 11, 120),
         ("Museum is closed on Mondays.", 11, 134)],
    ]
)  # fmt: skip
NOTES = """# Shop

The Zorbix Pro costs 420 euros.

## Staff

Tomas Reed lives in Oslo. Tomas Reed works as a baker.
"""
HOSTILE = """<img src=x onerror="globalThis.pwned = 1"><script>globalThis.pwned = 2</script>

The Kelvo Mini costs 7 euros. [link](javascript:globalThis.pwned=3) <iframe srcdoc="<script>parent.pwned=4</script>">
"""


@pytest.fixture(scope="module")
def page(context: BrowserContext, server: Server) -> Page:
    return open_page(context, server.url)


@pytest.fixture
def talk(page: Page) -> Iterator[Page]:
    errors = watch(page)
    new_chat(page)
    yield page
    assert not errors
    assert page.evaluate("globalThis.pwned") is None


def test_dropped_files_are_indexed(talk: Page) -> None:
    expect(talk.locator("#ask-documents")).to_be_hidden()
    drop(talk, {"manual.pdf": MANUAL, "notes.md": NOTES.encode(), "evil.txt": HOSTILE.encode()})
    talk.click("#documents-button")
    expect(listed(talk)).to_have_count(3)  # the page first downloads its PDF reader
    expect(listed(talk).nth(0)).to_contain_text("2 pages · 2 passages")
    expect(talk.locator("#search-how")).to_contain_text("By words alone")
    index = talk.evaluate(INDEX)
    assert [p for p in index["passages"] if p["document"] == "manual.pdf"] == [
        {
            "text": "The Aldermoor Museum was built in 1874. It has three floors and a garden with old trees.",
            "heading": "The Aldermoor Museum", "page": 1, "order": 0, "document": "manual.pdf", "vector": None,
        },
        {
            "text": "The Aldermoor Museum opens at 10 am. The Aldermoor Museum is closed on Mondays.",
            "heading": "Visits (2025)", "page": 2, "order": 1, "document": "manual.pdf", "vector": None,
        },
    ]  # fmt: skip
    talk.keyboard.press("Escape")
    expect(talk.locator("#ask-documents")).to_have_attribute("aria-pressed", "true")


def test_an_answer_cites_its_passage(talk: Page) -> None:
    assert "10 am" in ask(talk, "When does the Aldermoor Museum open?")
    answer = last_answer(talk)
    cite = answer.locator(".body .cite")
    expect(cite).to_have_attribute("aria-label", "Source 1: manual.pdf · p. 2 · Visits (2025)")
    source = answer.locator(".source.supporting")
    expect(source.locator("summary")).to_contain_text("manual.pdf · p. 2 · Visits (2025)")
    expect(source.locator("blockquote")).to_be_hidden()
    cite.click()
    expect(source.locator("blockquote")).to_contain_text("opens at 10 am")
    expect(source.locator("summary")).to_be_focused()


def test_missing_information_is_reported(talk: Page) -> None:
    assert "Madrid" in ask(talk, "What is the capital of Spain?")
    expect(last_answer(talk).locator(".sources")).to_have_text("Nothing in the documents matched the question.")


def test_a_hostile_document_stays_text(talk: Page) -> None:
    assert "7 euros" in ask(talk, "How much does the Kelvo Mini cost?")
    answer = last_answer(talk)
    for summary in answer.locator(".sources summary").all():
        if summary.is_visible() and summary.locator("..").get_attribute("open") is None:
            summary.click()
    expect(answer.locator(".sources")).to_contain_text("<img src=x onerror")
    assert answer.locator(":is(script, img, iframe, svg:not(.icon))").count() == 0


def test_questions_can_go_to_the_model_alone(talk: Page) -> None:
    talk.click("#ask-documents")
    expect(talk.locator("#ask-documents")).to_have_attribute("aria-pressed", "false")
    ask(talk, "What is the capital of Italy?")
    expect(last_answer(talk).locator(".sources")).to_have_count(0)
    talk.click("#ask-documents")


def test_an_embedding_model_finds_paraphrases(talk: Page) -> None:
    MINILM.parent.mkdir(parents=True, exist_ok=True)
    minilm.convert(MINILM, f16=True)
    talk.click("#documents-button")
    use_model(talk, "no address")
    expect(talk.locator("#embedder-url")).to_have_attribute("aria-invalid", "true")
    expect(talk.locator("#embedder-url-error")).to_contain_text("ends in .gguf")
    use_model(talk, "/repo/tests/golden/llama/tokens.gguf")
    expect(talk.locator("#embedder-url-error")).to_be_hidden()
    expect(talk.locator("#embedder-error")).to_contain_text("404")
    use_model(talk, "/repo/node_modules/.cache/wisp/minilm.gguf")
    expect(talk.locator("#search-how")).to_contain_text("By meaning, with minilm")
    talk.keyboard.press("Escape")
    expect(talk.locator("#model-name")).to_have_text("Wisp Mini")  # the chat model still answers
    index = talk.evaluate(INDEX)
    assert {p["vector"] for p in index["passages"]} == {384}
    assert {d["model"] for d in index["documents"]} == {"minilm"}
    ask(talk, "His profession? Which town is home?")  # shares no word with the passage
    expect(last_answer(talk).locator(".source summary").first).to_contain_text("notes.md")


def test_another_embedding_model_embeds_anew(talk: Page) -> None:
    talk.click("#documents-button")
    talk.get_by_role("button", name="Search by words alone").click()
    expect(talk.locator("#search-how")).to_contain_text("By words alone")
    use_model(talk, BERT)
    expect(talk.locator("#search-how")).to_contain_text("By meaning, with bert.F16")
    assert {p["vector"] for p in talk.evaluate(INDEX)["passages"]} == {64}
    talk.keyboard.press("Escape")


def test_documents_survive_an_offline_reload(context: BrowserContext, page: Page) -> None:
    page.evaluate(
        """async () => {
            await navigator.serviceWorker.ready;
            while (!navigator.serviceWorker.controller) await new Promise((resolve) => setTimeout(resolve, 50));
        }"""
    )
    context.set_offline(True)
    page.reload()
    wait_ready(page)
    page.locator("#chat-list .chat-open", has_text="profession").click()
    expect(last_answer(page).locator(".source summary").first).to_contain_text("notes.md")
    new_chat(page)
    drop(page, {"second.pdf": pdf([[("The Lumo Lamp costs 12 euros.", 11, 80)]])})
    page.click("#documents-button")
    expect(listed(page)).to_have_count(4)
    page.keyboard.press("Escape")
    assert "12 euros" in ask(page, "How much does the Lumo Lamp cost?")
    expect(last_answer(page).locator(".source.supporting")).to_contain_text("second.pdf · p. 1")
    assert {p["vector"] for p in page.evaluate(INDEX)["passages"]} == {64}
    context.set_offline(False)


def test_removing_a_document_removes_its_passages(talk: Page) -> None:
    talk.click("#documents-button")
    talk.get_by_role("button", name="Remove manual.pdf").click()
    expect(listed(talk)).to_have_count(3)
    index = talk.evaluate(INDEX)
    assert "manual.pdf" not in [d["name"] for d in index["documents"]]
    assert all(p["document"] for p in index["passages"])
    talk.set_input_files("#documents-input", {"name": "notes.md", "mimeType": "", "buffer": b"New notes."})
    expect(talk.locator("#live")).to_have_text("notes.md is ready.")
    expect(listed(talk)).to_have_count(3)  # the newer version replaces the older one
    assert [p["text"] for p in talk.evaluate(INDEX)["passages"] if p["document"] == "notes.md"] == ["New notes."]
    talk.keyboard.press("Escape")


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("scan.pdf", lambda: pdf([[]]), "OCR"),
        ("broken.pdf", lambda: b"%PDF-1.4 and then nothing", "not a PDF file, or it is damaged"),
        ("bomb.pdf", lambda: unpacking(270), "unpacks to more than can be read"),
        ("pages.pdf", lambda: repeated(20_001), "too long to be read"),
        ("tool.txt", lambda: b"\x7fELF\x00\x01\x02", "not a text file"),
        ("empty.md", lambda: b" \n", "empty"),
    ],
    ids=["scan", "broken", "unpacking", "pages", "binary", "empty"],
)
def test_unreadable_files_are_reported(talk: Page, name: str, make: Callable[[], bytes], said: str) -> None:
    drop(talk, {name: make()})
    notice = talk.locator("#notices .error")
    expect(notice).to_contain_text(f"{name} was not read.")
    expect(notice).to_contain_text(said)
    notice.get_by_role("button", name="Dismiss").click()
    assert name not in [d["name"] for d in talk.evaluate(INDEX)["documents"]]


def test_a_page_that_takes_for_ever_is_given_up(talk: Page) -> None:
    """The page's clock jumps 30 s ahead while pdf.js is at work. Another file can be read afterwards."""
    talk.clock.install()
    with talk.expect_worker():
        drop(talk, {"endless.pdf": endless()})
    notice = talk.locator("#notices .error")
    talk.wait_for_timeout(2000)
    assert notice.count() == 0
    talk.clock.fast_forward(31_000)
    expect(notice).to_contain_text("takes longer than 30 s")
    notice.get_by_role("button", name="Dismiss").click()
    talk.clock.resume()
    drop(talk, {"fine.pdf": pdf([[("The Zeta Radio costs 9 euros.", 11, 80)]])})
    expect(talk.locator("#live")).to_have_text("fine.pdf is ready.")
