"""The page's texts in its seven languages."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.js_modules import Evaluate, evaluator
from tools import texts
from tools.paths import ROOT

NAMES = re.compile(r"\{\w+\}")
# How each language counts: one number for each of its plural forms.
COUNTS = {
    "de": {"one": 1, "other": 2},
    "es": {"one": 1, "other": 2},
    "fr": {"one": 1, "other": 2},
    "ar": {"one": 1, "two": 2, "few": 3, "many": 11, "other": 100},
}
PHYSICAL = re.compile(r"(?:margin|padding|border)-(?:left|right)\b|^\s*(?:left|right):|text-align: (?:left|right)")
PHYSICAL_ALLOWED = {"text-align: right"}  # a table's column, which Markdown aligns


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    paths = ["app/language/phrase.js", "app/language/english.js", "app/ui/format.js"]
    return evaluator(tmp_path_factory.mktemp("texts"), paths)


def said(evaluate: Evaluate, code: str, text: str, **values: Any) -> Any:
    """A text as the page shows it in a language."""
    language = {"locale": code, "rtl": code == "ar", "entries": texts.entries(code) if code != "en" else {}}
    return evaluate("m.setLanguage(a[0]), String(m.t(a[1], a[2]))", language, text, values)


def test_a_text_that_says_which_files_the_page_takes_names_videos() -> None:
    """The page takes pictures, videos, sounds and documents."""
    said = {text: set(re.findall(r"[a-z]+?(?=s?\b)", text.lower())) for text in sorted(texts.keys())}
    lists = [text for text, words in said.items() if {"picture", "sound", "document"} <= words]
    assert lists
    assert [text for text in lists if "video" not in text] == []


@pytest.mark.parametrize("code", texts.codes())
def test_a_language_has_every_text_and_no_other(code: str) -> None:
    assert set(texts.entries(code)) == texts.keys()


@pytest.mark.parametrize("code", texts.codes())
def test_a_language_has_the_same_names_in_braces(code: str) -> None:
    for text, entry in texts.entries(code).items():
        forms = entry.values() if isinstance(entry, dict) else [entry]
        optional = {"{n}", "{count}"} if isinstance(entry, dict) else set()  # "one page" needs no number
        for form in forms:
            assert set(NAMES.findall(form)) - optional == set(NAMES.findall(text)) - optional, text
            assert form.strip() == form != "", text


@pytest.mark.parametrize("code", COUNTS)
def test_a_counted_text_has_each_plural_form(code: str) -> None:
    counted = {text: entry for text, entry in texts.entries(code).items() if isinstance(entry, dict)}
    assert "{n} chats" in counted
    assert all(set(entry) == set(COUNTS[code]) for entry in counted.values())


def test_english_has_the_singular_of_each_text_that_is_counted(evaluate: Evaluate) -> None:
    singular = set(evaluate("Object.keys(m.SINGULAR)"))
    assert singular <= texts.keys()
    counted = {text for text, entry in texts.entries("de").items() if isinstance(entry, dict)}
    same = {"{n} given to the model", "{n} more given to the model", "Show all {n} lines"}
    assert counted - singular == same


def test_the_number_chooses_the_plural_form(evaluate: Evaluate) -> None:
    for code, counts in COUNTS.items():
        for form, n in counts.items():
            wanted = texts.entries(code)["{n} pages"][form].replace("{n}", str(n))
            assert said(evaluate, code, "{n} pages", n=n) == wanted
    assert [said(evaluate, "en", "{n} pages", n=n) for n in (1, 2)] == ["1 page", "2 pages"]


def test_numbers_and_amounts_are_written_as_the_language_does(evaluate: Evaluate) -> None:
    def amount(code: str, expression: str) -> Any:
        return evaluate(f"m.setLanguage({{ locale: a[0] }}), String({expression})", code)

    assert [amount(code, "m.bytes(1234567)") for code in ("en", "de", "fr")] == ["1.2 MB", "1,2 MB", "1,2\u202fMo"]
    assert [amount(code, "m.percent(0.5)") for code in ("en", "de")] == ["50%", "50\u00a0%"]
    assert amount("de", 'm.t("{n} tokens", { n: 12345 })').startswith("12.345 ")
    sizes = [amount("en", f"m.bytes({n})") for n in (0, 5, 999, 999_500, 12e9)]
    assert sizes == ["0 kB", "0.1 kB", "1.0 kB", "1.0 MB", "12 GB"]
    assert [amount("en", f"m.seconds({ms})") for ms in (0.2, 999, 1500, 12_000)] == ["1 ms", "999 ms", "1.5 s", "12 s"]
    assert [amount("en", f"m.duration({s})") for s in (4, 60, 7260)] == ["4 s", "1 min", "2 h 1 min"]


def test_a_name_stands_alone_where_the_text_runs_from_right_to_left(evaluate: Evaluate) -> None:
    assert "\u2068a (b)\u2069" in said(evaluate, "ar", "{name} is ready.", name="a (b)")
    assert said(evaluate, "de", "{name} is ready.", name="a (b)") == "a (b) ist bereit."


def test_a_text_from_right_to_left_that_begins_with_a_name_is_marked(evaluate: Evaluate) -> None:
    assert said(evaluate, "ar", "{name} is ready.", name="a").startswith("\u200f\u2068a\u2069")
    about = "Wisp Mini with eyes: simple drawings, numbers, short words and bar charts. 4-bit weights."
    assert said(evaluate, "ar", about).startswith("\u200fWisp Mini ")
    assert said(evaluate, "ar", "Enter") == "Enter"
    assert said(evaluate, "ar", "A text that nobody has translated") == "A text that nobody has translated"


def test_the_sense_of_a_text_is_not_shown(evaluate: Evaluate) -> None:
    assert said(evaluate, "en", "Text|of a snippet") == "Text"


def test_no_text_is_hard_coded() -> None:
    assert texts.untranslated() == []
    assert texts.computed() == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('h("p", {}, "It is empty.");', ["It is empty."]),
        ("say(x, `${name} of the list`);", ["{} of the list"]),
        ('show(x, "title", flag ? "Pinned" : t("Pin"));', ["Pinned"]),
        ('const a = `b ${c ? `nested of the ${c}` : ""}`; f("Left over")', ["nested of the {}", "Left over"]),
        ('h("p", { class: "note" }, t("It is empty.")); // "A comment."', []),
        ('if (event.key === "Escape") console.warn("The part is lost:", error);', []),
    ],
)
def test_the_search_for_hard_coded_texts_finds_them(source: str, found: list[str]) -> None:
    assert texts.hard_coded(source) == found


def test_the_texts_of_a_page_are_found_with_their_elements() -> None:
    page = """<body><p title="A tip">One <b>bold</b> word</p><input placeholder="https://a.b" aria-label="Name" />
        <span translate="no">Wisp</span><code>x y</code><button> <svg><path /></svg> Go  on </button>
        <i>1/2</i></body>"""
    assert texts.html_texts(page) == ["A tip", "bold", "One {0} word", "Name", "Go on"]


def test_styles_follow_the_direction_of_the_language() -> None:
    lines = [
        (path.name, line.strip())
        for path in sorted((ROOT / "app").rglob("*.css"))
        for line in Path(path).read_text(encoding="utf-8").splitlines()
        if PHYSICAL.search(line) and line.strip().rstrip(";") not in PHYSICAL_ALLOWED
    ]
    assert lines == []
