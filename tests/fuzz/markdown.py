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


def case(dice: Random) -> tuple[str, list[int]]:
    """A text, and the lengths at which it is shown while it grows."""
    some = dice.sample(PIECES, dice.randrange(1, 12))  # the fewer, the more often they meet
    text = "".join(dice.choice(some) * dice.choice((1, 1, 1, 2, 3, 30)) for _ in range(dice.randrange(1, 60)))
    cuts = sorted(dice.randrange(len(text) + 1) for _ in range(dice.randrange(0, 8)))
    return text, cuts
