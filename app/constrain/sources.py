"""Grammar rules for JSON schemas, regular expressions and GBNF. Invalid or unsupported input is a 400 with `param`."""

import json

from app.constrain import gbnf, regex
from app.constrain.ambiguity import TooManyWays
from app.constrain.document import InvalidSchema, UnsupportedKeyword
from app.constrain.ebnf import Grammar
from app.constrain.effort import TooComplex, spend
from app.constrain.grammar_cache import MAX_VALUES
from app.constrain.json_grammar import JsonGrammar
from app.constrain.schema import Schemas
from app.constrain.strings import automaton_rule
from app.openai.fields import Json, unsupported, wrong_value
from py_engine import json_input
from py_engine.errors import WispError


def schema_rule(grammar: Grammar, schema: Json, param: str, *, strict: bool = False, ordered: bool = False) -> str:
    """Add the rule for the JSON values that a schema allows. `ordered`: properties come in the schema's order."""
    check_json(schema, param)
    try:
        schemas = Schemas(schema, strict)
        if not schemas.inhabited(schemas.root):
            raise wrong_value("The JSON schema allows no value. Remove the contradiction in it.", param)
        return JsonGrammar(grammar, schemas, ordered, ordered or strict).rule(schemas.root)
    except InvalidSchema as error:
        what = f"{error.keyword}: {error.why}" if error.path else error.why
        raise wrong_value(f"The JSON schema is invalid: {what}.", ".".join((param, *error.path))) from None
    except UnsupportedKeyword as error:
        what = f"The JSON schema keyword {error.keyword!r} cannot be enforced: {error.why}."
        raise unsupported(what, ".".join((param, *error.path))) from None
    except TooComplex:
        raise unsupported("The JSON schema needs too many states; make it smaller.", param) from None
    except RecursionError:
        raise wrong_value("The JSON schema is nested too deeply; make it flatter.", param) from None


def regex_rule(grammar: Grammar, pattern: str, param: str) -> str:
    """Add the rule for the texts that a regular expression matches as a whole."""
    try:
        dfa = regex.fullmatch(pattern)
    except regex.BadPattern as error:
        raise wrong_value(f"The regular expression is invalid: it has {error}.", param) from None
    except regex.Unsupported as error:
        raise unsupported(f"The regular expression has {error}, which is not supported.", param) from None
    except TooComplex:
        raise _too_many_states(param) from None
    if dfa.is_empty():
        raise wrong_value("The regular expression matches no text.", param)
    try:
        return automaton_rule(grammar, dfa, False)
    except TooComplex:
        raise _too_many_states(param) from None


def _too_many_states(param: str) -> WispError:
    return unsupported("The regular expression needs too many states; shorten its repetitions.", param)


def grammar_rule(grammar: Grammar, text: str, param: str) -> str:
    """Add the rules of a grammar in GBNF; return its root."""
    try:
        return gbnf.add(grammar, text)
    except gbnf.BadGrammar as error:
        raise wrong_value(f"The grammar is invalid: {error}.", param) from None
    except TooManyWays as error:
        what = (
            f"The grammar's rule {error.rule} can read a text in too many ways. Write it so that each text fits in one "
            "way; avoid rules like a ::= a a, and repetitions of what may be empty."
        )
        raise unsupported(what, param) from None
    except TooComplex:
        raise unsupported("The grammar is too large; shorten its repetitions or character classes.", param) from None


def check_json(value: Json, param: str) -> None:
    """Reject what is too large or deep, unpaired surrogates, which no UTF-8 text has, and numbers that JSON lacks."""
    values = json_input.count(value, MAX_VALUES)
    if values > MAX_VALUES:
        raise unsupported(f"{param} has more than {MAX_VALUES} values; make it smaller.", param)
    try:
        spend(values)
    except TooComplex:
        raise unsupported("The JSON schemas of the request have too many values; make them smaller.", param) from None
    if json_input.is_deep(value):
        raise wrong_value(f"{param} is nested more than {json_input.MAX_DEPTH} levels deep; make it flatter.", param)
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise wrong_value(f"{param} contains an unpaired surrogate; send valid Unicode.", param) from None
    except ValueError:
        raise wrong_value(f"{param} contains NaN, or a number that is too large.", param) from None
