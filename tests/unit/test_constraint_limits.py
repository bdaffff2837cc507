"""Constraints that explode: a 400 in about a second, and none that the mask engine would compile for long."""

import time
import tracemalloc
from decimal import Decimal
from typing import Any

import pytest

from app.answers.grammar import rules_of
from app.constrain import automaton, gbnf, gbnf_parts, numbers
from app.constrain.cost import cost
from app.constrain.effort import MAX_EFFORT, TooComplex, begin, left
from app.constrain.schema import Schemas
from app.constrain.value_sets import ObjectSet, Ref
from app.openai.formats import Format
from py_engine.errors import WispError
from tests.support import llama_grammars

pytestmark = pytest.mark.slow


def nested(times: int) -> dict[str, Any]:
    """A schema within `times` others."""
    schema: dict[str, Any] = {}
    for _ in range(times):
        schema = {"items": schema}
    return schema


REFUSED: list[tuple[str, Any]] = [
    ("regex", "(((a{1000}){1000}){1000})"),
    ("regex", r"\p{L}{2000}"),
    ("regex", "(a|b)*a(a|b){15}"),
    ("regex", "(" * 3000 + "a" + ")" * 3000),
    ("regex", "((a{1,100}){1,100}){1,100}"),
    ("regex", "[" + "a-z" * 5000 + "]{2000}"),
    ("regex", r"(\p{L}|\p{Lu}|\p{Ll}|\p{N}|\p{P}){1,500}"),
    ("regex", "(.*a.*b.*c.*|.*b.*a.*c.*){5}d.{200}"),
    ("grammar", 'root ::= (("a"{1000}){1000}){1000}'),
    ("grammar", "root ::= " + "(" * 3000 + '"a"' + ")" * 3000),
    (
        "grammar",
        "root ::= " + " ".join(f"x{i}" for i in range(5000)) + "".join(f'\nx{i} ::= "a"{{900}}' for i in range(5000)),
    ),
    ("grammar", 'root ::= "a"{99999999999}'),
    ("grammar", "root ::= " + "[^a]" * 20_000),
    # what must come next has no end, or billions of characters: the mask engine would hold all of it
    ("grammar", 'root ::= "a" root'),
    ("grammar", 'root ::= "b" | x\nx ::= "a" y\ny ::= x "c" | y'),
    ("grammar", 'root ::= ("a"{100000}){100000}'),
    ("grammar", "root ::= a0\n" + "\n".join(f"a{i} ::= a{i + 1} a{i + 1}" for i in range(30)) + '\na30 ::= "x"'),
    # each rule begins with all that follow
    ("grammar", "root ::= a0\n" + "\n".join(f'a{i} ::= a{i + 1} "y" | a0' for i in range(3000)) + '\na3000 ::= "x"'),
    # texts that can be read in very many ways: a token would take the mask engine seconds, now or after some more
    ("grammar", 'root ::= root root | "a"'),
    ("grammar", 'root ::= root root root | "a" | ""'),
    ("grammar", 'root ::= "a" root root | ""'),
    ("grammar", 'root ::= root? root? "a"'),
    ("grammar", 'root ::= "Dear reader, " x\nx ::= "(" x ")" | x x | [a-z]'),
    ("grammar", 'root ::= "x" a | "y" b\na ::= "(" a ")" | "z"\nb ::= c* "q"\nc ::= [a-z]* | b'),
    ("grammar", 'root ::= .* root | "z" | .*'),
    ("grammar", "root ::= a0\n" + "\n".join(f'a{i} ::= a{i + 1} a{i + 1} | ""' for i in range(30)) + '\na30 ::= "x"'),
    (
        "grammar",
        "root ::= a0\n"
        + "\n".join(f'a{i} ::= a{i + 1} | "a" a{i + 1} | ""' for i in range(200))
        + '\na200 ::= "x" | "(" root ")"',
    ),
    ("grammar", 'root ::= (x{0,100}){0,100}\nx ::= "a"?'),
    ("grammar", "root ::= ([a-z]{1,1000}){0,12}"),
    ("grammar", 'root ::= ("a"? .{1,1000} root+)?'),
    ("grammar", 'root ::= x{2000}\nx ::= ("a" root)?'),
    ("grammar", 'root ::= (("b"+){3,}){2000}'),
    ("grammar", "root ::= (.+){1,1000}"),
    ("grammar", "root ::= [^a]{0,500} root?"),
    # a class in a rule of its own, repeated within a repetition: 67 s
    ("grammar", 'root ::= (([a-zA-Z ]{1,300} | [^"\\\\]{2})){16} root?'),
    ("grammar", 'root ::= ("é\\n"{99999}){2}'),
    ("json_schema", {"type": "array", "minItems": 10**9}),
    ("json_schema", {"type": "array", "maxItems": 10**9}),
    ("json_schema", {"type": "string", "maxLength": 10**9}),
    ("json_schema", {"minProperties": 10**9, "type": "object"}),
    ("json_schema", {"type": "array", "prefixItems": [True], "minItems": 10**9}),
    ("json_schema", {"allOf": [{"contains": {"const": i}} for i in range(12)]}),
    ("json_schema", {"type": "array", "contains": {"const": 1}, "minContains": 10**9}),
    ("json_schema", {"enum": [{"a": i} for i in range(3000)]}),
    ("json_schema", {"enum": ["x" * 50_000, "y" * 60_000]}),
    ("json_schema", {"oneOf": [{"pattern": f"a{i}"} for i in range(300)]}),
    ("json_schema", {"type": "object", "patternProperties": {f".*{i}.*": True for i in range(12)}}),
    ("json_schema", {"not": {"allOf": [{"pattern": f"{i}.*{i}"} for i in range(50)]}}),
    # numbers beyond what float() and int() take, digits of other scripts, and what JSON lacks
    ("regex", "a{" + "9" * 5000 + "}"),
    ("regex", "a{²}"),
    ("grammar", 'root ::= "a"{' + "9" * 5000 + "}"),
    ("grammar", r'root ::= "\U99999999"'),
    ("json_schema", {"minimum": 10**500}),
    ("json_schema", {"maxLength": 10**400}),
    ("json_schema", {"multipleOf": 10**400}),
    ("json_schema", {"const": float("nan")}),
    ("json_schema", {"enum": [float("inf")]}),
    ("json_schema", {"$ref": "#/anyOf/²", "anyOf": [True]}),
    ("json_schema", {"$ref": "#/anyOf/" + "9" * 5000, "anyOf": [True]}),
    # each reference copies what is required
    (
        "json_schema",
        {"properties": {f"p{i}": {"$ref": "#"} for i in range(5000)}, "required": [f"p{i}" for i in range(5000)]},
    ),
    ("json_schema", {"type": "object", "required": [f"p{i}" for i in range(20_000)]}),
    # what is long only to read
    ("regex", "[" + r"\p{L}" * 100_000 + "]"),
    ("regex", "[^" + r"\P{L}" * 10_000 + "]"),
    ("regex", "[" + "ab" * 500_000 + "]"),
    ("grammar", 'root ::= "' + "a" * 1_000_000 + '"'),
    ("grammar", "root ::= [" + "ab" * 500_000 + "]"),
    ("grammar", 'root ::= "a"\n' + "\n".join(f'r{i} ::= "x" (r{i} | "b")*' for i in range(50_000))),
    ("json_schema", {"$defs": {f"d{i}": {} for i in range(200_000)}}),
    # escapes without hexadecimal digits, whatever int() says, and halves of surrogate pairs
    ("regex", r"\u{41"),
    ("regex", r"[\u{-5}-a]"),
    ("regex", r"\u{4_1}"),
    ("regex", r"\x 1"),
    ("regex", r"\ud83d\u0041"),
    ("grammar", r'root ::= "\x+1"'),
    # what json.dumps() would follow until the stack overflows
    ("json_schema", nested(20_000)),
    ("structural_tag", nested(20_000)),
    # what is no URI
    ("json_schema", {"$ref": "http://[/"}),
    ("json_schema", {"$id": "http://x/y", "items": {"$id": "//[", "type": "string"}}),
]
CHAIN = {f"d{i}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(400)}


def doubled(last: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A schema that requires another one 2 ** 40 times."""
    links = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, "d40": last}, **more}


ALLOWED: list[tuple[str, Any]] = [
    ("json_schema", {"$ref": "#/$defs/d0", "$defs": {**CHAIN, "d400": {"type": "null"}}}),
    ("json_schema", {"enum": [f"option {i} of many" for i in range(3000)]}),
    ("json_schema", {"enum": list(range(3000))}),
    ("json_schema", {"type": "array", "items": {"type": "integer"}, "minItems": 1000, "maxItems": 5000}),
    ("json_schema", {"type": "string", "maxLength": 10_000}),
    ("regex", "[a-z0-9]{1,500}"),
    ("regex", ".{0,100}"),
    ("regex", ".{0,2000}"),  # counted in blocks
    ("regex", "[ -~]{0,1000}"),
    ("grammar", "root ::= [^a]{0,500}"),
    ("regex", r"[\w.-]{1,64}@[\w-]{1,63}(\.[\w-]{1,63}){1,3}"),
    ("grammar", 'root ::= "abc"{30000}'),
    ("grammar", "root ::= a0\n" + "\n".join(f'a{i} ::= "x" a{i + 1}' for i in range(5000)) + '\na5000 ::= "x"'),
    *(("grammar", grammar) for grammar in llama_grammars.TEXTS),
    # read in several ways, but not in very many
    ("grammar", 'root ::= e\ne ::= e "+" e | e "-" e | e "*" e | e "/" e | "(" e ")" | [0-9]+'),
    ("grammar", 'root ::= e\ne ::= e op e | [0-9] | "(" e ")"\nop ::= "+" | "-"'),
    ("grammar", 'root ::= "a" root "a" | "b" root "b" | "a" | "b" | ""'),
    ("grammar", 'root ::= if\nif ::= "if " e " then " if (" else " if)? | "x"\ne ::= [a-z] | e " and " e | "(" e ")"'),
    ("grammar", 'root ::= item | item "," root\nitem ::= digit item | digit\ndigit ::= [0-9] | "[" root "]"'),
    ("grammar", 'root ::= " "{0,2000} ("[" root? "]")'),
    ("grammar", "root ::= [^a]{2000}"),
    ("grammar", 'root ::= "[" x{0,300} root? "]"\nx ::= "b" | [^a] "c"'),
    ("grammar", 'root ::= ""{9999} x\nx ::= "a" x? | ("b" | "[" x "]"){0,500}'),
    ("json_schema", {"allOf": [{"contains": {"const": i}} for i in range(5)]}),
    ("regex", r"\p{Lu}\p{Ll}{1,3}"),
    ("json_schema", doubled({"type": "object", "properties": {"a": True}, "required": ["a"]})),
    ("json_schema", doubled({"prefixItems": [True, {"type": "null"}], "items": {"type": "string"}})),
    ("json_schema", doubled({"contains": {"const": 1}, "minContains": 2}, unevaluatedItems=False)),
    ("json_schema", doubled({"patternProperties": {"a": True}}, unevaluatedProperties=False)),
]


@pytest.mark.parametrize(("kind", "value"), REFUSED, ids=range(len(REFUSED)))
def test_what_explodes_is_refused(kind: str, value: Any) -> None:
    started = time.process_time()
    with pytest.raises(WispError) as caught:
        rules_of(Format(kind, value))
    assert caught.value.code in ("unsupported_parameter", "invalid_value")
    assert time.process_time() - started < 10  # without limits: hours


def test_alternatives_that_require_a_property_each_are_compared_without_their_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each pair is compared; a look at each field of both would take the cube of their number."""
    looked = 0
    field = Schemas.field

    def counted(self: Schemas, objects: ObjectSet, name: str) -> Ref:
        nonlocal looked
        looked += 1
        return field(self, objects, name)

    monkeypatch.setattr(Schemas, "field", counted)
    rules_of(Format("json_schema", {"oneOf": [{"required": [f"p{i}"]} for i in range(40)]}))
    assert looked < 10_000


def test_each_kind_of_property_is_counted_for_each_state_of_an_object() -> None:
    count = 1100
    rules_of(Format("json_schema", {"type": "object", "required": [f"p{i}" for i in range(count)]}))
    assert left() < MAX_EFFORT - count * count // 4


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "x-notes": [{"a": 1}] * 60_000},
        {"type": "integer", "$defs": {f"d{i}": True for i in range(110_000)}},
        {"enum": list(range(110_000))},
    ],
    ids=["notes", "definitions", "values"],
)
def test_a_schema_of_very_many_values_is_refused_at_once(schema: Any) -> None:
    """Also where it has them in keywords that say nothing: to compare and check them takes time."""
    started = time.process_time()
    with pytest.raises(WispError, match="more than 100000 values") as caught:
        rules_of(Format("json_schema", schema, param="schema"))
    assert (caught.value.param, caught.value.code) == ("schema", "unsupported_parameter")
    assert time.process_time() - started < 0.2


def test_the_values_of_all_schemas_of_a_request_are_counted() -> None:
    part = {"type": "json_schema", "json_schema": {"type": "integer", "x-notes": [1] * 20_000}}
    for times, fits in ((1, True), (4, True), (30, False)):
        form = Format("structural_tag", {"type": "sequence", "elements": [part] * times})
        if fits:
            rules_of(form)
        else:
            with pytest.raises(WispError, match="values"):
                rules_of(form)


def test_blanks_of_a_grammar_take_no_memory() -> None:
    text = "#x\n" * 300_000 + 'root ::= "a"'
    tracemalloc.start()
    try:
        rules_of(Format("grammar", text))
        assert tracemalloc.get_traced_memory()[1] < 4 * len(text)
    finally:
        tracemalloc.stop()


def test_a_class_with_many_ranges_that_repeats_takes_no_memory() -> None:
    """Each of its states would have all ranges, before the first of them is counted."""
    letters = "".join(chr(0x400 + 3 * i) for i in range(3000))
    tracemalloc.start()
    try:
        rules_of(Format("grammar", f"root ::= [^{letters}]{{1,500}}"))
        assert tracemalloc.get_traced_memory()[1] < 60e6
    finally:
        tracemalloc.stop()


def test_a_subschema_is_read_once_however_many_references_it_has() -> None:
    large = {"properties": {f"p{i}": True for i in range(300)}}
    rules_of(Format("json_schema", {"$defs": {"a": large}, "prefixItems": [{"not": {"$ref": "#/$defs/a"}}] * 3}))
    before = left()
    rules_of(Format("json_schema", {"$defs": {"a": large}, "prefixItems": [{"not": {"$ref": "#/$defs/a"}}] * 4}))
    assert before - left() < 3 * len(large["properties"])


def tags_of(grammars: list[str]) -> Format:
    """A structural tag with a choice of grammars."""
    return Format("structural_tag", {"type": "or", "elements": [{"type": "grammar", "grammar": g} for g in grammars]})


def test_the_attempts_of_many_grammars_at_an_automaton_share_a_limit() -> None:
    explodes = 'root ::= [ab]* "a" [ab]{15} "%s"'  # more states than an attempt has steps
    started = time.process_time()
    with pytest.raises(WispError, match="shorten its repetitions"):
        rules_of(tags_of([explodes % i for i in range(500)]))
    assert time.process_time() - started < 10  # if each counted alone: minutes
    written = rules_of(tags_of([explodes % 1] * 500))
    assert written == rules_of(tags_of([explodes % 1]))  # one text is written once


SLOW = [  # the mask engine takes seconds to compile these, or for a mask
    'root ::= "[" x{1,300} root? "]"\nx ::= "b" | y\ny ::= "c"? [^a]',
    r"root ::= ([ -~]{2,9}){1,300}",
    "root ::= .{2,9} root?",
    'root ::= (([a-zA-Z ]*)+ ("é"{2,9}){1,300}){0,100}',
    'root ::= x x?\nx ::= (([^a]+ [^x-z]{2})* ([à-ÿ]{16} "é"? "a"{1,300}){2})',
    "root ::= x x?\nx ::= ([a-m]{2} | [A-Z]{50} | [^\\n]{2})? x?",
    "root ::= (([ -~]{2,9} .{2,9}){2} ([a-z]{1,300} | . | [a-zA-Z ]{16})?)*",
    r'root ::= ((([a-zA-Z ]{1,40} [A-Z]{2,9} [^"\\]{50})? ([a-z] [a-m] [à-ÿ]?))+)?',
    r'root ::= ("é" .{3,} [^"\\]{50})?',
]


@pytest.mark.parametrize("text", SLOW)
def test_what_may_be_slow_is_tried(text: str) -> None:
    assert rules_of(Format("grammar", text)).unsure


USUAL: list[tuple[str, Any]] = [
    ("json_object", None),
    ("json_schema", {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
    ("json_schema", {"type": "string", "maxLength": 10_000}),
    ("regex", r"[a-z0-9]{1,500}"),
    ("regex", r"\d{4}-\d{2}-\d{2}"),
    ("grammar", next(iter(llama_grammars.TEXTS))),
    ("grammar", 'root ::= ("yes" | "no") ("," [^!]{1,100})?'),
]


@pytest.mark.parametrize(("kind", "value"), USUAL, ids=range(len(USUAL)))
def test_what_is_usual_is_not(kind: str, value: Any) -> None:
    assert not rules_of(Format(kind, value)).unsure


@pytest.mark.parametrize(("kind", "value"), ALLOWED, ids=range(len(ALLOWED)))
def test_what_is_large_is_allowed(kind: str, value: Any) -> None:
    assert rules_of(Format(kind, value)).startswith("root ::=")


AMBIGUOUS = {
    '(((("a"*)*)*)*)*': 1,
    '("a"? ' + '"a"? ' * 30 + ') (x | y)\nx ::= "b"\ny ::= "b" z\nz ::= ""': 34,
    '[a-z]* ([a-y]* | "b"+)?': 1,
}


@pytest.mark.parametrize(("text", "rules"), AMBIGUOUS.items())
def test_a_grammar_without_recursion_is_read_in_one_way(text: str, rules: int) -> None:
    """Each state of an automaton has a rule, and each text leads through one chain of them."""
    assert len(rules_of(Format("grammar", f"root ::= {text}")).split("\n")) <= rules + 1


def test_the_cost_of_repetitions_within_each_other_multiplies() -> None:
    one, two, three = (cost(f"root ::= {text}") for text in ('"a"{100}', '("a"{100}){100}', '(("a"{100}){100}){100}'))
    assert 5 < one < 20
    assert 90 * one < two < 110 * one
    assert three > 90 * two
    assert cost('root ::= "\\"(" [\\](] "a" x{3}') < 20  # brackets in texts and classes do not count


def test_the_steps_of_an_automaton_are_counted_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'root ::= (x{2,5} "ab"? | [a-z]{3,} y*){4} ("c" | x+)? x{0}\nx ::= "d" y | y{0,2}\ny ::= [^a]{7}'
    rules, root = gbnf._Reader(text).read("root"), gbnf_parts.Name("root")
    monkeypatch.setattr(automaton.Nfa, "determinize", lambda *_: None)
    begin()
    before = left()
    gbnf_parts.automaton(rules, root)
    spent = before - left()
    assert spent == 4 + gbnf_parts._steps(rules, root, before)  # 4: the first state and the last
    assert spent > 1000
    made: list[int] = []
    monkeypatch.setattr(automaton.Nfa, "add_state", lambda nfa: made.append(0))
    with pytest.raises(TooComplex):
        gbnf_parts.automaton(rules, gbnf_parts.Repeat(root, 0, 100_000, ""))
    assert len(made) == 2
    assert left() < 0  # as if the steps had been spent
    begin()


def test_words_that_no_automaton_holds_are_refused_at_once() -> None:
    begin()
    with pytest.raises(TooComplex):
        automaton.of_words("x" * 90_000 + end for end in "abc")
    assert left() == MAX_EFFORT


def test_what_is_repeated_no_times_is_not_followed() -> None:
    doubling = "".join(f"a{n} ::= a{n + 1} a{n + 1}\n" for n in range(60))
    rules = gbnf._Reader(f'root ::= a0{{0}} "y"\n{doubling}a60 ::= "x"').read("root")
    assert gbnf_parts._steps(rules, gbnf_parts.Name("root"), 1000) < 20


@pytest.mark.parametrize("bound", ["5e-324", "1.7976931348623157e308", "1e-300", "-" + "9" * 300])
def test_bounds_of_many_digits_take_steps_in_proportion(bound: str) -> None:
    """Those of all floats can be enforced: each digit is a few states, not a branch with all digits before it."""
    begin()
    numbers.at_least(Decimal(bound), False)
    assert MAX_EFFORT - left() < 200 * 330


def test_numbers_of_an_enum_are_those_of_the_bounds() -> None:
    for text in ("0", "1", "-1", "10", "1.5", "-0.25", "100.001", "1E3", "1E-3", "12345678901234567890"):
        value = Decimal(text)
        old = automaton.intersection(numbers.at_least(value, False), numbers.at_most(value, False))
        new = numbers.among([value])
        assert automaton.difference(old, new).is_empty(), text
        assert automaton.difference(new, old).is_empty(), text
    several = numbers.among([Decimal(n) for n in ("5", "5.25", "5.2501", "5.0001", "-0")])
    for text in ("5", "5.0", "5.250", "5.25010", "5.00010", "0", "-0.00"):
        assert several.accepts(text), text
    for text in ("5.0002", "05", "5.", "-5", "5.252"):
        assert not several.accepts(text), text
