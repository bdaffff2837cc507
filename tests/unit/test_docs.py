"""The documentation names files that exist, and the README stays short."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.paths import ROOT

TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
DOCUMENTS = [*(ROOT / name for name in TOP), *sorted(ROOT.glob("docs/**/*.md"))]
ROOMS = ("app", "bench", "docs", "py_engine", "static", "tests", "tools", "wgsl", "wisp")
SUFFIXES = r"py|js|mjs|ts|json|css|html|wgsl|md|toml"
CODE = re.compile(r"```.*?```|^    .*$", re.S | re.M)
LINK = re.compile(r"\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"(?:{'|'.join(ROOMS)})/[\w./-]*|[\w.-]+(?:/[\w.-]+)*\.(?:{SUFFIXES})")
# Words in capitals are placeholders for a name.
PLACEHOLDER = re.compile(r"(?<![a-z])[A-Z]{4,}(?![a-z])")
BUILT = {"dist/notices.html", "prompt-api.js", "wisp-chat.js"}


def _links(text: str) -> Iterator[str]:
    for match in LINK.finditer(CODE.sub("", text)):
        if not match[1].startswith(("http:", "https:", "mailto:")):
            yield match[1]


def _paths(text: str) -> Iterator[str]:
    """Back-ticked repository paths, without arguments and pytest's selectors."""
    for match in QUOTED.finditer(CODE.sub("", text)):
        for word in match[1].split():
            if PATH.fullmatch(word) and not PLACEHOLDER.search(word):
                yield word


def _anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _exists(path: str, document: Path) -> bool:
    """Whether a path exists: from the repository's root, from the document's folder, or as the end of a file's path."""
    if (ROOT / path).exists() or (document.parent / path).exists():
        return True
    return any(file.is_file() for room in ROOMS for file in (ROOT / room).rglob(path))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file(document: Path) -> None:
    for link in _links(document.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_path_is_in_the_repository(document: Path) -> None:
    paths = set(_paths(document.read_text(encoding="utf-8"))) - BUILT
    missing = sorted(path for path in paths if not _exists(path, document))
    assert not missing


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_the_walks_name_what_is_there() -> None:
    """Functions and other names in docs/contributing; what moved or was renamed would mislead."""
    sources = [
        file
        for room in ("app", "py_engine", "wgsl", "wasm", "tools", "tests", "bench")
        for file in (ROOT / room).rglob("*")
    ]
    texts = (
        file.read_text(encoding="utf-8")
        for file in sources
        if file.suffix in {".py", ".js", ".ts", ".wgsl", ".c", ".h"}
    )
    known = {word for text in texts for word in re.findall(r"\w+", text)} | {"llama_model_rope_type"}  # llama.cpp's
    named = {
        (document.name, name)
        for document in ROOT.glob("docs/contributing/*.md")
        for name in re.findall(r"`(\w+)`", CODE.sub("", document.read_text(encoding="utf-8")))
        if not PLACEHOLDER.search(name)
    }
    assert len(named) > 50
    assert not [(document, name) for document, name in sorted(named) if name not in known]
