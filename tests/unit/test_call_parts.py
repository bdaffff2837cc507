"""Calls of functions in the chunks of other servers, which may have anything in them."""

from typing import Any

import pytest

from tests.support.js_modules import Evaluate, evaluator

ADD = """(() => {
  const calls = [];
  for (const deltas of a[0]) m.addCallParts(calls, deltas);
  return calls.map(({ id, name, arguments: args }) => [id, name, args]);
})()"""


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("call-parts"), ["app/sdk/call_parts.js"])


def part(index: Any, call_id: Any = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        ([[part(0, "a", "f", '{"x"')], [part(0, None, None, ":1}"), part(1, "b", "g", "{}")]],
         [["a", "f", '{"x":1}'], ["b", "g", "{}"]]),
        ([[part(0, "a", "f", "{")], [part(0, "a", None, "}")]], [["a", "f", "{}"]]),
        ([[part(0, "a", "f", "{}")], [part(0, "b", "g", "{}")]], [["a", "f", "{}"], ["b", "g", "{}"]]),
        ([[part(None, "a", "f", "{}")], [part(None, "b", "g", "{}")]], [["a", "f", "{}"], ["b", "g", "{}"]]),
        ([[part(0, "a", "f", "{}"), part(1, "a", "f", "{}")]], [["a", "f", "{}"], ["", "f", "{}"]]),
        ([[part(4_000_000_000, "a", "f", "{}"), part(-1, "b", "g", "{}"), part("__proto__", "c", "h", "{}")]],
         [["a", "f", "{}"], ["b", "g", "{}"], ["c", "h", "{}"]]),
        ([[part(None, None, "f", "{}")], [part(None, None, "g", "{}")]], [["", "f", "{}"], ["", "g", "{}"]]),
        ([[part(0, "a", "f", "{")], [part(None, "a", None, "}")]], [["a", "f", "{}"]]),
        ([5, None, "x", {}, [None, 1, "x", {"index": 0, "function": 3}]], [["", "", ""]]),
        ([[part(0, {}, [], 7)]], [["", "", ""]]),
    ],
    ids=["parts", "repeated", "one index", "no index", "same id", "odd index", "no id", "id alone", "nonsense",
         "types"],
)  # fmt: skip
def test_calls_are_assembled(js: Evaluate, chunks: list[Any], calls: list[list[str]]) -> None:
    assert js(ADD, chunks) == calls


def test_calls_without_end_are_cut(js: Evaluate) -> None:
    assert len(js(ADD, [[part(i, f"{i}", "f", "{}") for i in range(1000)]])) == 128
