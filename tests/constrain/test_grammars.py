# ruff: noqa: E501, RUF001
"""Regular expressions, GBNF and structural tags as grammars, compared with the mask engine and Python's `re`."""

import random
import re
from typing import Any

import pytest

from app.constrain import gbnf_rules, regex
from app.constrain.automaton import complement
from app.constrain.ebnf import Grammar
from app.constrain.numbers import at_least, at_most, multiples
from app.constrain.rules import form_rule
from app.openai.formats import Format
from py_engine.errors import WispError
from tests.support import llama_grammars
from tests.support.grammar_matcher import run

PATTERNS = [
    "^a+$", "a", "^$", "^[a-c]{2,3}$", "(ab|c)*d", "^(foo|bar)?baz", "x{0}y", "^a{2,}b?$", "[^a-c]", r"^\d{3}-\w+$",
    "a|b$", "^(a|b)$|c", "(^a|b)c", "^(?:ab){1,3}$", r"\.", "a*?b", "^.{1,3}$", "(a$|b)", r"^[\s\S]*$", "(a*)*",
    "(a|b)*abb", "a{0,2}c$", "^(a|ab)(c|bcd)(d*)$", r"[\]-]", "(?<n>a)b", "^-?(0|[1-9][0-9]*)$",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_automata_agree_with_re(pattern: str) -> None:
    rng = random.Random(pattern)
    dfa = regex.search(pattern)
    opposite = complement(dfa)
    python = pattern.replace("(?<n>", "(?P<n>")
    for _ in range(400):
        text = "".join(rng.choice("aabbcd1-f.xyz]0 ") for _ in range(rng.randint(0, 7)))
        assert dfa.accepts(text) == bool(re.search(python, text, re.ASCII)), text
        assert opposite.accepts(text) != dfa.accepts(text)


@pytest.mark.parametrize("pattern", ["(", "a)", "[", "a{2", "*", "\\", "[b-a]", r"\q", r"\xz1", "a{3,2}", "^*"])
def test_wrong_patterns(pattern: str) -> None:
    with pytest.raises(regex.BadPattern):
        regex.search(pattern)


@pytest.mark.parametrize("pattern", ["(?=a)", "(?!a)b", r"(a)\1", r"\bfoo", r"\p{Script=Greek}", "a{9999}"])
def test_patterns_beyond_automata(pattern: str) -> None:
    with pytest.raises(regex.Unsupported):
        regex.search(pattern)


def test_sets_of_numbers_agree_with_decimals() -> None:
    from decimal import Decimal

    rng = random.Random(1)
    for bound in ("0", "1", "-1", "5", "10", "12.5", "-12.5", "0.01", "-0.01", "99", "100", "3.14159", "0.90", "190.9"):
        value = Decimal(bound)
        sets = [at_least(value, False), at_least(value, True), at_most(value, False), at_most(value, True)]
        step = multiples(abs(value)) if value and len(bound) < 5 else None
        for _ in range(200):
            text = rng.choice(["", "-"]) + str(rng.choice([0, 1, 9, rng.randint(0, 200), rng.randint(0, 99999)]))
            if rng.random() < 0.6:
                text += "." + "".join(rng.choice("0001259") for _ in range(rng.randint(1, 4)))
            x = Decimal(text)
            assert [s.accepts(text) for s in sets] == [x >= value, x > value, x <= value, x < value], (bound, text)
            assert step is None or step.accepts(text) == (x % value == 0), (bound, text)


@pytest.mark.parametrize("bound", [10**40 + 1, -(10**40) - 1, 12345 * 10**60 + 7])
def test_numbers_of_many_digits_are_not_rounded(bound: int) -> None:
    """Python's decimals round what is computed with them to 28 digits."""
    schemas: list[dict[str, Any]] = [
        {"minimum": bound}, {"maximum": bound}, {"exclusiveMinimum": bound}, {"const": bound}, {"enum": [bound]}
    ]  # fmt: skip
    numbers = [bound - 1, bound, bound + 1]
    accepted = [
        [False, True, True],
        [True, True, False],
        [False, False, True],
        [False, True, False],
        [False, True, False],
    ]
    jobs = [
        {"grammar": text_of(Format("json_schema", {"type": "integer"} | schema)), "texts": list(map(str, numbers))}
        for schema in schemas
    ]
    assert [result["texts"] for result in run(jobs)] == accepted


def text_of(form: Format) -> str:
    grammar = Grammar()
    return grammar.text(form_rule(grammar, form))


CHESS = """
# moves, as in llama.cpp's example of such a grammar
root   ::= "1. " move " " move "\\n" ([1-9] [0-9]? ". " move " " move "\\n")*
move   ::= (pawn | nonpawn |
            castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn   ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
"""
JSON = """
root   ::= value
value  ::= "null" | [0-9]+ | string | "[" (value ("," value)*)? "]" | "{" (pair ("," pair)*)? "}"
pair   ::= string ":" value
string ::= '"' [a-z]* '"'
"""
SUMS = """
root   ::= sum
sum    ::= sum [-+] factor | factor
factor ::= [0-9]+ | "(" sum ")"
"""
FORMS: list[tuple[Format, list[str], list[str]]] = [
    (Format("regex", r"[a-z]+@\d{2}"), ["ab@12"], ["ab@1", "@12", "ab@123"]),
    (Format("regex", r"(é|日本)+|[^a-z]{2}"), ["é日本", "ÄÖ", "12"], ["ab", "日", "Äa"]),
    (Format("regex", r"^(yes|no)$"), ["yes", "no"], ["yes!", "maybe"]),
    (Format("grammar", CHESS), ["1. e4 e5\n", "1. Nf3 O-O\n2. exd5 a8=Q+\n"], ["e4", "1. e9 e5\n"]),
    (Format("grammar", 'root ::= "\\u00e9" [а-я]{2,3} . other-rule\nother-rule ::= \'x\' | [^a-zé]'), ["éмир!x", "éми?é"[:-1] + "A"],
     ["eмир!x", "éм!x", "éмир!a", "éмир!é"]),
    (Format("grammar", 'root ::= "a" ("b" | "c")* ("d" # why\n) e?\ne ::= "e"{2}'), ["abcbd", "adee"], ["ade", "a"]),
    (Format("grammar", JSON), ['[1,{"a":[null]}]', "{}", '"ab"'], ["[1,]", '{"a"}', "[[1]", "nul"]),
    (Format("grammar", SUMS), ["1+(2-3)-45", "((7))", "8"], ["1+", "(1", "1)+2", "", "()"]),
    (Format("json_object"), ['{"a": [1, {"b": null}]}', "{}"], ["[]", "1", '{"a"}', '{a: 1}']),
    (Format("structural_tag", {"type": "sequence", "elements": [
        {"type": "const_string", "value": "Answer: "}, {"type": "json_schema", "json_schema": {"type": "integer"}}]}),
     ["Answer: 5"], ["5", "Answer: x"]),
    (Format("structural_tag", {"type": "triggered_tags", "triggers": ["<f="], "tags": [
        {"type": "tag", "begin": "<f=a>", "content": {"type": "json_schema", "json_schema": {"type": "null"}}, "end": "</f>"},
        {"type": "tag", "begin": "<f=b>", "content": {"type": "regex", "pattern": "[0-9]+"}, "end": "</f>"}]}),
     ["free text", "so <f=a>null</f> and <f=b>12</f>.", "<"], ["<f=c>", "<f=a>1</f>", "<f=b></f>"]),
    (Format("structural_tag", {"type": "tag", "begin": "<t>", "content": {"type": "any_text"}, "end": "</t>"}),
     ["<t>what < ever</t>", "<t></t>"], ["<t>", "what"]),
    (Format("structural_tag", {"type": "or", "elements": [{"type": "const_string", "value": "a"}, {
        "type": "tags_with_separator", "separator": ", ", "at_least_one": True, "tags": [
            {"type": "tag", "begin": "[", "content": {"type": "grammar", "grammar": 'root ::= "x"+'}, "end": "]"}]}]}),
     ["a", "[x]", "[xx], [x]"], ["[x],[x]", "", "b"]),
]  # fmt: skip


def check(forms: list[tuple[Format, list[str], list[str]]]) -> None:
    """The mask engine accepts what is good and nothing that is bad."""
    jobs = [{"grammar": text_of(form), "texts": good + bad} for form, good, bad in forms]
    for (form, good, bad), result in zip(forms, run(jobs), strict=True):
        assert "error" not in result, (form, result)
        assert result["texts"] == [True] * len(good) + [False] * len(bad), (form, good + bad)


def test_forms() -> None:
    check(FORMS)


def test_grammars_that_become_no_automaton_allow_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    grammars = [case for case in FORMS if case[0].kind == "grammar"]
    automata = [text_of(form) for form, *_ in grammars]
    monkeypatch.setattr(gbnf_rules, "attempt", lambda steps, make: None)
    written = [text_of(form) for form, *_ in grammars]
    assert sum(a != b for a, b in zip(automata, written, strict=True)) == 4  # all but one, which only recurses
    check(grammars)


@pytest.mark.parametrize("automata", [True, False])
def test_grammars_of_llama_cpp(automata: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not automata:
        monkeypatch.setattr(gbnf_rules, "attempt", lambda steps, make: None)
    check([(Format("grammar", grammar), *texts) for grammar, texts in llama_grammars.TEXTS.items()])


def test_what_does_not_recurse_in_a_grammar_is_an_automaton() -> None:
    """The mask engine took 0.2 s a token within the strings of this grammar."""
    written = text_of(Format("grammar", llama_grammars.JSON))
    assert "u_value ::=" in written
    assert not any(f"u_{name}" in written for name in ("string", "number", "ws"))


WRONG: list[tuple[str, Any, str]] = [
    ("grammar", "", "no rule root"),
    ("grammar", 'root ::= "a', "line 1"),
    ("grammar", 'root ::= "a"\nroot ::= "b"', "twice"),
    ("grammar", "root ::= x\n\nx ::= [b-a]", "line 3"),
    ("grammar", "root ::= missing", "missing"),
    ("grammar", 'root ::= ("a"', "expected )"),
    ("grammar", 'root = "a"', "::="),
    ("grammar", "root ::= []", "without characters"),
    ("grammar", 'root ::= "a"{5,2}', "repetition"),
    ("regex", "(", "unmatched ("),
    ("regex", "\ud800", "surrogate"),
    ("json_schema", {"const": "\udc00"}, "surrogate"),
    ("regex", "(?=a)b", "lookaround"),
    ("structural_tag", {"type": "xml"}, "not a structural tag"),
    ("structural_tag", {"type": "sequence", "elements": [{"type": "any_text"}, {"type": "any_text"}]}, "last"),
    ("structural_tag", {"type": "tag", "begin": "<a>", "end": "</a>"}, "must be an object"),
    ("structural_tag", {"type": "any_text", "excludes": ["</a>"]}, "here.excludes is not supported"),
    ("structural_tag", {"type": "triggered_tags", "triggers": ["<"], "tags": [
        {"begin": "<a>", "content": {"type": "any_text"}, "end": "</a>", "weight": 1}]}, "here.tags[0].weight is not"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "words"), WRONG, ids=str)
def test_wrong_forms_say_where(kind: str, value: Any, words: str) -> None:
    with pytest.raises(WispError) as error:
        text_of(Format(kind, value, param="here"))
    assert words in error.value.message
    assert (error.value.param or "").startswith("here")


COUNTED = [  # (form, the character that is repeated, before and after it, lengths that match)
    (Format("regex", "[ -~]{0,100}"), "a", "", "", range(101)),
    (Format("regex", "[ -~]{65}"), " ", "", "", [65]),
    (Format("regex", r"[^\n]{40,90}\n.?"), "é", "", "\n", range(40, 91)),
    (Format("regex", r"<[^\n>!]{0,70}(>|!)"), "x", "<", "!", range(71)),
    (Format("grammar", 'root ::= "[" [^\\n]{0,64} "]" root?'), "a", "[", "]", range(65)),
    (Format("regex", '"[^"\\n]{3,300}"'), "é", '"', '"', range(3, 301)),
    (Format("json_schema", {"type": "string", "pattern": "^[ -~é]{2,90}$"}), "é", '"', '"', range(2, 91)),
]


@pytest.mark.parametrize("at", range(len(COUNTED)))
def test_long_runs_of_characters_are_counted_in_blocks(at: int) -> None:
    """Each length near the ends of blocks and of the run is read as the form says."""
    form, char, before, after, lengths = COUNTED[at]
    tried = sorted(
        {n for end in (0, 16, 32, 48, 64, *lengths[:: len(lengths) - 1 or 1]) for n in range(end - 2, end + 3)}
    )
    tried = [n for n in tried if n >= 0]
    texts = [f"{before}{char * n}{after}" for n in tried]
    (found,) = run([{"grammar": text_of(form), "texts": texts, "samples": 0}])
    assert found["texts"] == [n in lengths for n in tried]
