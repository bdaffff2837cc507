"""Arguments of tool calls that may be null, as pydantic writes `Optional[...]`: their grammar and their parsing."""

import contextlib
import json
from typing import Any

import pytest

from py_engine.errors import WispError
from tests.support.call_kinds import TAGGED, calls_of, of_values, parsed, rules_of, written
from tests.support.grammar_matcher import run

OPTIONAL = {
    "type": "object",
    "properties": {
        "text": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Text"},
        "unit": {"anyOf": [{"type": "string", "enum": ["c", "f"]}, {"type": "null"}], "default": None},
        "count": {"anyOf": [{"type": "integer", "minimum": 2}, {"type": "null"}], "description": "how many"},
        "list": {"oneOf": [{"type": "null"}, {"type": "array", "items": {"type": "integer"}}]},
    },
}
# The values of a call, and how they are written between tags.
OPTIONAL_VALUES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"text": 'a "b"\n5'}, {"text": 'a "b"\n5'}),
    ({"text": "5", "unit": "f"}, {"text": "5", "unit": "f"}),
    ({"text": None, "unit": None, "count": None}, {"text": "null", "unit": "null", "count": "null"}),
    ({"text": "", "count": 12, "list": [1]}, {"text": "", "count": "12", "list": "[1]"}),
]


@pytest.mark.parametrize("kind", TAGGED)
def test_optional_values_are_written_between_tags(kind: str) -> None:
    found = of_values(kind, OPTIONAL)
    good = [written(kind, texts) for _, texts in OPTIONAL_VALUES]
    bad = [
        written(kind, {name: text}) for name, text in (("unit", "k"), ("count", "1"), ("count", "1.5"), ("list", "1"))
    ]
    (result,) = run([{"grammar": rules_of(found, None), "texts": [*good, *bad]}])
    assert result["texts"] == [True] * len(good) + [False] * len(bad)
    for answer, (want, _) in zip(good, OPTIONAL_VALUES, strict=True):
        for seed in range(20):
            ((name, arguments),) = calls_of(parsed(found.parser("", True), answer, seed))
            assert (name, json.loads(arguments)) == ("f", want)


def test_optional_values_of_gemma_and_in_python() -> None:
    """Where texts have quotes, the text `null` is no null."""
    written_so = {
        "gemma": ("<|tool_call>call:f{%s}<tool_call|>", 'text:<|"|>null<|"|>,unit:null', "count:null,text:null",
                  "unit:k"),
        "lfm2": ("<|tool_call_start|>[f(%s)]<|tool_call_end|>", 'text="null", unit=None', "text=None, count=None",
                 'unit="k"'),
    }  # fmt: skip
    for kind, (call, *texts) in written_so.items():
        found = of_values(kind, OPTIONAL)
        answers = [call % text for text in texts]
        (result,) = run([{"grammar": rules_of(found, None), "texts": answers}])
        assert result["texts"] == [True, True, False], kind
        for answer, want in zip(answers, ({"text": "null", "unit": None}, {"text": None, "count": None}), strict=False):
            ((_, arguments),) = calls_of(parsed(found.parser("", True), answer, 3))
            assert json.loads(arguments) == want, kind


@pytest.mark.parametrize("kind", [*TAGGED, "minicpm", "gemma", "lfm2"])
@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string", "null"], "enum": 5},
        {"anyOf": [{"type": "string", "enum": "ab"}, {"type": "null"}]},
        {"anyOf": [{"type": "null"}, 5]},
        {"anyOf": 5},
        {"type": ["null"], "enum": [None]},
    ],
    ids=str,
)
def test_damaged_optional_values_are_refused_or_enforced_as_json(kind: str, schema: dict[str, Any]) -> None:
    with contextlib.suppress(WispError):
        assert rules_of(of_values(kind, {"type": "object", "properties": {"v": schema}}), None)
