"""JSON schemas as grammars: the mask accepts exactly the valid instances."""

import json
from decimal import Decimal, InvalidOperation
from typing import Any

import jsonschema
import pytest

from app.constrain.cost import MAX_COST, cost
from app.constrain.ebnf import quick_rules
from app.constrain.json_grammar import FREE_ORDER
from app.constrain.rules import schema_rule
from py_engine.errors import WispError
from tests.support.grammar_matcher import run
from tests.support.schema_cases import INVALID, SCHEMAS, UNSUPPORTED, VALUES

SAMPLES = 4
ALL = [(keyword, schema) for keyword, schemas in SCHEMAS.items() for schema in schemas]
TEXTS = [json.dumps(value, ensure_ascii=i % 2 == 0, indent=2 if i % 5 == 0 else None) for i, value in enumerate(VALUES)]


def grammar_of(schema: Any, **options: bool) -> str:
    grammar, (root,) = quick_rules(lambda grammar: [schema_rule(grammar, schema, "schema", **options)])
    text = grammar.text(root)
    return text.exact or text


def is_integer(_: Any, value: Any) -> bool:
    whole = isinstance(value, Decimal) and value == value.to_integral_value()
    return whole or (isinstance(value, int) and not isinstance(value, bool))


def validator(schema: Any) -> Any:
    """Return a validator that compares numbers as exact decimals."""
    base = jsonschema.Draft202012Validator
    checker = base.TYPE_CHECKER.redefine("integer", is_integer)
    in_decimals = json.loads(json.dumps(schema), parse_float=Decimal)
    return jsonschema.validators.extend(base, type_checker=checker)(in_decimals)


def exact(text: str) -> Decimal | float:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of a hundred digits
        return float(text)


def is_valid(judge: Any, text: str) -> bool:
    return bool(judge.is_valid(json.loads(text, parse_float=exact)))


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    """The mask engine's results for every schema, in one run."""
    return run([{"grammar": grammar_of(schema), "texts": TEXTS, "samples": SAMPLES} for _, schema in ALL])


def test_there_are_schemas_for_every_keyword() -> None:
    assert len(ALL) >= 200
    used = {key for _, schema in ALL for key in keys(schema)}
    vocabulary = jsonschema.Draft202012Validator.VALIDATORS.keys() - {"$ref", "$dynamicRef"}
    assert vocabulary <= used
    assert {"$ref", "$dynamicRef", "$anchor", "$dynamicAnchor", "$id", "$defs", "then", "else", "minContains"} <= used


def keys(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        return set(schema) | {k for v in schema.values() for k in keys(v)}
    return {k for v in schema for k in keys(v)} if isinstance(schema, list) else set()


def test_instances_are_accepted_token_by_token_if_they_are_valid(results: list[dict[str, Any]]) -> None:
    valid = 0
    for (keyword, schema), result in zip(ALL, results, strict=True):
        assert "error" not in result, (keyword, schema, result)
        judge = validator(schema)
        for text, accepted in zip(TEXTS, result["texts"], strict=True):
            if keyword == "properties" and text.startswith('{"c": 3, "a"') and len(schema["properties"]) > FREE_ORDER:
                continue  # with so many properties, only the schema's order is allowed
            assert accepted == is_valid(judge, text), (keyword, schema, text)
            valid += accepted
    assert valid > 5000


def test_random_answers_under_the_mask_are_valid(results: list[dict[str, Any]]) -> None:
    finished = 0
    for (keyword, schema), result in zip(ALL, results, strict=True):
        judge = validator(schema)
        for text in result["samples"]:
            if text is not None:
                finished += 1
                assert is_valid(judge, text), (keyword, schema, text)
    assert finished > 0.9 * SAMPLES * len(ALL)


@pytest.mark.parametrize(("schema", "keyword"), UNSUPPORTED, ids=lambda value: json.dumps(value)[:60])
def test_unsupported_keywords_are_named(schema: Any, keyword: str) -> None:
    with pytest.raises(WispError) as error:
        grammar_of(schema)
    assert error.value.code == "unsupported_parameter"
    assert (error.value.param or "").split(".")[-1] == keyword
    assert repr(keyword) in error.value.message


@pytest.mark.parametrize(("schema", "keyword"), INVALID, ids=lambda value: json.dumps(value)[:60])
def test_invalid_schemas_are_rejected(schema: Any, keyword: str) -> None:
    with pytest.raises(WispError) as error:
        grammar_of(schema)
    assert error.value.code == "invalid_value"
    assert (error.value.param or "").split(".")[-1] == (keyword or "schema")


FORMATS = {
    "date": (["2024-02-29", "1999-12-31"], ["2023-02-29", "2024-13-01", "24-01-01"]),
    "time": (["23:59:59Z", "00:00:00.5+01:00"], ["24:00:00Z", "12:00:00"]),
    "date-time": (["2024-02-29T12:00:00Z"], ["2024-02-29 12:00:00Z"]),
    "duration": (["P1Y2M3D", "PT5M", "P2W", "P1DT12H"], ["P", "1D", "PT", "P1W2D"]),
    "email": (["a.b@wisp.test"], ["a@", "@b", "a b@c.d"]),
    "hostname": (["wisp.test", "a-b"], ["-a", "a_b", ""]),
    "ipv4": (["127.0.0.1", "255.255.255.255"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
    "ipv6": (["::1", "2001:db8::8a2e:370:7334", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8"], ["1::2::3", "12345::", ":::"]),
    "uuid": (["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000"]),
    "uri": (["https://wisp.test/a?b#c", "mailto:a@b"], ["//x", "a b:c"]),
    "json-pointer": (["", "/a~1b/0"], ["a", "/~2"]),
}


def test_strict_schemas_hold_formats_and_write_integers_plainly() -> None:
    jobs = []
    for name, (good, bad) in FORMATS.items():
        grammar = grammar_of({"type": "string", "format": name}, strict=True)
        jobs.append({"grammar": grammar, "texts": [json.dumps(t) for t in good + bad], "samples": 3})
    jobs.append({"grammar": grammar_of({"type": "integer"}, strict=True), "texts": ["5", "-12", "5.0"], "samples": 5})
    *results, integers = run(jobs)
    for (name, (good, bad)), result in zip(FORMATS.items(), results, strict=True):
        assert result["texts"] == [True] * len(good) + [False] * len(bad), name
    assert integers["texts"] == [True, True, False]
    with pytest.raises(WispError) as error:
        grammar_of({"type": "string", "format": "colour"}, strict=True)
    assert error.value.param == "schema.format"


def test_ordered_properties_come_in_the_schemas_order() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {}, "b": {}, "c": {}},
        "required": ["b"],
        "additionalProperties": False,
    }
    texts = ['{"a": 1, "b": 2}', '{"b": 2, "c": 3}', '{"b": 2, "a": 1}', '{"a": 1, "c": 3}']
    ordered, free = run([{"grammar": grammar_of(schema, ordered=o), "texts": texts} for o in (True, False)])
    assert ordered["texts"] == [True, True, False, False]
    assert free["texts"] == [True, True, True, False]


def test_in_the_schemas_order_other_names_follow_the_required_ones() -> None:
    """A model that is made to call a function does not put the arguments off for ever."""
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"], "patternProperties": {"^p": {}}}
    texts = ['{"b": 1, "x": 2, "p": 3}', '{"a": 0, "b": 1, "x": 2}', '{"x": 2, "b": 1}', '{"a": 0, "p": 2, "b": 1}']
    ordered, free = run([{"grammar": grammar_of(schema, ordered=o), "texts": texts} for o in (True, False)])
    assert ordered["texts"] == [True, True, False, False]
    assert free["texts"] == [True, True, True, True]


def test_limits_of_strings_hold_beside_long_patterns() -> None:
    """Both are counted in blocks, by rules of their own."""
    properties = {
        "p": {"type": "string", "pattern": "^.{100}$"},
        "s": {"type": "string", "minLength": 17, "maxLength": 30},
    }
    for names in ("ps", "sp"):
        schema = {"properties": {name: properties[name] for name in names}, "additionalProperties": False}
        texts = [json.dumps({"s": "x" * count}) for count in (16, 17, 30, 31, 32)]
        (found,) = run([{"grammar": grammar_of({"type": "object", **schema}), "texts": texts}])
        assert found["texts"] == [False, True, True, False, False], names


def test_names_that_a_closed_object_has_not_cost_nothing() -> None:
    names = [f"a_long_name_of_a_property_{i}" for i in range(40)]
    closed = grammar_of({"type": "object", "properties": dict.fromkeys(names, True), "additionalProperties": False})
    assert "key" not in closed


def test_an_open_object_with_long_names_is_not_too_complex() -> None:
    """Its other names differ from the first letters of those."""
    names = [f"{letter}_long_name_of_a_property" for letter in "abcdefghijkl"]
    schema = {"type": "object", "properties": {key: {"type": "integer"} for key in (*names, "id")}}
    texts = [json.dumps({name: value}) for name in (names[0], "id", "zip", "b", "ids") for value in (5, "x")]
    (found,) = run([{"grammar": grammar_of(schema), "texts": texts}])
    assert found["texts"] == [True, False, True, False, True, True, True, True, True, True]


def test_a_grammar_counts_the_blanks_of_indents_in_one_place() -> None:
    """The mask engine stores 14 MB for the 60 counts, with 128k tokens."""
    text = grammar_of({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}})
    assert text.count("{0,60}") == 1


def test_patterns_may_name_properties_that_begin_as_others_do() -> None:
    names = [f"x_{letter}_property" for letter in "abcd"]
    named = {
        "properties": {name: {"type": "integer"} for name in names},
        "patternProperties": {"^x_": {"type": "integer"}},
    }
    (found,) = run(
        [{"grammar": grammar_of({**named, "additionalProperties": False}), "texts": ['{"x_a_property_2": 1}']}]
    )
    assert found["texts"] == [True]


def test_strings_with_patterns_share_the_rule_for_their_ends() -> None:
    schema = {"type": "array", "prefixItems": [{"type": "string", "pattern": f"^{letter}"} for letter in "ab"]}
    text = grammar_of(schema)
    assert text.count("[\\u00f4\\u00ff]") == 1  # the first byte of the last characters, where any may come
    (found,) = run(
        [{"grammar": text, "texts": ['["a/\\n\U0010ffff", "b"]', '["a\\/\\u0061", "b"]', '["a", "a"]', '["a"b"]']}]
    )
    assert found["texts"] == [True, True, False, False]


def integers(*names: str, **keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "integer"} for name in names}, **keywords}


LONG_NAMES = integers("description_of_the_thing", "another_description_of_it")


def test_other_names_of_an_object_do_not_depend_on_its_siblings() -> None:
    objects = {"b": integers("id"), "c": integers(""), "d": LONG_NAMES}  # the last one is written first
    schema = {"type": "object", "properties": objects}
    texts = [json.dumps({"b": {name: "x"}}) for name in ("i", "image", "ids", "", "id")]
    texts += [json.dumps({"c": {name: "x"}}) for name in ("a", "")]
    (found,) = run([{"grammar": grammar_of(schema), "texts": texts}])
    assert found["texts"] == [True, True, True, True, False, True, False]


def test_other_names_may_begin_as_usual_names_do_in_a_form_that_is_quick() -> None:
    texts = ['{"baz": 1}', '{"foobar": "x"}', '{"foo": "x"}']
    many = {f"object_{letter}": integers("foo", "bar", f"name_{letter}") for letter in "abcdefgh"}
    jobs = [
        {"grammar": grammar_of(integers("foo", "bar")), "texts": texts},
        {
            "grammar": grammar_of({**many["object_a"], "properties": {**many, **many["object_a"]["properties"]}}),
            "texts": texts,
        },
    ]
    assert [found["texts"] for found in run(jobs)] == [[True, True, False], [False, False, False]]


def test_property_names_may_ask_for_names_that_begin_as_others_do() -> None:
    asked = integers("id", propertyNames={"enum": ["id", "image"]}, minProperties=2)
    names = [f"{letter}_name" for letter in "abcdefghijklmnopqrst"]
    many = integers(*names, propertyNames={"enum": [*names, "a_other"]}, minProperties=21)
    jobs = []
    for form, value in ((asked, {"id": 1, "image": "x"}), (many, {**dict.fromkeys(names, 1), "a_other": "x"})):
        schema = {"type": "object", "properties": {"a": LONG_NAMES, "meta": form}}
        jobs.append({"grammar": grammar_of(schema), "texts": [json.dumps({"meta": value})]})
    assert [found["texts"] for found in run(jobs)] == [[True], [True]]


def test_many_open_objects_are_not_too_complex() -> None:
    """Their names have over 100 letters."""
    names = ["id name", "street city zip country", "title author year", "latitude longitude", "sku price quantity"]
    names += ["first_name last_name email phone age", "start_date end_date", "description_of_the_thing"]
    objects = {f"p{i}": integers(*group.split()) for i, group in enumerate(names)}
    assert cost(grammar_of({"type": "object", "properties": objects})) < MAX_COST * 0.6
