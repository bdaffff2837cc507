"""JSON from outside: the depth of any text is known before it is parsed."""

import json
import tracemalloc
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from py_engine.json_input import MAX_BYTES, MAX_DEPTH, TooDeep, TooLarge, depth, is_deep, parse, stored

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('[]{}",\\a'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('[{"\\', max_size=3), inner, max_size=4),
    max_leaves=30,
)


def levels(value: Any) -> int:
    """The depth of a parsed value."""
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(levels, value), default=0) if isinstance(value, list) else 0


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES, st.booleans())
def test_parses_like_json_and_knows_the_depth(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse(text) == parse(text.encode("utf-8", "surrogatepass" if ascii_only else "strict")) == value
    padded = f"[{text}{', []' * MAX_DEPTH}]"  # many brackets: the depth is counted
    assert depth(padded) == max(levels(value), 1) + 1


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"[":'])
def test_deep_json_is_refused_before_it_is_parsed(opening: str) -> None:
    for text in (opening * 30_000, "[1, " + opening * 30_000):
        with pytest.raises(TooDeep):
            parse(text)
    closing = "".join({"[": "]", "{": "}"}.get(c, "") for c in reversed(opening.replace('"["', "")))
    times = MAX_DEPTH // len(closing)
    assert levels(parse(opening * times + "1" + closing * times)) == times * len(closing)


@pytest.mark.parametrize("item", ["[],", "{},", '{"a":1},', "1.5,", '"ab",', "[[1]],"])
def test_json_of_too_many_values_is_refused_before_it_is_parsed(item: str) -> None:
    text = item * (MAX_BYTES // 30)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="160 MB"):
            parse(f"[{text[:-1]}]")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_BYTES


def test_long_strings_and_prompts_of_tokens_are_not_too_large() -> None:
    long = 'a,{["' * (MAX_BYTES // 200)
    assert parse(json.dumps({"content": long})) == {"content": long}
    ids = list(range(1_000_000))
    assert parse(json.dumps(ids)) == ids


@pytest.mark.parametrize("inner", ["", "1", "[]", "{}"])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": [', "]}")])
def test_a_value_is_deep_where_its_text_is(inner: str, opening: str, closing: str) -> None:
    for times in range(MAX_DEPTH // 2 - 2, MAX_DEPTH + 3):
        text = f"[1, {opening * times}{inner}{closing * times}]"
        assert is_deep(json.loads(text)) == (depth(text) > MAX_DEPTH)


@pytest.mark.parametrize(
    "text", ["", "[", '"', '"\\', "[" * 99, '["' + "[" * 500, "]" * 500, '"\\"' + "[" * 500, "\x00"]
)
def test_broken_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_a_closing_bracket_inside_a_string_does_not_lower_the_depth() -> None:
    assert depth('["]", ' * 200) == 200 == max(accumulate([1] * 200))


@pytest.mark.parametrize("text", [None, "", "no json", "[]", "5", "null", "[" * 30_000, '"x"'])
def test_a_stored_object_that_is_damaged_is_empty(text: str | None) -> None:
    assert stored(text) == {}


def test_a_stored_object_is_read() -> None:
    assert stored('{"a": [1]}') == {"a": [1]}
