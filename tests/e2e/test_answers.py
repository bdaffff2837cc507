"""The parts of an answer in a real page: formulas, colours, tables, folded code, previews."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.answers import OPEN, show
from tests.support.browser import new_profile, watch
from tests.support.openai_client import bundle
from tools.paths import ROOT
from tools.serve import Server


@pytest.fixture(scope="module")
def opened(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[tuple[Page, list[str]]]:
    """A page that shows answers, without an engine, and its console errors."""
    context = new_profile(chromium(None), permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    page.evaluate(OPEN, bundle("answers", ROOT / "tests" / "support" / "answer_page.js"))
    yield page, watch(page)
    context.close()


@pytest.fixture
def page(opened: tuple[Page, list[str]]) -> Iterator[Page]:
    page, errors = opened
    errors.clear()
    yield page
    assert errors == []


FORMULAS = {
    r"Euler: $e^{i\pi} + 1 = 0$.": [r"e^{i\pi} + 1 = 0"],
    r"both \(a_1\) and \(b*c*d\)": ["a_1", "b*c*d"],
    r"\[ \int_0^1 x\,dx \]": [r"\int_0^1 x\,dx"],
    "$$\na = b\n- c\n= d\n$$": ["a = b\n- c\n= d"],
    "text\n$$x$$\ntext": ["x"],
    "where $$x$$ and $$y$$ meet": ["x", "y"],
    "1. first\n   $$\n   x + 1\n   $$\n2. second $n$": ["x + 1", "n"],
    "> $$\n> x\n> $$": ["x"],
    "| a |\n|---|\n| $x^2$ |": ["x^2"],
    "$5x$ is five times $x$": ["5x", "x"],
    "$5 + 10$": ["5 + 10"],
    "$\\$5$": ["\\$5"],
}
NO_FORMULAS = (
    "It costs $5 and then $10.", "from $5-$10 a month", "US$5 or US$6", "$5 or 10$ each", "$20 million$", "$ 5 $",
    "a $HOME and $PATH variable", "$100$ and more", "`$x$`", "```\n$x$\n```", "\\$x\\$", "$$", "$$$$", "$$ open",
    "\\[ open", "\\( open", "\\(\\)", "x$y$z", "cost: $5, $6, $7", "$1,000.50 to $2,000.50",
)  # fmt: skip


def test_formulas_are_found_and_typeset(page: Page) -> None:
    for text, formulas in FORMULAS.items():
        body = show(page, text)
        found = body.locator(".katex annotation").evaluate_all("all => all.map((one) => one.textContent)")
        assert [tex.split() for tex in found] == [tex.split() for tex in formulas], text
        assert body.locator("code[data-math]").count() == 0
    assert page.evaluate("document.fonts.ready.then(() => [...document.fonts].some((f) => f.status === 'loaded'))")


def test_prices_and_code_are_no_formulas(page: Page) -> None:
    for text in NO_FORMULAS:
        body = show(page, text)
        assert body.locator(".katex, [data-math]").count() == 0, text
        assert body.inner_text().strip(), text


def test_a_formula_with_a_mistake_is_shown_as_tex(page: Page) -> None:
    body = show(page, r"$\frac{1}$ and $\notacommand{x}$ and $\href{javascript:alert(1)}{x}$ and $" + "{" * 3_000 + "$")
    assert body.locator("code[data-math]").count() >= 3
    assert "KaTeX parse error" in str(body.locator("code[data-math]").first.get_attribute("title"))
    assert body.locator("a").count() == 0


NESTED = "\\sqrt{" * 150 + "x" + "}" * 150  # KaTeX and layout take time with the square of the depth


def test_a_formula_that_is_nested_too_deep_costs_nothing(page: Page) -> None:
    """It stays TeX before KaTeX makes its thousand elements, so the block's budget is left for others."""
    macro = r"\def\a#1{\sqrt{\sqrt{\sqrt{#1}}}}" + "\\a{" * 20 + "x" + "}" * 20
    body = show(page, " and ".join([f"${NESTED}$", f"${macro}$"] * 6 + ["$a^2$"]))
    assert body.locator("code[data-math]").count() == 12
    assert body.locator(".katex").count() == 1
    fraction = r"\frac{1}{1+" * 15 + "x" + "}" * 15
    assert (
        show(page, f"$$\n\\left\\{{ \\begin{{cases}} {fraction} \\end{{cases}} \\right.\n$$").locator(".katex").count()
        == 1
    )


def test_accents_and_tall_brackets_have_their_width(page: Page) -> None:
    """KaTeX sets it in a style attribute, which the page's content security policy forbids."""
    body = show(page, r"$\vec v$ and $\oiint$ and $$\left(\begin{matrix}a\\b\\c\\d\\e\\f\\g\\h\end{matrix}\right)$$")
    pictures = body.locator(".katex svg:not([width='100%'])")
    shown = pictures.evaluate_all(
        "all => all.map((svg) => [svg.getBoundingClientRect().width, svg.getAttribute('width')])"
    )
    size = float(body.locator(".katex").first.evaluate("e => parseFloat(getComputedStyle(e).fontSize)"))
    assert len(shown) >= 4
    for width, written in shown:
        assert width == pytest.approx(float(written.removesuffix("em")) * size, rel=0.3)


def test_formulas_that_are_refused_take_of_the_budget_too(page: Page) -> None:
    """Else a block of many, which grows, would have all of them looked at in every step."""
    wide = "$" + "x" * 1_200 + NESTED + "$"
    body = show(page, " and ".join([wide] * 8 + ["$a^2$"]))
    assert body.locator(".katex").count() == 0
    assert body.locator("code[data-math]").count() == 9


def test_a_growing_formula_is_held_back(page: Page) -> None:
    assert show(page, "So \\[ a + ", growing=True).inner_text().strip() == "So"
    assert show(page, "So $$ a", growing=True).inner_text().strip() == "So"
    assert show(page, "So $$ a$$", growing=True).locator(".katex").count() == 1


def test_code_is_coloured_in_common_and_in_rare_languages(page: Page) -> None:
    body = show(page, '```python\ndef f(x):\n    return "<b>" + x\n```')
    expect(body.locator(".hljs-keyword").first).to_have_text("def")
    expect(body.locator("code")).to_have_text('def f(x):\n    return "<b>" + x')
    assert body.locator("b").count() == 0
    body = show(page, '```haskell\nmain = putStrLn "hi" -- a comment\n```')
    expect(body.locator(".hljs-comment")).to_have_text("-- a comment")
    body = show(page, "```unknown-language\nif x then y\n```")
    expect(body.locator("code")).to_have_text("if x then y")
    assert body.locator("[class^=hljs]").count() == 0


def test_long_code_is_folded_when_it_is_complete(page: Page) -> None:
    code = "\n".join(f"line {i}" for i in range(120))
    growing = show(page, f"```\n{code}", growing=True)
    assert growing.locator(".folded").count() == 0
    body = show(page, f"```\n{code}\n```\n\nafter")
    button = body.get_by_role("button", name="Show all 120 lines")
    height = body.locator("pre").bounding_box()["height"]
    assert height < 700
    button.press("Enter")
    assert body.locator("pre").bounding_box()["height"] > 2 * height
    expect(body.get_by_role("button", name="Show the first 25 lines")).to_have_attribute("aria-expanded", "true")
    page.evaluate("(text) => shown.render(text)", f"```\n{code}\n```\n\nafter")  # stays as the reader left it
    expect(body.locator(".folded")).to_have_count(0)


def test_a_table_is_copied_as_csv(page: Page) -> None:
    body = show(page, '| name | value |\n|---|--:|\n| a "b", c | $x^2$ |\n| **bold** | `1` |')
    body.get_by_role("button", name="Copy as CSV").click()
    expect(page.locator("#live")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == 'name,value\r\n"a ""b"", c",x^2\r\nbold,1\r\n'


def test_breaks_and_raised_text_are_the_only_html(page: Page) -> None:
    body = show(
        page,
        "| a | H<sub>2</sub>O |\n|---|---|\n| one<br>two<BR />three | m<sup>2</sup> |\n\nx <b>y</b> <sub>\n\n`<br>`",
    )
    assert body.locator("td br").count() == 2
    assert body.locator("td").first.inner_text() == "one\ntwo\nthree"
    assert body.locator("sub, sup").all_inner_texts() == ["2", "2"]
    assert "x <b>y</b> <sub>" in body.inner_text()
    expect(body.locator(":not(pre) > code")).to_have_text("<br>")
    body.get_by_role("button", name="Copy as CSV").click()
    expect(page.locator("#live")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == 'a,H2O\r\n"one\ntwo\nthree",m2\r\n'
    hostile = "<sub><img src=x onerror=alert(1)></sub> <sup onclick=x>2</sup> <br onclick=x>" + "<sub>" * 5_000
    body = show(page, hostile)
    assert body.locator("sub, sup, br, img").count() == 0


def test_lists_of_tasks_show_what_is_done(page: Page) -> None:
    body = show(page, "- [x] **done**\n- [ ] open\n- [link](https://e.org)\n- [] none\n\n1. [X] first\n\n[x] no task")
    lines = [line for line in body.inner_text().split("\n") if line]
    assert lines[:4] == ["☑ done", "☐ open", "link (e.org)", "[] none"]
    assert lines[-2:] == ["☑ first", "[x] no task"]
    assert body.locator("li.task").count() == 3


# Streams a text in pieces. Returns the most elements that one of them made.
MADE = """async ([text, pieces]) => {
    const made = new MutationObserver(() => {});
    made.observe(document.querySelector("#answer"), { childList: true, subtree: true });
    let most = 0;
    const render = (...given) => {
        const isWhole = shown.render(...given);
        const nodes = new Set(made.takeRecords().flatMap(({ addedNodes }) => [...addedNodes]));
        const elements = [...nodes].filter((node) => node.querySelectorAll);
        most = Math.max(most, elements.reduce((sum, node) => sum + 1 + node.querySelectorAll("*").length, 0));
        return isWhole;
    };
    for (let piece = 1; piece <= pieces; piece++) render(text.slice(0, (text.length * piece) / pieces), true, 60);
    while (!render(text, false, 60));
    return most;
}"""
LONG = {
    "formulas": "$a$ " * 20_000,
    "marks": "*[`_<$|~" * 12_000,
    "list": "- item *x*\n" * 8_000,
    "table": "|a|b|\n|-|-|\n" + "|1|2|\n" * 8_000,
    "addresses": ("a@b.com " * 2_400 + "\n\n") * 3,  # each paragraph is one text until they are looked for
    "more addresses": "a@b.com " * 5_200,
}
MOST_MADE = 12_000  # elements at a time: a block's formulas may have 8,000


@pytest.mark.parametrize("name", LONG)
def test_a_very_long_block_does_not_hold_the_page(page: Page, name: str) -> None:
    """Without bounds, 16,000 to 40,000 elements were made at a time, in 1.2 to 3.3 s on the machine where they were
    chosen. Elements are counted: a busy machine takes longer.
    """
    body = show(page, "")
    assert page.evaluate(MADE, [LONG[name], 30]) < MOST_MADE
    assert len(body.inner_text()) > 40_000
    assert page.evaluate("document.querySelectorAll('#answer *').length") < 100


def test_a_paragraph_too_long_to_be_rendered_is_shown_as_it_is(page: Page) -> None:
    """The others are not."""
    for text in ("**b** " * 4_000, "`x` " * 1_100):
        body = show(page, f"{text.strip()}\nsecond\n\n**after**")
        first = "".join(body.locator(".block:not(:last-child)").all_inner_texts())
        assert first.split() == [*text.split(), "second"]
        expect(body.locator("strong, code")).to_have_text("after")
    assert show(page, "**b** `x` " * 240).locator("strong").count() == 240


def test_a_long_table_is_text_while_it_grows(page: Page) -> None:
    text = "|a|b|\n|-|-|\n" + "|1|*2*|\n" * 600
    body = show(page, text, growing=True)
    assert body.locator("table").count() == 0
    assert body.inner_text().count("|1|*2*|") == 600
    page.evaluate("(text) => shown.render(text + '\\nAfter', true)", text)
    assert body.locator("em").count() == 600
    assert show(page, "|a|b|\n|-|-|\n" + "|1|*2*|\n" * 60, growing=True).locator("em").count() == 60


def test_a_text_is_shown_in_pieces_that_end_as_the_whole(page: Page) -> None:
    text = (
        "```\ncode\n```\n\n"
        + "".join(f"Paragraph {i} with $a_{i}$ and *marks*.\n\n" for i in range(200))
        + "[x]: http://a.example\n\n[x]"
    )
    whole = show(page, text).inner_html()
    show(page, "")
    steps = page.evaluate("(text) => { let n = 1; while (!shown.render(text, false, 0)) n++; return n; }", text)
    assert steps > 100
    assert page.locator("#answer .body").inner_html() == whole


def test_many_openings_take_linear_time(page: Page) -> None:
    """No assertion on time: with quadratic time these would run into the test's timeout. The texts are not laid out."""
    page.evaluate("document.body.hidden = true")
    closed = ("$$x\n" * 60_000 + "$$", "\\[x\n" * 60_000 + "\\] y", "> $$x\n" * 40_000 + "> $$")
    for text in ("$$ a\n" * 60_000, "\\[ a\n" * 50_000, "\\(" * 100_000, "$a " * 90_000, "$\\" * 100_000, *closed):
        assert show(page, text).text_content()
        show(page, text, growing=True)
    page.evaluate("document.body.hidden = false")


# Streams a paragraph. Returns whether the pieces of it that are shown stay while it grows, and how many there are.
GROW = """([text, more]) => {
    shown.render(text, true);
    const before = [...document.querySelectorAll("#answer .plain")];
    shown.render(text + more, true);
    const after = [...document.querySelectorAll("#answer .plain")];
    return [before.slice(0, -1).every((piece, i) => piece === after[i]), before.length, after.length];
}"""
GROWING = {"lines": "漢字\n", "words": "word ", "letters": "x", "pairs": "👧", "empty lines": "\n\na"}


@pytest.mark.parametrize("name", GROWING)
def test_text_as_it_is_grows_by_its_last_piece(page: Page, name: str) -> None:
    """The browser would lay out 100,000 characters for each token."""
    text = "漢字\n" * 3_000 + GROWING[name] * (100_000 // len(GROWING[name]))
    if name == "empty lines":
        text = "**a**\n" * 60_000  # longer than any text that is rendered
    body = show(page, "")
    stays, before, after = page.evaluate(GROW, [text, GROWING[name]])
    assert stays
    assert 4 < before <= after <= 120
    assert "".join(body.inner_text().split()) == "".join((text + GROWING[name]).split())
    assert "\ufffd" not in body.inner_text()


# Streams an answer into 60 frames, which take 16 ms each by the page's clock, and 100 ms more after the answer is
# rendered. Returns how often it was.
SLOW_FRAMES = """async () => {
    document.querySelector("#answer")?.remove();
    const message = { role: "assistant", content: "" };
    const view = new answers.AnswerView(message, {}, null);
    const list = Object.assign(document.createElement("ol"), { id: "answer" });
    list.append(view.element);
    document.body.prepend(list);
    const { requestAnimationFrame } = globalThis;
    let [changes, now] = [0, performance.now()];
    performance.now = () => now;
    globalThis.requestAnimationFrame = (run) => requestAnimationFrame(() => run(now));
    new MutationObserver(() => changes++).observe(view.element, { childList: true, subtree: true });
    for (let frames = 0; frames < 60; frames++) {
        message.content += "More words. ";
        view.grow(message);
        const before = changes;
        await new Promise((resolve) => requestAnimationFrame(async () => {
            await null; // the observer's turn
            now += changes > before ? 116 : 16;
            setTimeout(resolve);
        }));
    }
    delete performance.now;
    globalThis.requestAnimationFrame = requestAnimationFrame;
    return changes;
}"""


def test_the_layout_of_a_growing_answer_counts_to_its_time(page: Page) -> None:
    """Each rendering is followed by 464 ms for other work, which are 29 of the frames."""
    assert page.evaluate(SLOW_FRAMES) == 2


# Ends an answer of many paragraphs, whose text takes several frames.
FINISH = """(n) => {
    document.querySelector("#answer")?.remove();
    const content = Array.from({ length: n }, (_, i) => `Paragraph ${i} with *marks* and \\`code\\`.`).join("\\n\\n");
    const view = new answers.AnswerView({ role: "assistant", content: "" }, {}, null);
    const list = Object.assign(document.createElement("ol"), { id: "answer" });
    list.append(view.element);
    document.body.prepend(list);
    globalThis.spoken = new Promise((resolve) =>
        view.finish({ role: "assistant", content, finish: "stop" }, () => resolve(view.spoken)));
    return list.textContent.includes(`Paragraph ${n - 1} `);
}"""
ENOUGH = 2_000  # paragraphs that no machine renders in one slice


def test_a_long_answer_is_read_out_once_all_of_it_is_shown(page: Page) -> None:
    assert page.evaluate(FINISH, ENOUGH) is False
    assert f"Paragraph {ENOUGH - 1} with marks" in page.evaluate("spoken")


def test_a_print_has_the_end_of_an_answer_that_is_not_shown_yet(page: Page) -> None:
    shown = f"document.querySelector('#answer').textContent.includes('Paragraph {ENOUGH - 1} ')"
    finish = f"({FINISH})({ENOUGH})"
    assert page.evaluate(f"() => [{finish}, answers.showWholeAnswers(), {shown}]") == [False, None, True]


def test_nothing_is_asked_for_in_an_answer_that_was_stopped(page: Page) -> None:
    code = """async () => {
        const card = new answers.CallCard({ name: "python", arguments: "{}", state: "running" });
        const why = await card.confirm("May it?", AbortSignal.abort("stopped")).catch((reason) => reason);
        return [why, card.element.querySelectorAll(".call-question button").length];
    }"""
    assert page.evaluate(code) == ["stopped", 0]


# Shows a call that has made a drawing, and waits for its picture, if there will be one. Returns the names of the files
# to download, and of the pictures.
DRAWN = """async ([drawing, isShown]) => {
    const blob = new Blob([drawing], { type: "image/svg+xml" });
    const card = new answers.CallCard({ name: "plot", arguments: "{}", state: "done" });
    card.update({ state: "done", text: "", files: [{ name: "a.svg", blob }] }, false);
    do await new Promise((resolve) => setTimeout(resolve, isShown ? 10 : 300));
    while (isShown && !card.element.querySelector(".call-made img"));
    const names = (of) => [...card.element.querySelectorAll(of)].map((one) => one.download ?? one.alt);
    return [names(".call-made a"), names(".call-made img")];
}"""


def test_a_drawing_of_a_tool_is_shown_unless_it_takes_long_to_draw(page: Page) -> None:
    namespace = 'xmlns="http://www.w3.org/2000/svg"'
    assert page.evaluate(DRAWN, [f"<svg {namespace}><circle r='3'/></svg>", True]) == [[], ["a.svg"]]
    for costly in ('<rect filter="blur(20px)"/>', "<rect/>" * 20_000):
        assert page.evaluate(DRAWN, [f"<svg {namespace}>{costly}</svg>", False]) == [["a.svg"], []]


# Shows formulas, a block each, and then loads KaTeX. Returns how many of them were typeset at each frame.
LATE = """async (script) => {
    const late = await import(`${script}?late`);
    document.querySelector("#answer")?.remove();
    const list = Object.assign(document.createElement("ol"), { id: "answer" });
    document.body.prepend(list);
    new late.Markdown(list).render("So $a_1$\\n\\n".repeat(1_500));
    const counts = [];
    const count = () => counts.push(list.querySelectorAll(".katex").length);
    await late.loadMath();
    for (count(); counts.at(-1) < 1_500; count()) await new Promise(requestAnimationFrame);
    return counts;
}"""


def test_formulas_that_waited_for_katex_are_typeset_in_pieces(page: Page) -> None:
    counts = page.evaluate(LATE, bundle("answers", ROOT / "tests" / "support" / "answer_page.js"))
    assert 0 < counts[0] < 1_500
    assert counts[-1] == 1_500
