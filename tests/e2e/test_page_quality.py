"""The sheet of quality figures on the real page: what is measured, progress, cancelling, errors, copying."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.browser import new_profile, watch
from tests.support.chat_page import ask, open_page
from tools.paths import ROOT
from tools.serve import Server

GOLDEN = json.loads((ROOT / "tests" / "golden" / "quality.json").read_text(encoding="utf-8"))
MEASURED_MS = 300_000  # a busy machine needs eight times as long as an idle one


@pytest.fixture(scope="module")
def opened(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[tuple[Page, list[str]]]:
    context = new_profile(chromium(None), service_worker=False, permissions=["clipboard-read", "clipboard-write"])
    page = open_page(context, server.url)
    yield page, watch(page)
    context.close()


@pytest.fixture
def sheet(opened: tuple[Page, list[str]]) -> Iterator[Locator]:
    """The open sheet; a test fails if the page logged an error."""
    page, errors = opened
    errors.clear()
    page.click("#model-button")
    page.get_by_role("button", name="Quality figures").click()
    found = page.get_by_role("dialog", name="Quality figures")
    expect(found.get_by_role("button", name="Measure")).to_be_enabled()
    yield found
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    assert not errors


def choose(sheet: Locator, measure: str, text: str, *, chunk: int | None = None) -> None:
    """Choose what to measure and on which text."""
    sheet.get_by_role("radio", name=measure).check(force=True)
    sheet.locator("textarea").fill(text)
    if chunk:
        sheet.get_by_label("Tokens of a chunk").fill(str(chunk))


def measure(sheet: Locator) -> dict[str, str]:
    """Press Measure and wait; return the figures of the new card."""
    sheet.get_by_role("button", name="Measure").click()
    expect(sheet.locator("p[role=status]")).to_contain_text("Done.", timeout=MEASURED_MS)
    card = sheet.locator(".quality-result").first
    return dict(zip(card.locator("dt").all_inner_texts(), card.locator("dd").all_inner_texts(), strict=True))


def test_the_perplexity_of_a_text_is_the_sdk_s_and_is_copied(sheet: Locator) -> None:
    choose(sheet, "Perplexity", GOLDEN["text"], chunk=GOLDEN["n_ctx"])
    found = measure(sheet)
    assert float(found["Perplexity"].split(" ± ")[0].replace(",", "")) == pytest.approx(
        GOLDEN["model"]["perplexity"], rel=0.03
    )
    assert found["Chunks"] == str(GOLDEN["model"]["chunks"])
    assert found["Measured with"] == "the text in the field"
    expect(sheet.get_by_role("button", name="Measure")).to_be_focused()
    sheet.get_by_role("button", name="Copy the figures").first.click()
    expect(sheet.locator(".quality-result .done")).to_be_visible()
    lines = sheet.page.evaluate("navigator.clipboard.readText()").split("\n")
    assert lines[0] == "Perplexity of Wisp Mini"
    assert lines[1] == f"Perplexity\t{found['Perplexity']}"


def test_the_divergence_from_another_model_loads_it_first(sheet: Locator) -> None:
    choose(sheet, "Divergence", GOLDEN["text"], chunk=GOLDEN["n_ctx"])
    sheet.get_by_label("Compared with").select_option(label="Wisp Mini, 8-bit")
    found = measure(sheet)
    assert float(found["Mean divergence"].split()[0]) == pytest.approx(GOLDEN["divergence"]["mean"], rel=0.1)
    assert float(found["Same most probable token"].strip("%")) > 80
    expect(sheet.page.locator("#model-name")).to_have_text("Wisp Mini")  # it still answers


def test_questions_are_read_from_a_file(sheet: Locator, tmp_path: Path) -> None:
    questions = GOLDEN["questions"]
    lines = [json.dumps({name: one[name] for name in ("question", "choices", "answer")}) for one in questions]
    right = sum(one["scores"].index(max(one["scores"])) == one["answer"] for one in questions)
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    sheet.get_by_role("radio", name="Questions").check(force=True)
    sheet.get_by_label("A text file").set_input_files(file)
    expect(sheet.locator("textarea")).to_be_hidden()
    found = measure(sheet)
    assert (found["Right answers"], found["Questions"]) == (str(right), str(len(questions)))
    assert found["Measured with"] == "questions.jsonl"
    sheet.get_by_role("button", name="Remove the file").click()
    expect(sheet.locator("textarea")).to_be_visible()


@pytest.mark.parametrize(
    ("kind", "text", "chunk", "error"),
    [
        ("Perplexity", "  ", None, "Write or paste a text, or open a file."),
        ("Perplexity", "Too short.", 64, "The text is too short for two chunks."),
        ("Perplexity", GOLDEN["text"], 2, "A chunk has 4 to "),
        ("Questions", '{"question": "?", "choices": ["one"], "answer": 0}', None, "Question 1 is not"),
        ("Questions", "{", None, "Line 1 of the questions is not JSON."),
    ],
    ids=["none", "short", "chunk", "choices", "json"],
)
def test_what_cannot_be_measured_says_why(sheet: Locator, kind: str, text: str, chunk: int | None, error: str) -> None:
    choose(sheet, kind, text, chunk=chunk)
    sheet.get_by_role("button", name="Measure").click()
    expect(sheet.get_by_role("alert")).to_contain_text(error)
    expect(sheet.get_by_role("button", name="Measure")).to_be_enabled()
    if chunk:
        sheet.get_by_label("Tokens of a chunk").fill("64")


def test_a_file_that_is_no_text_is_refused(sheet: Locator) -> None:
    sheet.get_by_role("radio", name="Perplexity").check(force=True)
    sheet.get_by_label("A text file").set_input_files({"name": "a.bin", "mimeType": "", "buffer": b"GGUF\0\0"})
    sheet.get_by_role("button", name="Measure").click()
    expect(sheet.get_by_role("alert")).to_have_text("a.bin is no text file.")
    sheet.get_by_role("button", name="Remove the file").click()


def test_it_goes_on_while_the_sheet_is_closed_and_ends_when_cancelled(sheet: Locator) -> None:
    page = sheet.page
    choose(sheet, "Perplexity", GOLDEN["text"] * 60, chunk=64)
    sheet.get_by_role("button", name="Measure").press("Enter")
    expect(sheet.get_by_role("button", name="Cancel")).to_be_focused()
    expect(sheet.locator("p[role=status]")).to_have_text(
        re.compile(r"^\d+ of \d+ · \d+ (s|min) left$"), timeout=MEASURED_MS
    )
    before = sheet.locator(".quality-result").count()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert "Rome" in ask(page, "What is the capital of Italy?")
    page.click("#model-button")
    page.get_by_role("button", name="Quality figures").click()
    sheet.get_by_role("button", name="Cancel").click()
    expect(sheet.locator("p[role=status]")).to_have_text("Cancelled.", timeout=MEASURED_MS)
    expect(sheet.get_by_role("progressbar")).to_be_hidden()
    expect(sheet.locator(".quality-result")).to_have_count(before)
