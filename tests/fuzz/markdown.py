"""Markdown of a model: its constructs, HTML, addresses and odd characters in any order, cut anywhere."""

from random import Random

PIECES = (
    "# ", "## ", "- ", "* ", "1. ", "> ", "    ", "\t", "\n", "\n\n", "---\n", "```", "```js\n", "~~~\n", "`",
    "``", "**", "*", "__", "_", "~~", "[", "](", ")", "![", "]: ", "[x]: https://a.test\n", "[x]", "|",
    "|---|\n", "| a | b |\n|---|:-:|\n", "\\", "&amp;", "&#x0;", "&lt;", "<", ">", "<b>", "</b>", "<!--", "-->",
    "<![CDATA[", "<script>", "</script>", "<style>", "<img src=x onerror=alert(1)>", "<svg onload=alert(1)>",
    "<iframe srcdoc=x>", "<a href=javascript:alert(1)>", "<math>", "<base href=https://a.test>",
    "<form action=x>", "<template>", "javascript:alert(1)", "JaVaScRiPt&#58;alert(1)", "data:text/html,x",
    "vbscript:x", "https://a.test/?q=1&b=<>", "www.a.test", "mailto:a@a.test", "a@a.test", "//a.test",
    "https://a.test\"onclick=alert(1)", "https://xn--a.test/%", "word", "text", "x", " ", "  \n", "é",
    "漢字", "👩\u200d👩\u200d👧", "\u202e", "\u200b", "\u0000", "\ufffd", "\ud800", "\r", "\u000b",
    "$x^2$", "$", "$$", "$$\n", "\\[", "\\]", "\\[\n", "\\(", "\\)", "\\frac{1}{2}", "{", "}", "x_1",
    "\\href{javascript:x}{y}", "\\htmlClass{a}{b}", "$5", "```html\n", "- [ ] ", "[^1]", ":---", "=\n", "==\n",
    "1986\\. ",
)  # fmt: skip

COUNTS = (1, 2, 5, 30, 300)
NAMES = (
    "amp",
    "lt",
    "nbsp",
    "zwj",
    "rlm",
    "NewLine",
    "Tab",
    "colon",
    "bsol",
    "x",
    "notanentity",
    "CounterClockwiseContourIntegral",
)
CODES = ("0", "1", "9", "10", "60", "x3c", "x3C", "xD800", "x10FFFF", "x110000", "x" + "f" * 40, "9" * 40, "x202E")
SCHEMES = ("https", "HTTP", "mailto", "javascript", "data", "vbscript", "file", "ftp", "blob", "chrome", "x-y")
HOSTS = ("a.test", "a.test:80", "[::1]", "a@b.test", "xn--a.test", "漢字.test", "a..test", "127.1", "")
BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
ANSI = (
    "\x1b[31m",
    "\x1b[0m",
    "\x1b[2J",
    "\x1b]8;;https://a.test\x07",
    "\x1b]0;x\x07",
    "\x9b1m",
    "\x1b",
    "\x07",
    "\x08",
    "\x7f",
)
TEX = (
    r"\def\a{\a\a}\a",
    r"\def\a{xx}\def\b{\a\a\a}\def\c{\b\b\b}\c\c\c",
    r"\gdef\a#1{#1#1}\a{\a{\a{\a{x}}}}",
    r"\newcommand{\a}[1]{\a{#1}}\a{x}",
    r"\let\a\frac\a{1}{2}",
    r"\rule{1e9em}{1e9em}",
    r"\rule{-99em}{9999999px}",
    r"\kern1e9em x",
    r"\raisebox{1e9em}{x}",
    r"\hspace{1e9em}",
    r"\vcenter{x}",
    r"\phantom{x}",
    r"\color{red}x",
    r"\color{url(x)}x",
    r"\includegraphics[width=1e9em]{https://a.test/x.png}",
    r"\url{javascript:x}",
    r"\href{https://a.test}{x}",
    r"\htmlStyle{color:red}{x}",
    r"\htmlData{a=b}{x}",
    r"\htmlId{a}{x}",
    r"\unicode{x41}",
    r"\char`\x",
    r"\text{\$x\$}",
    r"\begin{matrix}1&2\\3&4\end{matrix}",
    r"\begin{array}{" + "c" * 200 + "}1" + "&1" * 199 + r"\end{array}",
    r"\begin{aligned}" + r"a&=b\\" * 100 + r"\end{aligned}",
    r"\begin{x}y\end{x}",
    r"\left(\middle|\right.",
    r"\tag{1}x",
    r"\sqrt[3]{x}",
    r"\overbrace{x}^{y}",
    r"\xrightarrow[a]{b}",
    r"\verb|x|",
    r"\mathchoice{a}{b}{c}{d}",
    r"\global\def\a{b}",
    r"\require{x}",
    r"\%",
    "\\",
    "^",
    "_",
    "{",
    "}",
    "&",
    "#",
    "%",
    "x_{1}^{2}",
)
AROUND = (
    r"\frac{%s}{2}",
    r"\sqrt{%s}",
    "{%s}",
    "x^{%s}",
    "x_{%s}",
    r"\left(%s\right)",
    r"\text{$%s$}",
    r"\boxed{%s}",
    r"\overline{%s}",
)
CODE = {
    "mermaid": (
        "graph TD\nA-->B\n",
        "sequenceDiagram\nA->>B: x\n",
        "graph TD\n" + "A-->B\n" * 300,
        'click A "javascript:alert(1)"\n',
        "%%{init: {'securityLevel': 'loose'}}%%\n",
        'pie\n"a": 1e999\n',
        "A[<img src=x onerror=alert(1)>]\n",
        "gantt\n",
        "x\n",
    ),
    "html": ("<script>alert(1)</script>\n", "<iframe src='https://a.test'></iframe>\n", "<!--\n", "</code></pre>\n"),
    "js": ("`${`${`\n", "/*\n", "//" + "x" * 3000 + "\n", "'" * 99 + "\n", "(" * 500 + "\n"),
    "diff": ("+a\n", "-b\n", "@@\n"),
    "json": ('{"a":' * 300 + "\n", "[" * 500 + "\n"),
    "__proto__": ("x\n",),
    "a b c=1 {x}": ("x\n",),
}


def table(dice: Random) -> str:
    """A table, whose cells may have anything, rows of other lengths, within a list or quote."""
    cols = dice.choice((1, 2, 5, 40))
    cells = (
        "a",
        "",
        "`|`",
        "\\|",
        "**b**",
        "$x|y$",
        "[x](https://a.test)",
        "<br>",
        "| a |",
        "![x](y)",
        tex(dice),
        "- a",
    )
    before = dice.choice(("", "", "> ", "- ", "    ", "> > ", "1. "))
    rows = [dice.choices(cells, k=max(1, cols + dice.choice((0, 0, 0, -1, 9)))) for _ in range(dice.choice(COUNTS[:4]))]
    lines = ["|".join(("", *row, "")) for row in rows]
    lines.insert(1, "|" + "|".join(dice.choices(("---", ":-:", "-", ":---"), k=cols)) + "|")
    return "".join(f"{before}{line}\n" for line in lines) + "\n"


def footnotes(dice: Random) -> str:
    """Footnotes that may name each other, or themselves."""
    names = [dice.choice(("1", "a", "^", "toString", "__proto__", "x y", "é")) for _ in range(dice.choice(COUNTS[:4]))]
    return "".join(
        dice.choice((f"x[^{n}] ", f"[^{n}]: y [^{n}]\n", f"\n[^{n}]: {'> ' * 5}z\n", f"^[{n}]")) for n in names
    )


def tex(dice: Random) -> str:
    """A formula: macros that grow, sizes without bounds, or parts within each other."""
    text = "".join(dice.choices(TEX, k=dice.choice((1, 1, 2, 9))))
    for _ in range(dice.choice((0, 0, 1, 4))):
        around = dice.choice(AROUND)
        for _ in range(dice.choice((1, 3, 30, 150))):
            text = around.replace("%s", text, 1)
    before, after = dice.choice((("$", "$"), ("$$", "$$"), ("\\(", "\\)"), ("\n\\[\n", "\n\\]\n"), ("$$\n", "\n$$\n")))
    return before + text + after


def code(dice: Random) -> str:
    """A block of code that the page can highlight, or show as a picture."""
    language = dice.choice(list(CODE))
    lines = "".join(dice.choices(CODE[language], k=dice.choice((1, 2, 9))))
    fence = dice.choice(("```", "~~~", "````"))
    return f"\n{fence}{language}\n{lines}{dice.choice((fence, fence, ''))}\n"


def entities(dice: Random) -> str:
    """References to characters, whole and cut."""
    names = [
        f"#{dice.choice(CODES)}" if dice.random() < 0.5 else dice.choice(NAMES) for _ in range(dice.choice(COUNTS))
    ]
    return "".join(f"&{name}{dice.choice((';', ';', '', ' '))}" for name in names)


def links(dice: Random) -> str:
    """Addresses alone, in brackets, and of links and pictures."""
    found = []
    for _ in range(dice.choice(COUNTS[:4])):
        scheme = dice.choice(SCHEMES) + dice.choice((":", ":", "&#58;", "\t:", "%3A"))
        url = (
            scheme
            + dice.choice(("//", "", "/"))
            + dice.choice(HOSTS)
            + dice.choice(("/", "?q=\"'<>", "#" * 9, "/(a(b)c", ""))
        )
        found.append(
            dice.choice(("{} ", "<{}> ", "[x]({}) ", "![x]({}) ", "[x](<{}> 't') ", "[x]: {}\n", "[{0}]({0}) ")).format(
                url
            )
        )
    return "".join(found)


def letters(dice: Random) -> str:
    """Long words, controls of direction, and what terminals read."""
    kind = dice.randrange(4)
    if kind == 0:
        return dice.choice(("a", "漢", "\u0301", "_", "*", "`", "[", "(", "<", "&", "~", "\\")) * dice.choice(
            (500, 3000)
        )
    pieces = list(BIDI) if kind == 1 else list(ANSI) if kind == 2 else ["word", *BIDI, *ANSI]
    return "".join(dice.choices([*pieces, "text", " "], k=dice.choice(COUNTS)))


def runs(dice: Random) -> str:
    """One or two things very often, after others or before them: what is looked for again at each would take long."""
    units = ["".join(dice.choices(PIECES, k=dice.choice((1, 1, 2, 3)))) for _ in range(dice.choice((1, 1, 2)))]
    length = dice.choice((2_000, 18_000, 40_000)) // len(units)
    return "".join(unit * (length // len(unit)) + dice.choice(("", "\n", "\n\n")) for unit in units)


CONSTRUCTS = (table, footnotes, tex, code, entities, links, letters)


def case(dice: Random) -> tuple[str, list[int]]:
    """A text, and the lengths at which it is shown while it grows."""
    some = dice.sample(PIECES, dice.randrange(1, 12))  # the fewer, the more often they meet
    text = "".join(dice.choice(some) * dice.choice((1, 1, 1, 2, 3, 30)) for _ in range(dice.randrange(1, 60)))
    for _ in range(dice.choice((0, 0, 1, 1, 2, 4))):
        at = dice.choice((0, len(text), dice.randrange(len(text) + 1)))
        text = text[:at] + dice.choice(CONSTRUCTS)(dice) + text[at:]
    if dice.random() < 0.1:
        text = dice.choice((text[:20], "")) + runs(dice) + dice.choice((text[-20:], "", "$$", "\\]", ")", "|"))
    cuts = sorted(dice.randrange(len(text) + 1) for _ in range(dice.randrange(0, 8)))
    return text, cuts
