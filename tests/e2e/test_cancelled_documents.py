"""Documents that are cancelled, removed, added twice, or left by a closed tab while they are read and embedded."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.support.browser import wait_until, watch
from tests.support.chat_page import open_page
from tests.support.documents_page import BERT, INDEX, drop, listed, use_model
from tests.support.pdf_file import endless, pdf, without_time_limit
from tools.serve import Server

LAMP = pdf([[("The Lumo Lamp costs 12 euros.", 11, 80)]])
WORDS = "The Zeta Radio number {} costs {} euros and has a battery that lasts for many days in the cold. "
LONG = "\n\n".join(WORDS.format(i, i) * 8 for i in range(100)).encode()  # of passages that take seconds to embed


@pytest.fixture(scope="module")
def page(context: BrowserContext, server: Server) -> Page:
    context.add_init_script(without_time_limit())
    return open_page(context, server.url)


@pytest.fixture
def dialog(page: Page) -> Iterator[Page]:
    """The page with an open dialog of documents and none stored."""
    errors = watch(page)
    page.click("#documents-button")
    yield page
    expect(page.locator(".document.busy")).to_have_count(0)
    while left := listed(page).count():
        page.locator("#document-list").get_by_role("button", name="Remove").first.click()
        expect(listed(page)).to_have_count(left - 1)
    page.keyboard.press("Escape")
    assert not errors


def row(page: Page, name: str) -> Locator:
    """The row of a file that waits or is read."""
    return page.locator("#document-list .document.busy", has_text=name)


def cancel(page: Page, name: str) -> None:
    page.get_by_role("button", name=f"Cancel {name}").first.click()


def names(page: Page) -> list[str]:
    return [document["name"] for document in page.evaluate(INDEX)["documents"]]


def test_a_waiting_file_is_cancelled_and_the_others_go_on(dialog: Page) -> None:
    drop(dialog, {"endless.pdf": endless(), "second.md": b"Second.", "third.md": b"Third."})
    expect(row(dialog, "endless.pdf")).to_contain_text("Reading")
    expect(row(dialog, "second.md")).to_contain_text("Waiting")
    cancel(dialog, "second.md")
    expect(row(dialog, "second.md")).to_have_count(0)
    expect(dialog.locator("#live")).to_have_text("Cancelled: second.md.")
    expect(row(dialog, "endless.pdf")).to_contain_text("Reading")
    expect(row(dialog, "third.md")).to_contain_text("Waiting")
    cancel(dialog, "endless.pdf")
    expect(listed(dialog)).to_have_count(1)
    assert dialog.locator("#notices .error, #document-errors p").count() == 0
    assert names(dialog) == ["third.md"]


def test_the_reader_s_worker_ends_with_its_file(dialog: Page) -> None:
    with dialog.expect_worker() as worker:
        drop(dialog, {"endless.pdf": endless()})
    dialog.wait_for_timeout(500)
    with worker.value.expect_event("close"):
        cancel(dialog, "endless.pdf")
    drop(dialog, {"lamp.pdf": LAMP})
    expect(listed(dialog)).to_have_count(1)
    assert names(dialog) == ["lamp.pdf"]


def test_a_file_is_cancelled_while_it_is_split(dialog: Page) -> None:
    drop(dialog, {"long.txt": LONG * 20})
    expect(row(dialog, "long.txt")).to_contain_text("Reading")
    dialog.wait_for_timeout(500)
    cancel(dialog, "long.txt")
    expect(row(dialog, "long.txt")).to_have_count(0)
    drop(dialog, {"after.md": b"After."})  # what was cancelled has ended when this one is read
    expect(listed(dialog)).to_have_count(1)
    assert names(dialog) == ["after.md"]


def test_all_files_are_cancelled_at_once(dialog: Page) -> None:
    expect(dialog.locator("#documents-cancel")).to_be_hidden()
    drop(dialog, {"endless.pdf": endless(), "second.md": b"Second.", "third.md": b"Third."})
    dialog.click("#documents-cancel")
    expect(dialog.locator("#document-list .document")).to_have_count(0)
    expect(dialog.locator("#documents-choose")).to_be_focused()
    expect(dialog.locator("#documents-cancel")).to_be_hidden()
    assert dialog.evaluate(INDEX) == {"documents": [], "passages": []}


def test_the_same_file_is_read_once(dialog: Page) -> None:
    drop(dialog, {"endless.pdf": endless(), "same.md": b"Same."})
    drop(dialog, {"same.md": b"Same."})
    expect(row(dialog, "same.md")).to_have_count(1)
    drop(dialog, {"same.md": b"Another version."})  # it replaces the other one
    expect(row(dialog, "same.md")).to_have_count(2)
    cancel(dialog, "endless.pdf")
    expect(dialog.locator(".document.busy")).to_have_count(0)
    index = dialog.evaluate(INDEX)
    assert [passage["text"] for passage in index["passages"]] == ["Another version."]
    assert len(index["documents"]) == 1


@pytest.fixture
def embedding(dialog: Page) -> Iterator[Page]:
    """The dialog with an embedding model."""
    use_model(dialog, BERT)
    expect(dialog.locator("#search-how")).to_contain_text("By meaning, with bert.F16")
    yield dialog
    dialog.get_by_role("button", name="Search by words alone").click()
    expect(dialog.locator("#search-how")).to_contain_text("By words alone")


def begin_to_embed(page: Page) -> None:
    drop(page, {"long.txt": LONG})
    expect(row(page, "long.txt")).to_contain_text("Embedding")


def test_a_file_is_cancelled_while_it_is_embedded(embedding: Page) -> None:
    """What it had replaced comes back, with its vectors."""
    drop(embedding, {"long.txt": b"The version before.", "other.md": b"Another one."})
    expect(listed(embedding)).to_have_count(2)
    before = embedding.evaluate(INDEX)
    begin_to_embed(embedding)
    cancel(embedding, "long.txt")
    expect(listed(embedding)).to_have_count(2)
    expect(embedding.locator(".document.busy")).to_have_count(0)
    assert {p["vector"] for p in before["passages"]} == {64}
    assert sorted(embedding.evaluate(INDEX)["passages"], key=str) == sorted(before["passages"], key=str)
    drop(embedding, {"after.md": b"After."})
    expect(listed(embedding)).to_have_count(3)
    assert {p["vector"] for p in embedding.evaluate(INDEX)["passages"]} == {64}


def test_a_file_is_added_again_before_its_cancelled_job_has_ended(embedding: Page) -> None:
    begin_to_embed(embedding)
    cancel_and_drop = """([name, text]) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([text], name, { lastModified: 1 }));
        document.querySelector("#document-list .document.busy button").click();
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
    }"""
    embedding.evaluate(cancel_and_drop, ["long.txt", LONG.decode()])
    expect(listed(embedding)).to_have_count(1)
    assert [(d["name"], d["model"]) for d in embedding.evaluate(INDEX)["documents"]] == [("long.txt", "bert.F16")]


def test_a_document_is_removed_in_another_tab_while_it_is_embedded(
    embedding: Page, context: BrowserContext, server: Server
) -> None:
    begin_to_embed(embedding)
    other = open_page(context, server.url)
    other.click("#documents-button")
    other.get_by_role("button", name="Remove long.txt").click()
    expect(embedding.locator("#document-list .document")).to_have_count(0)
    other.close()
    assert embedding.evaluate(INDEX) == {"documents": [], "passages": []}
    assert embedding.locator("#notices .error").count() == 0


def test_a_tab_is_closed_while_a_document_is_embedded(context: BrowserContext, server: Server) -> None:
    """It stays, is found by words, and is embedded with the next file."""
    page = open_page(context, server.url)
    page.click("#documents-button")
    use_model(page, BERT)
    expect(page.locator("#search-how")).to_contain_text("By meaning, with bert.F16")
    begin_to_embed(page)
    drop(page, {"waiting.md": b"Waits."})
    page.close()
    page = open_page(context, server.url)
    page.click("#documents-button")
    expect(listed(page)).to_have_count(1)
    index = page.evaluate(INDEX)
    assert [(d["name"], d["model"]) for d in index["documents"]] == [("long.txt", None)]
    assert {p["vector"] for p in index["passages"]} == {None}
    drop(page, {"after.md": b"After."})
    wait_until(page, f"(await ({INDEX})()).passages.every(({{ vector }}) => vector === 64)")
    for name in ("long.txt", "after.md"):
        page.get_by_role("button", name=f"Remove {name}").click()
    page.get_by_role("button", name="Search by words alone").click()
    page.close()


def test_embedding_all_documents_is_cancelled(dialog: Page) -> None:
    """The documents stay; those without vectors are found by words."""
    drop(dialog, {"long.txt": LONG})
    expect(listed(dialog)).to_have_count(1)
    use_model(dialog, BERT)
    expect(dialog.locator("#search-how")).to_contain_text("Embedding")
    dialog.click("#embedder-cancel")
    expect(dialog.locator("#search-how")).to_contain_text("By meaning, with bert.F16")
    expect(dialog.locator("#embedder-cancel")).to_be_hidden()
    index: Any = dialog.evaluate(INDEX)
    assert [(d["name"], d["model"]) for d in index["documents"]] == [("long.txt", None)]
    dialog.get_by_role("button", name="Search by words alone").click()
