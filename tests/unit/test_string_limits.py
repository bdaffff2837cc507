"""Long limits of strings: app/answers/string_limits.js beside the exact grammar, in XGrammar itself."""

import json
import subprocess
from typing import Any

import pytest

from app.answers.calls.model_syntaxes import HARMONY, HERMES, LLAMA, MUSE
from app.answers.calls.syntax import CallSyntax
from app.answers.dialect import Dialect
from app.answers.grammar import rules_of
from app.answers.message_dialects import Harmony, Muse
from app.answers.recognition import SYNTAXES
from app.answers.thinking import TAGS
from app.constrain.cost import MAX_COST, cost
from app.constrain.ebnf import GrammarText
from app.openai.formats import Format
from app.openai.tools import Tool, Tools
from py_engine.errors import WispError
from py_engine.text.chat_template import ChatTemplate
from tests.support.grammar_matcher import MODULE
from tools.npm import node
from tools.paths import ROOT

WALKS = 40
LONG, SHORT = {"type": "string", "maxLength": 20}, {"type": "string", "maxLength": 5}
SCHEMAS: dict[str, dict[str, Any]] = {
    "limit": {"type": "string", "maxLength": 17},
    "limits": {"type": "string", "minLength": 3, "maxLength": 40},
    "list": {"type": "array", "items": LONG, "minItems": 3},
    "object": {
        "type": "object",
        "properties": {"a": LONG, "b": {"type": "string"}, "c": SHORT, "d": {"enum": ["xx", "hello"]}},
        "required": ["a", "b", "c", "d"],
        "additionalProperties": False,
    },
    "names": {"type": "object", "additionalProperties": LONG, "minProperties": 2},
}


def grammar(schema: dict[str, Any]) -> GrammarText:
    """The grammar of a schema."""
    return rules_of(Format("json_schema", schema))


def of_chat(
    syntax: CallSyntax, *tools: dict[str, Any], form: Format | None = None, thinks: bool = False
) -> GrammarText:
    """The grammar of a chat's answer; if it begins with a thought, it may call tools, else it must."""
    known = tuple(Tool(f"tool_{i}", schema, {}) for i, schema in enumerate(tools))
    kind = {HARMONY.name: Harmony, MUSE.name: Muse}.get(syntax.name, Dialect)
    dialect = kind(
        syntax, TAGS[0] if thinks else None, Tools(known, not thinks, True, known), ChatTemplate("tools"), True
    )
    rules = dialect.rules(form)
    assert rules is not None
    return rules(TAGS[0][0] if thinks else "")


def compared(texts: list[GrammarText], walks: int = WALKS) -> list[dict[str, Any]]:
    """What tests/support/string_limits.mjs finds of grammars."""
    jobs = [{"looser": str(text), "exact": text.exact, "walks": walks} for text in texts]
    limits = str(ROOT / "app" / "answers" / "string_limits.js")
    found: list[dict[str, Any]] = ran("string_limits.mjs", {"module": str(MODULE), "limits": limits, "jobs": jobs})
    return found


def ran(script: str, request: dict[str, Any]) -> Any:
    """What a script of tests/support answers."""
    command = [node(), str(ROOT / "tests" / "support" / script)]
    given = json.dumps(request)
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_narrowed_masks_are_those_of_the_exact_grammar() -> None:
    """But for tokens that are never used. Texts run into their limits, with tokens that cut characters and escapes."""
    for name, found in zip(SCHEMAS, compared([grammar(schema) for schema in SCHEMAS.values()]), strict=True):
        assert not found["free"], name
        assert found["differ"] == [], name
        assert found["masks"] > 100, name
        assert found["narrowed"] > 10, name
        assert found["ended"] > WALKS // 2, name


@pytest.mark.slow
def test_calls_of_tools_count_limits_in_every_dialect() -> None:
    syntaxes = [syntax for _, syntax in SYNTAXES if syntax is not None]
    texts = [of_chat(syntax, SCHEMAS["object"], SCHEMAS["names"]) for syntax in syntaxes]
    for syntax, found in zip(syntaxes, compared(texts, 9), strict=True):
        assert found["differ"] == [], syntax.name
        assert found["narrowed"] > 10, syntax.name


def test_free_text_has_tokens_of_any_length() -> None:
    (found,) = compared([of_chat(HERMES, SCHEMAS["object"], thinks=True)])
    assert found["differ"] == []
    assert found["free"] == found["masks"]


def test_forms_of_chats_count_limits_but_not_where_a_text_may_be_a_call() -> None:
    form = Format("json_schema", SCHEMAS["object"])
    assert of_chat(HERMES, form=form).exact
    assert of_chat(HERMES, form=form, thinks=True).exact
    assert not of_chat(LLAMA, SCHEMAS["object"], form=form).exact


# A text may begin two values: what the limits leave of one says nothing of the other.
AMBIGUOUS: dict[str, dict[str, Any]] = {
    "pattern": {"anyOf": [{"type": "string", "maxLength": 18}, {"type": "string", "pattern": "^(x|abab){9,12}$"}]},
    "constant": {"anyOf": [LONG, {"const": "this constant is far longer than twenty"}]},
    "objects": {
        "anyOf": [
            {"type": "object", "properties": {"a": text, "k": {"const": k}}, "required": ["a", "k"]}
            for text, k in ((LONG, "foo"), ({"type": "string"}, "bar"))
        ]
    },
    "contains": {"type": "array", "items": {"type": "string"}, "contains": LONG},
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_limits_of_ambiguous_values_are_in_the_grammar(name: str) -> None:
    assert not grammar(AMBIGUOUS[name]).exact


@pytest.mark.parametrize("limit", [1, 16])
def test_short_limits_are_in_the_grammar(limit: int) -> None:
    assert not grammar({"type": "string", "maxLength": limit}).exact


def test_the_looser_grammar_has_no_rules_of_the_exact_one() -> None:
    text = grammar({"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 500}})
    assert "up_to" in text.exact
    assert "up_to" not in text
    assert len(text) < len(text.exact) / 4
    other = grammar({"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 600}})
    assert other == text
    assert other.exact != text.exact


def test_the_exact_grammar_may_cost_more_since_it_is_compiled_for_bytes() -> None:
    """A schema with many limits: each adds rules."""
    limits = {
        f"limit_{high}": {"type": "string", "minLength": high % 15, "maxLength": high} for high in range(20, 300, 7)
    }
    names = {"minLength": 1}  # all other names are told apart
    form = grammar({"type": "object", "properties": limits, "propertyNames": names})
    assert cost(form) < MAX_COST < cost(form.exact)
    with pytest.raises(WispError, match="too complex"):
        grammar({"type": "array", "prefixItems": [{"type": "string", "maxLength": 60_000 - i} for i in range(2)]})


def test_a_stop_token_that_has_a_text_ends_an_answer() -> None:
    """So do those that end calls, whose texts the grammar may contain."""
    form = grammar(SCHEMAS["limit"])
    files = {"module": str(MODULE), "grammar": str(ROOT / "app" / "answers" / "grammar.js")}
    assert ran("stop_token.mjs", {**files, "looser": str(form), "exact": form.exact}) == [False, True, True]


@pytest.mark.parametrize("limit", [20, None])
def test_forced_texts_are_known_once_their_tokens_are(limit: int | None) -> None:
    """Also where an exact grammar advances past them beside the looser one. Long texts are not cached."""
    name = {"type": "string"} | ({"maxLength": limit} if limit else {})
    kinds = [{"const": "kind"}, {"const": "kind"}, {"const": "k" * 300}]
    properties = {"name": name} | {f"kind{i}": kind for i, kind in enumerate(kinds)}
    required, closed = [*properties], {"additionalProperties": False}
    form = grammar({"type": "object", "properties": properties, "required": required} | closed)
    assert bool(form.exact) == bool(limit)
    files = {"module": str(MODULE), "grammar": str(ROOT / "app" / "answers" / "grammar.js")}
    found = ran("forced_tokens.mjs", {**files, "looser": str(form), "exact": form.exact})
    assert {text for text, *_ in found} == {"ind", 'kind"', 'ind2"', "k" * 300 + '"', 'name"'}
    assert all(fits for *_, fits in found)
    assert [known for text, known, *_ in found if text == 'kind"'] == [False, True]
    assert [text for text, _, after, _ in found if not after] == ["k" * 300 + '"']
