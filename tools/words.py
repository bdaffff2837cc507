"""Find words that the glossary rules out, in names, comments and docstrings: `python -m tools.words`.

`python -m tools.words --sample 20 --seed 7` prints random sentences of the code's comments and docstrings instead: each
should be readable once.
"""

import argparse
import ast
import io
import random
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tools.paths import ROOT

# Parts of identifiers, split at underscores and capitals.
NAMES = re.compile(r"seats?|guess(es|ing|ed)?|believ\w*|foretold|company|together|kept|elsewhere|few|gone", re.I)
# Words and turns of phrase in comments, docstrings and texts.
PROSE = re.compile(
    r"\b(seats?|company|guess(es|ing|ed)?|believ\w+|foretold|looks? elsewhere|looked elsewhere|(is|are|was|has) gone"
    r"|kept|behind|wants?|(make|makes|have|has|with|of|no|for) room|so much as|of which|The same, )\b",
    re.I,
)
FOLDERS = ("app", "bench", "py_engine", "tests", "tools", "wgsl", "static")
SUFFIXES = (".py", ".js", ".mjs", ".ts", ".wgsl")
SKIPPED = ("golden", "models", "lavapipe")
ALLOWED = {"tools/words.py", "tests/unit/test_words.py"}
COMMENT = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.S)
DEFINED = re.compile(r"\b(?:function|const|let|var|class|fn|struct|override)(?:<[^>]*>)? (\w+)")
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

SENTENCE = re.compile(r"[A-Z`][^.!?]{25,}[.!?](?=\s|$)")

Found = tuple[str, int, str]  # file, line, what


def search(root: Path = ROOT) -> list[Found]:
    """Return everything that the glossary rules out, in order."""
    found: list[Found] = []
    for name, source in _files(root):
        if NAMES.search(source):  # else parsing it, which takes most of the time, would find nothing
            found += [(name, line, text) for line, text in _names(name, source) if _ruled_out(text)]
        if PROSE.search(source):
            for line, text in _comments(name, source):
                found += [(name, line + at, found_in) for at, found_in in _prose(text)]
    return found


def sentences(root: Path = ROOT) -> list[Found]:
    """Return every sentence of comments and docstrings."""
    found: list[Found] = []
    for name, source in _files(root):
        for line, text in _comments(name, source):
            plain = re.sub(r"\s*\n\s*(?:\*|//+|#+)?\s*", " ", text.strip("/*# \n"))
            found += [(name, line, match[0]) for match in SENTENCE.finditer(plain)]
    return found


def _files(root: Path) -> Iterator[tuple[str, str]]:
    """(name, source) of every file."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if name in ALLOWED or any(part in SKIPPED for part in path.parts) or path.suffix not in SUFFIXES:
                continue
            yield name, path.read_text(encoding="utf-8")


def _comments(file: str, source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of a file's comments and docstrings."""
    return _python_prose(source) if file.endswith(".py") else _script_prose(source)


def _python_prose(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield node.body[0].lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _script_prose(source: str) -> Iterator[tuple[int, str]]:
    for comment in COMMENT.finditer(source):
        yield source.count("\n", 0, comment.start()) + 1, comment[0]


def _names(file: str, source: str) -> Iterator[tuple[int, str]]:
    if file.endswith(".py"):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node.lineno, node.name
            if isinstance(node, ast.arg):
                yield node.lineno, node.arg
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.lineno, node.id
        return
    code = COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), source)
    for name in DEFINED.finditer(code):
        yield code.count("\n", 0, name.start()) + 1, name[1]


def _ruled_out(name: str) -> bool:
    return any(NAMES.fullmatch(part) for part in PARTS.findall(name))


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """(line within the text, that line) for each word that the glossary rules out."""
    for match in PROSE.finditer(text):
        start = text.rfind("\n", 0, match.start()) + 1
        yield text.count("\n", 0, match.start()), text[start:].partition("\n")[0].strip()


def main(arguments: list[str]) -> int:
    """Print what is ruled out, or a sample; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.words", description=__doc__)
    parser.add_argument("--sample", type=int, help="print so many random sentences instead")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.sample:
        found = random.Random(options.seed).sample(sentences(), options.sample)
    else:
        found = search()
    for file, number, text in found:
        print(f"{file}:{number}: {text}")
    return 0 if options.sample or not found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
