"""The page's modules that split, rank, fuse and cite passages, in Node, without a page."""

import itertools
import math
from typing import Any

import pytest

from tests.support.js_modules import Evaluate, evaluator

MODULES = ("split", "search", "prompt", "lines", "read")


# Words for tokens; the texts of blocks.
HELPERS = """
const count = async (text) => text.split(/\\s+/).filter(Boolean).length;
const text = (blocks) => blocks.map((block) => block.text);
"""


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    """Evaluates an expression with what the modules export in m, `count` and `text`."""
    paths = [f"app/retrieval/{name}.js" for name in MODULES]
    evaluate = evaluator(tmp_path_factory.mktemp("retrieval"), paths)
    return lambda code, *args: evaluate(f"(async () => {{ {HELPERS} return {code}; }})()", *args)


GUIDE = """Intro before any heading.

# The *guide*

First paragraph
of two lines.

## Install ##

- one
- two

```sh
# not a heading

npm ci
```

Setext
------

Last.
# Next
"""


def test_markdown_becomes_blocks_under_their_headings(js: Any) -> None:
    blocks = js("m.markdownBlocks(a[0])", GUIDE)
    assert [(b.get("heading"), b["text"]) for b in blocks] == [
        (None, "Intro before any heading."),
        ("The guide", "First paragraph\nof two lines."),
        ("The guide \u203a Install", "- one\n- two"),
        ("The guide \u203a Install", "```sh\n# not a heading\n\nnpm ci\n```"),
        ("The guide \u203a Setext", "Last."),
    ]


def test_text_becomes_paragraphs(js: Any) -> None:
    assert js("text(m.textBlocks(a[0]))", "one\ntwo\n\n \t\nthree\n\n\n") == ["one\ntwo", "three"]
    assert js("m.textBlocks(a[0])", " \n\n ") == []


SENTENCES = [f"Sentence {i} has exactly eight words in it." for i in range(12)]


def test_passages_keep_to_their_size_and_overlap(js: Any) -> None:
    """Each word counts as one token here: eight in a sentence."""
    blocks = [{"text": " ".join(SENTENCES[:7])}, {"text": " ".join(SENTENCES[7:])}]
    passages = js("m.split(a[0], { size: 30, overlap: 10, count })", blocks)
    texts = [p["text"] for p in passages]
    assert all(len(text.split()) <= 30 for text in texts)
    for before, after in itertools.pairwise(texts):
        assert after.startswith(before.split(". ")[-1].split("\n\n")[-1])
    for sentence in SENTENCES:
        assert any(sentence in text for text in texts)
    assert any(f"{SENTENCES[6]}\n\n{SENTENCES[7]}" in text for text in texts)  # the paragraphs stay apart


def test_passages_do_not_cross_headings_and_know_their_place(js: Any) -> None:
    blocks = [
        {"text": "One.", "heading": "A", "page": 1},
        {"text": "Two.", "heading": "A", "page": 2},
        {"text": "Three.", "heading": "B", "page": 2},
    ]
    assert js("m.split(a[0], { size: 100, overlap: 10, count })", blocks) == [
        {"text": "One.\n\nTwo.", "heading": "A", "page": 1},
        {"text": "Three.", "heading": "B", "page": 2},
    ]


def test_a_page_with_very_many_items_is_joined_without_copies(js: Any) -> None:
    """Looking at the end of a text that grows would copy it each time: minutes."""
    items = """Array.from({ length: 300_000 }, (_, i) => ({
      str: "ab-", transform: [1, 0, 0, 1, %s], width: 20, height: 10, hasEOL: false }))"""
    one_line = js(f"m.linesOf({items % '40 * i, 0'}, 1).map(({{ text }}) => text.length)")
    assert one_line == [300_000 * 4 - 1]
    paragraph = js(f"m.blocksOf(m.linesOf({items % '0, -10 * i'}, 1)).map(({{ text }}) => text)")
    assert paragraph == ["ab" * 300_000 + "-"]


def test_sentences_are_found_in_stretches_that_join_to_the_text(js: Any) -> None:
    """V8 copies the text for each sentence: those of a table of 600 KB would take 40 GB."""
    for text in (
        "a,b,c\n" * 100_000,
        "One is. " * 20_000,
        "x" * 5000 + " y. " + "😀" * 5000,
        "\n\n a.\n",
        "a\ud83d",
        "",
    ):
        found = js("m.sentences(a[0])", text)
        assert "".join(found) == text
        assert max(map(len, found), default=0) <= 4000
    assert js("m.sentences('x😀'.repeat(2001)).join('|')").count("\ud83d|") == 0
    assert js("m.sentences(a[0])", "One came in. He sat.\nThen he\nleft.") == [
        "One came in. ", "He sat.\n", "Then he\n", "left."
    ]  # fmt: skip


@pytest.mark.parametrize(("sentence", "blank"), [("Number {} is a sentence.", " "), ("第{}个句子到此为止。", "")])
def test_sentences_of_a_long_line_are_whole(js: Any, sentence: str, blank: str) -> None:
    expected = [f"{sentence.format(i)}{blank}" for i in range(1000)]
    assert js("m.sentences(a[0])", "".join(expected)) == expected
    tail = "A word " * 1000
    found = js("m.sentences(a[0])", "".join(expected) + tail)
    assert found[:1000] == expected
    assert "".join(found[1000:]) == tail


@pytest.mark.parametrize(
    "text", ["x" * 5000, "word " * 900, "```\n" + "code line\n" * 500 + "```", "漢字" * 1500, "x" + "😀" * 2500]
)
def test_text_without_sentences_is_split_too(js: Any, text: str) -> None:
    passages = js("m.split([{ text: a[0] }], { size: 100, overlap: 20, count: async (t) => t.length / 4 })", text)
    assert len(passages) > 5
    assert all(0 < len(p["text"]) <= 420 for p in passages)
    joined = "".join(p["text"] for p in passages)
    assert joined.encode()  # no passage ends within a character
    assert set(text.split()) <= set(joined.split()) or len(joined) >= len(text)


def test_a_large_document_is_counted_in_parts(js: Any) -> None:
    """One long block, and very many short ones: the engine counts little at a time, and is asked seldom."""
    code = """(await (async () => {
        const counted = [];
        const count = async (text) => (counted.push(text.length), text.length / 3);
        const passages = await m.split(m.textBlocks(a[0]), { size: 200, overlap: 40, count });
        const longest = Math.max(...passages.map(({ text }) => text.length));
        return { calls: counted.length, most: Math.max(...counted), longest };
    })())"""
    for text in ("a,b,c,d\n" * 50_000, "a b " * 100_000, "a\n\n" * 50_000):
        found = js(code, text)
        assert found["most"] <= 4001
        assert found["calls"] <= len(text) / 300
        assert found["longest"] <= 700


def test_code_with_very_many_blanks_is_split_in_time(js: Any) -> None:
    """Each piece of a line looked for its end, through all blanks after it: minutes for a million."""
    code = "```\n" + "x " * 500_000 + " " * 1_000_000 + "\nx\n```"
    passages = js("m.split(m.markdownBlocks(a[0]), {size: 200, overlap: 40, count: async (t) => t.length})", code)
    assert all(passage["text"] for passage in passages)


def test_long_work_lets_the_page_go_on(js: Any) -> None:
    """While a document is split and indexed, no other task waits for long."""
    code = """(await (async () => {
        let turns = 0;
        const timer = setInterval(() => turns++, 1);
        const limits = { size: 200, overlap: 40, count: async (text) => text.length / 3 };
        const passages = await m.split(m.textBlocks(a[0]), limits);
        const splitting = turns;
        await m.Lexical.of(passages.map(({ text }) => text));
        clearInterval(timer);
        return [splitting, turns - splitting];
    })())"""
    splitting, indexing = js(code, "Some words of a line, with a number 17.\n" * 40_000)
    assert splitting >= 3
    assert indexing >= 3


def test_empty_documents_give_no_passages(js: Any) -> None:
    assert js("m.split([], { size: 10, overlap: 2, count })") == []


TEXTS = [
    "The museum opens at ten. Tickets cost four euros.",
    "Error E4711 means that the pump is blocked.",
    "Der Öffnungszeiten-Plan hängt an der Tür.",
    "東京は日本の首都です。",
    "The museum was built in 1874 by Ida Quill.",
]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("What does e4711 mean?", 1),
        ("museum tickets", 0),
        ("who built it in 1874", 4),
        ("offnungszeiten", 2),
        ("首都", 3),
    ],
)
def test_words_find_their_passage(js: Any, query: str, first: int) -> None:
    assert js("(await m.Lexical.of(a[0])).rank(a[1])[0].index", TEXTS, query) == first


def test_question_words_alone_find_nothing(js: Any) -> None:
    assert js("(await m.Lexical.of(a[0])).rank(a[1])", TEXTS, "What is the capital of Spain?") == []
    assert js("(await m.Lexical.of([])).rank('x')") == []


def test_bm25_as_its_formula_says(js: Any) -> None:
    """Two passages of 2 and 4 words, the word once in the first: idf ln(1 + 1.5 / 1.5), length norm with b = 0.75."""
    (found,) = js("(await m.Lexical.of(['red pump', 'a blue pump house'])).rank('red')")
    norm = 1.2 * (1 - 0.75 + 0.75 * 2 / 3)
    assert found["score"] == pytest.approx(math.log(2) * 2.2 / (1 + norm))


def test_meaning_ranks_by_cosine_and_leaves_out_what_has_no_vector(js: Any) -> None:
    vectors = "[[0, 1], [1, 0], undefined, [0.6, 0.8], [1, 0, 0]].map((v) => v && Float32Array.from(v))"
    found = js(f"m.byMeaning(Float32Array.of(1, 0), {vectors})")
    assert [f["index"] for f in found] == [1, 3, 0]
    assert [f["score"] for f in found] == pytest.approx([1, 0.6, 0])


def test_fusion_is_reciprocal_rank_fusion(js: Any) -> None:
    rankings = [[{"index": i} for i in (3, 1, 2)], [{"index": i} for i in (1, 5)]]
    found = js("m.fuse(a[0])", rankings)
    assert [f["index"] for f in found] == [1, 3, 5, 2]
    assert found[0]["score"] == pytest.approx(1 / 7 + 1 / 6)


def test_search_leaves_out_what_is_far_in_words_and_meaning(js: Any) -> None:
    vectors = "[[1, 0], [0.1, 0.995], [0.1, 0.995]].map((v) => Float32Array.from(v))"
    code = f"""m.search(await m.Lexical.of(["cat", "dog", "pump"]), "pump", {{ query: Float32Array.of(1, 0),
              vectors: {vectors} }}, 5).map(({{ index }}) => index)"""
    assert js(code) == [2, 0]
    assert js("m.search(await m.Lexical.of(a[0]), 'museum', null, 1).length", TEXTS) == 1


SOURCES = [
    {"document": "a.txt", "text": "The pump is red. It weighs 40 kg."},
    {"document": "b.md", "text": "Ida built it."},
]


def test_the_prompt_numbers_its_sources(js: Any) -> None:
    prompt = js("m.promptOf('Which colour?', a[0])", SOURCES)
    assert (
        "\n[1] (a.txt) The pump is red. It weighs 40 kg.\n[2] (b.md) Ida built it.\n\nQuestion: Which colour?" in prompt
    )


def test_sources_are_given_as_far_as_they_fit(js: Any) -> None:
    many = [{"document": "d", "text": " ".join(f"Sentence {i} of {k} is here." for i in range(20))} for k in range(4)]
    for room, whole, cut in ((1000, 4, False), (260, 2, False), (310, 3, True), (45, 1, True), (20, 0, False)):
        found = js("m.fitting(a[0], a[1], count)", many, room)
        assert len(found) == whole
        assert sum(len(f"[0] (d) {s['text']}".split()) for s in found) <= room
        assert [s["text"].endswith("…") for s in found] == [False] * (whole - cut) + [True] * cut


@pytest.mark.parametrize(
    ("answer", "numbers"),
    [
        ("Rome [2].", [2]),
        ("A [1][3], b [2, 1].", [1, 3, 2]),
        ("Out of range [0] [4] [12].", []),
        ("In code `x[1]` and\n```\ny[2]\n```\n", []),
        ("[link](https://example.org) and array[i]", []),
    ],
)
def test_citations_are_found(js: Any, answer: str, numbers: list[int]) -> None:
    assert js("m.cited(a[0], 3)", answer) == numbers


def test_an_answer_without_citations_is_matched_by_its_words(js: Any) -> None:
    assert js("m.matching('The pump weighs 40 kg.', a[0])", SOURCES) == [1]
    assert js("m.matching('It was built by Ida.', a[0])", SOURCES) == [2]
    assert js("m.matching('The context does not say.', a[0])", SOURCES) == []


def line(text: str, top: float, height: float = 10, page: int = 1, left: float = 72) -> dict[str, Any]:
    return {"text": text, "top": top, "left": left, "height": height, "page": page}


def test_a_pdf_s_lines_become_paragraphs_with_page_and_heading(js: Any) -> None:
    lines = [
        line("A long title", 0, 20),
        line("of two lines", 24, 20),
        line("The first para-", 60),
        line("graph ends here.", 72),
        line("The second goes", 100),
        line("on over", 112),
        line("the page.", 0, page=2),
        line("Details", 40, 14, page=2),
        line("Well-", 60, page=2),
        line("Known.", 72, page=2),
    ]
    assert js("m.blocksOf(a[0])", lines) == [
        {"text": "The first paragraph ends here.", "page": 1, "heading": "A long title of two lines"},
        {"text": "The second goes on over the page.", "page": 1, "heading": "A long title of two lines"},
        {"text": "Well- Known.", "page": 2, "heading": "Details"},
    ]
    assert js("m.blocksOf([])") == []


def test_heads_feet_and_dots_of_a_pdf_are_left_out(js: Any) -> None:
    pages = [
        [line("The manual", 0, page=p), line(f"Page {p} is about {p * 7}.", 50, page=p), line(f"- {p} -", 700, page=p)]
        for p in range(1, 5)
    ]
    pages[0].insert(2, line("Chapter one . . . . . . . . . 3", 80))
    blocks = js("m.blocksOf(a[0])", [one for page in pages for one in page])
    assert [b["text"] for b in blocks] == [
        "Page 1 is about 7.",
        "Chapter one 3 Page 2 is about 14.",
        "Page 3 is about 21.",
        "Page 4 is about 28.",
    ]


def test_a_pdf_s_pieces_become_lines(js: Any) -> None:
    def item(text: str, x: float, y: float, width: float, end: bool = False) -> dict[str, Any]:
        return {"str": text, "transform": [1, 0, 0, 1, x, y], "width": width, "height": 10, "hasEOL": end}

    items = [item("Hel", 72, 700, 15), item("lo", 87, 700, 8), item("there", 100, 700, 20, True), item("", 0, 0, 0)]
    assert [piece["text"] for piece in js("m.linesOf([...a[0], ...a[1]], 3)", items, [item("Next", 72, 688, 20)])] == [
        "Hello there",
        "Next",
    ]


READ = """m.read(new File([a[0] === null ? new Uint8Array(a[1]) : a[0]], a[2]),
                async () => async () => ({ blocks: [], pages: 2 })).catch((error) => error.message)"""


def test_files_are_read_in_the_encodings_they_come_in(js: Any) -> None:
    assert js(READ, "# T\r\n\r\nGrüße\r\n", None, "a.md")["blocks"] == [{"text": "Grüße", "heading": "T"}]
    assert js(READ, None, list("Grüße".encode("cp1252")), "a.txt")["blocks"] == [{"text": "Grüße"}]
    assert js(READ, None, list("Grüße".encode("utf-16")), "a.txt")["blocks"] == [{"text": "Grüße"}]
    assert "not a text file" in js(READ, None, [80, 75, 0, 4], "a.txt")
    assert "empty" in js(READ, " \n", None, "a.txt")
    assert "OCR" in js(READ, "%PDF", None, "scan.pdf")


def test_what_is_a_document(js: Any) -> None:
    names = ["a.txt", "b.MD", "c.pdf", "model.gguf", "picture.png", "x.docx", "data.csv"]
    out = js("a[0].map((name) => m.isDocument({ name, type: '' }))", names)
    assert out == [True, True, True, False, False, False, True]
