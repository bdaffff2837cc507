"""Forms of requests: their fields as the SDK takes them, and errors; the bytes of Base64 texts. In Node."""

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.support.js_modules import Evaluate, evaluator


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    folder: Path = tmp_path_factory.mktemp("forms")
    return evaluator(folder, ["app/sdk/form.js", "app/sdk/base64.js"])


def body_of(evaluate: Evaluate, *fields: tuple[str, str]) -> Any:
    """The body of a form with these fields as JSON, or the message of its error."""
    code = """(async () => {
      const form = new FormData();
      for (const [name, value] of a[0]) form.append(name, value);
      const endpoint = { form: { stream: "boolean", temperature: "number" } };
      const request = new Request("https://a.org/", { method: "POST", body: form });
      return m.bodyOf(request, endpoint).then((body) => [Object.entries(body)], (error) => error.error.message);
    })()"""
    found = evaluate(code, fields)
    return found if isinstance(found, str) else dict(found[0])


def test_types_of_fields(evaluate: Evaluate) -> None:
    for text, value in {"true": True, "false": False, "constructor": "constructor"}.items():
        assert body_of(evaluate, ("stream", text)) == {"stream": value}
    assert body_of(evaluate, ("temperature", "0.5"), ("prompt", "7")) == {"temperature": 0.5, "prompt": "7"}


def test_lists_of_any_name(evaluate: Evaluate) -> None:
    assert body_of(evaluate, ("toString[]", "x"), ("toString[]", "y")) == {"toString": ["x", "y"]}
    assert body_of(evaluate, ("__proto__[]", "x")) == {"__proto__": ["x"]}


def test_a_value_and_a_list_of_one_name(evaluate: Evaluate) -> None:
    assert body_of(evaluate, ("include", "a"), ("include[]", "b")) == "include is sent as one value and as a list."


@pytest.mark.parametrize("native", [False, True])
def test_bytes_of_base64(evaluate: Evaluate, native: bool) -> None:
    """With the browser's own function and without it."""
    data = bytes(range(256)) * 3
    own = "Uint8Array.fromBase64 = function (text) { return new this(Buffer.from(text, 'base64')); };"
    code = f"(() => {{ {own if native else ''} return [...m.bytesOf(a[0])]; }})()"
    assert bytes(evaluate(code, base64.b64encode(data).decode())) == data
