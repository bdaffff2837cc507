"""The table of error codes lists every code that is used, and no other. What errors quote is short."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from app.upstreams.errors import refused
from app.upstreams.server import Upstream
from py_engine.errors import CODES, MAX_MESSAGE, WispError
from tools.paths import ROOT

TABLE = ROOT / "py_engine" / "errors.py"


def reported() -> Iterator[str]:
    """The codes of WispError(message, code, ...) in Python, of `code: "..."` in JavaScript, and of the bridge."""
    for folder in ("app", "py_engine"):
        for path in ROOT.glob(f"{folder}/**/*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "WispError" and len(node.args) > 1:
                    constants = (n.value for n in ast.walk(node.args[1]) if isinstance(n, ast.Constant))
                    yield from map(str, constants)
    for path in ROOT.glob("app/**/*.js"):
        yield from re.findall(r'\bcode: "(\w+)"', path.read_text(encoding="utf-8"))
    for name, argument in re.findall(r"_(refuse|forbid)\((.*)", (ROOT / "tools" / "api.py").read_text()):
        yield from re.findall(r'^(?:HTTPStatus.\w+, )?"(\w+)"', argument) if name else []


def test_every_code_that_is_reported_is_in_the_table() -> None:
    found = set(reported())
    assert len(found) > 35, "reported() no longer finds how errors are raised"
    assert found - CODES.keys() == set()


def test_every_code_of_the_table_is_reported_somewhere() -> None:
    files = [
        *ROOT.glob("app/**/*.py"),
        *ROOT.glob("py_engine/**/*.py"),
        *ROOT.glob("app/**/*.js"),
        ROOT / "tools/api.py",
        ROOT / "tools/connections.py",
    ]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path != TABLE)
    assert {code for code in CODES if f'"{code}"' not in text} == set()


def test_the_documentation_lists_every_code() -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert {code for code in CODES if f"| `{code}` | {CODES[code]} |" not in text} == set()


def test_what_an_error_quotes_is_shortened() -> None:
    error = WispError("begins " + "x" * 1_000_000 + " ends", "invalid_value", param="y" * 1_000_000)
    assert len(error.message) <= MAX_MESSAGE
    assert error.message.startswith("begins x")
    assert error.message.endswith("x ends")
    assert len(str(error.param)) <= MAX_MESSAGE


def test_a_prompt_that_is_too_long_for_an_upstream() -> None:
    """llama.cpp's code is the HTTP status; its type says what is wrong, and it counts the tokens."""
    counts = {"n_prompt_tokens": 900, "n_ctx": 512}
    body: dict[str, Any] = {"code": 400, "message": "too long", "type": "exceed_context_size_error", **counts}
    upstream = Upstream("office", "http://localhost:8080/v1")
    error = refused(upstream, 400, {"error": body}, "").as_dict()["error"]
    assert (error["code"], error["type"]) == ("context_length_exceeded", "invalid_request_error")
    assert {name: error[name] for name in counts} == counts
    for other in ({"n_ctx": "512", "n_prompt_tokens": True}, {"n_ctx": 512.5, "n_prompt_tokens": None}):
        assert not refused(upstream, 400, {"error": body | other}, "").counts
