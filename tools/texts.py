"""Compare the page's texts with its languages: `python -m tools.texts` prints what is missing or not used.

A text is the English literal of a `t("...")` in the page's JavaScript, or a text in index.html. It is the key of its
translations in app/language/CODE.json.
"""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from tools.paths import ROOT

LANGUAGES = ROOT / "app" / "language"
FOLDERS = ("app/ui", "app/hub", "app/retrieval", "app/storage", "app/tools")
INDEX = ROOT / "static" / "index.html"
CATALOG = ROOT / "static" / "models" / "catalog.json"
# Notices of the engine. Its errors are not translated: the API has them in English.
NOTICES = (
    "No GPU here: running on the CPU, which is slower.",
    "The GPU was lost during the load, which began again on a new device.",
)

WORD = re.compile(r"[^\W\d_]")
CALL = re.compile(r'(?<![\w.])t\(\s*("(?:[^"\\]|\\.)*")')
ANY_CALL = re.compile(r"(?<![\w.])t\(")
ADOPTS = "app/ui/texts.js"  # calls t() with the texts of index.html, and with the NOTICES

# Literals that look like a text for users: they begin with a capitalized word, or have small words of English.
PROSE = re.compile(
    r"^[A-Z][a-z]+(?:[ .,:…!?]|$)|(?:^|\s)(?:a|and|are|at|by|cannot|for|from|in|is|not|of|that|the|this|to|was|with)\s"
)
# Code before a literal that is not shown to users, or that is in t() already.
UNREAD = re.compile(
    r"(?:console\.\w+|querySelector\w*|closest|matches|import|getElementById)\(\s*$|\bt\(\s*$|\bfrom\s*$"
)
# Literals that stay English: names, and texts for models.
ENGLISH = re.compile(
    r"^(?:Wisp(?: Mini)?$|Bearer |Question: |Cite the source|Answer the question using|The style sheet \{\}|<!doctype"
    r"|(?:Gemma|Llama|Granite|Nomic)\b|English$|Deutsch$|Español$|Français$)"
)
ENGLISH_FILES = {
    "app/ui/examples.js", "app/ui/markdown.js", "app/ui/unframed.js", "app/retrieval/search.js",
    # texts for models, and for who writes a tool
    "app/tools/code.js", "app/tools/registry.js", "app/tools/sandbox/limits.js", "app/tools/sandbox/python.js",
    "app/tools/sandbox/worker.js", "app/tools/packages.js",
    "app/ui/chats/agent.js", "app/ui/chats/steps.js", "app/ui/web_mcp.js",
}  # fmt: skip
# Names of keys in keyboard events, and of a type in drag events.
EVENT_NAMES = {
    "Control", "Ctrl", "Meta", "Shift", "Escape", "Enter", "Tab", "Home", "End",
    "ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight", "Files",
}  # fmt: skip

Found = tuple[str, str]  # file, text


def scripts() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each script whose texts a user reads."""
    paths = [ROOT / "app/page.js", *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.js")))]
    for path in paths:
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def keys() -> set[str]:
    """Return every text of the page."""
    texts = {*html_texts(INDEX.read_text(encoding="utf-8")), *NOTICES}
    texts |= {entry["description"] for entry in json.loads(CATALOG.read_text(encoding="utf-8"))}
    for _, source in scripts():
        texts |= {json.loads(literal) for literal in CALL.findall(source)}
    return texts


def computed() -> list[str]:
    """Return the scripts that call t() with something other than a literal: its texts would be missing here."""
    return [
        name
        for name, source in scripts()
        if name != ADOPTS and len(ANY_CALL.findall(source)) > len(CALL.findall(source))
    ]


def entries(code: str) -> dict[str, Any]:
    """Return a language's translations by English text: one text, or one for each plural form."""
    found: dict[str, Any] = json.loads((LANGUAGES / f"{code}.json").read_text(encoding="utf-8"))
    return found


def codes() -> list[str]:
    """Return the languages besides English."""
    return sorted(path.stem for path in LANGUAGES.glob("*.json"))


def hard_coded(source: str) -> list[str]:
    """Return the literals of a script that look like texts for the user and are not in t()."""
    return [
        text
        for before, text in _literals(source)
        if PROSE.search(text)
        and text not in EVENT_NAMES
        and not ENGLISH.search(text)
        and not UNREAD.search(before[-40:])
    ]


def untranslated() -> list[Found]:
    """Return the texts in scripts that no language can have."""
    return [(name, text) for name, source in scripts() if name not in ENGLISH_FILES for text in hard_coded(source)]


def _literals(source: str) -> Iterator[tuple[str, str]]:
    """Yield (code before it, content) of each string and template literal of a script. `{}` is a template's value."""
    token = re.compile(
        r"/\*.*?\*/|//[^\n]*"  # comments
        r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
        r"|(?P<regex>(?<=[=(,:?!&|\s])/(?![/*\s])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*)"
        r"|(?P<mark>[`{}])",
        re.S,
    )
    nested: list[str] = []  # templates ("`") and braces ("{") that are open at `at`
    parts: list[tuple[str, str]] = []  # of each open template: (code before it, its text so far)
    at = 0
    while match := (re.compile(r"\\.|`|\$\{", re.S) if nested[-1:] == ["`"] else token).search(source, at):
        found = match[0]
        if nested[-1:] == ["`"]:
            before, text = parts[-1]
            parts[-1] = (before, text + source[at : match.start()] + ("{}" if found == "${" else ""))
            if found == "`":
                nested.pop()
                yield parts.pop()
            elif found == "${":
                nested.append("{")
        elif match["string"]:
            yield source[max(0, match.start() - 80) : match.start()], found[1:-1]
        elif found == "`":
            nested.append("`")
            parts.append((source[max(0, match.start() - 80) : match.start()], ""))
        elif found == "{":
            nested.append("{")
        elif found == "}" and nested:
            nested.pop()
        at = match.end()


class _Texts(HTMLParser):
    """Collects the texts of a page as adoptPage() of app/ui/texts.js does."""

    VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "circle", "path", "stop", "use"})
    FIXED = frozenset({"code", "head", "noscript", "script", "svg"})
    ATTRIBUTES = ("aria-label", "title", "placeholder")

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[tuple[str, bool, list[str]]] = []  # (tag, stays English, texts with "" for each child)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        fixed = tag in self.FIXED or values.get("translate") == "no" or (bool(self.open) and self.open[-1][1])
        if self.open:
            self.open[-1][2].append("")
        if not fixed:
            texts = [values.get(name) or "" for name in self.ATTRIBUTES]
            self.texts += [text for text in texts if WORD.search(text) and "://" not in text]
        if tag not in self.VOID:
            self.open.append((tag, fixed, []))

    def handle_data(self, data: str) -> None:
        if self.open:
            self.open[-1][2].append(data or " ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID:
            return
        _, fixed, parts = self.open.pop()
        words = [part for part in parts if WORD.search(part)]
        if fixed or not words:
            return
        elements = iter(range(len(parts)))
        whole = words[0] if len(words) == 1 else "".join(part or f"{{{next(elements)}}}" for part in parts)
        self.texts.append(" ".join(whole.split()))


def html_texts(page: str) -> list[str]:
    """Return the texts of a page's elements and attributes."""
    parser = _Texts()
    parser.feed(page)
    return parser.texts


def main() -> int:
    """Print missing and unused translations, and texts that are not in t(); return the exit status."""
    wanted = keys()
    lines = [f"{code}: missing: {text}" for code in codes() for text in sorted(wanted - set(entries(code)))]
    lines += [f"{code}: not used: {text}" for code in codes() for text in sorted(set(entries(code)) - wanted)]
    lines += [f"{name}: not in t(): {text}" for name, text in untranslated()]
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
