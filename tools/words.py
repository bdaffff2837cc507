"""Find words that the glossary rules out, in names, comments and docstrings: `python -m tools.words`.

A pattern is looked for in the names that the code defines, or in its prose (comments and docstrings), or in both.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tools.paths import ROOT

# Parts of identifiers, split at underscores and capitals.
NAMES = re.compile(r"^(seats?|guess(es|ing|ed)?|believ\w*|foretold|company|together|kept|elsewhere|few|gone)$", re.I)
# Words and turns of phrase in comments, docstrings and texts.
PROSE = re.compile(
    r"\b(seats?|company|guess(es|ing|ed)?|believ\w+|foretold|looks? elsewhere|looked elsewhere|(is|are|was|has) gone"
    r"|kept|behind|wants?|(make|makes|have|has|with|of|no|for) room|so much as|of which|The same, )\b",
    re.I,
)
FOLDERS = ("app", "bench", "py_engine", "tests", "tools", "wgsl", "static")
SKIPPED = ("golden", "models", "lavapipe")
ALLOWED = {"tools/words.py", "tests/unit/test_words.py"}
COMMENT = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.S)
DEFINED = re.compile(r"\b(?:function|const|let|var|class|fn|struct|override)(?:<[^>]*>)? (\w+)")
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

Found = tuple[str, int, str]  # file, line, what


def search(root: Path = ROOT) -> list[Found]:
    """Everything that the glossary rules out, in order."""
    found: list[Found] = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if name in ALLOWED or any(part in SKIPPED for part in path.parts):
                continue
            reader = {".py": _python, ".js": _script, ".mjs": _script, ".ts": _script, ".wgsl": _script}.get(
                path.suffix
            )
            if reader:
                found += [(name, line, text) for line, text in reader(path.read_text(encoding="utf-8"))]
    return found


def _python(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _name(node.name, node.lineno)
        if isinstance(node, ast.arg):
            yield from _name(node.arg, node.lineno)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield from _name(node.id, node.lineno)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield from _prose(text, node.body[0].lineno)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _prose(token.string, token.start[0])


def _script(source: str) -> Iterator[tuple[int, str]]:
    for comment in COMMENT.finditer(source):
        yield from _prose(comment[0], source.count("\n", 0, comment.start()) + 1)
    for name in DEFINED.finditer(COMMENT.sub(lambda m: "\n" * m[0].count("\n"), source)):
        yield from _name(name[1], source.count("\n", 0, name.start()) + 1)


def _name(name: str, line: int) -> Iterator[tuple[int, str]]:
    if any(NAMES.match(part) for part in PARTS.findall(name)):
        yield line, name


def _prose(text: str, line: int) -> Iterator[tuple[int, str]]:
    for match in PROSE.finditer(text):
        start = text.rfind("\n", 0, match.start()) + 1
        yield line + text.count("\n", 0, match.start()), text[start:].partition("\n")[0].strip()


if __name__ == "__main__":
    everything = search()
    for file, number, text in everything:
        print(f"{file}:{number}: {text}")
    sys.exit(1 if everything else 0)
