"""Grammar rules for JSON schemas, regular expressions and GBNF. What is wrong or unsupported is a 400 with `param`."""

import json
from typing import Any

from app.constrain import gbnf, regex
from app.constrain.automaton import TooComplex
from app.constrain.document import InvalidSchema, UnsupportedKeyword
from app.constrain.ebnf import Grammar
from app.constrain.json_grammar import JsonGrammar
from app.constrain.schema import Schemas
from app.constrain.strings import automaton_rule
from py_engine.errors import WispError


def schema_rule(grammar: Grammar, schema: Any, param: str, *, strict: bool = False, ordered: bool = False) -> str:
    """The values that a JSON schema allows. `ordered`: properties come in the schema's order."""
    check_unicode(schema, param)
    try:
        schemas = Schemas(schema, strict)
        if not schemas.inhabited(schemas.root):
            raise WispError("The JSON schema allows no value at all.", "invalid_value", param=param)
        return JsonGrammar(grammar, schemas, ordered, ordered or strict).rule(schemas.root)
    except InvalidSchema as error:
        where = ".".join((param, *error.path))
        what = f"{error.keyword}: {error.why}" if error.path else error.why
        raise WispError(f"This is not a JSON schema. {what}.", "invalid_value", param=where) from None
    except UnsupportedKeyword as error:
        raise WispError(
            f"The JSON schema's keyword {error.keyword!r} cannot be held exactly: {error.why}.",
            "unsupported_parameter",
            param=".".join((param, *error.path)),
        ) from None
    except RecursionError:
        raise WispError("The JSON schema is nested too deeply.", "invalid_value", param=param) from None


def regex_rule(grammar: Grammar, pattern: str, param: str) -> str:
    """The texts that a regular expression describes as a whole."""
    try:
        dfa = regex.fullmatch(pattern)
    except regex.BadPattern as error:
        raise WispError(f"The regular expression is wrong: {error}.", "invalid_value", param=param) from None
    except regex.Unsupported as error:
        raise WispError(
            f"The regular expression has {error}, which is not supported.", "unsupported_parameter", param=param
        ) from None
    except TooComplex:
        raise WispError("The regular expression is too complex.", "unsupported_parameter", param=param) from None
    if dfa.is_empty():
        raise WispError("The regular expression matches nothing.", "invalid_value", param=param)
    return automaton_rule(grammar, dfa, False)


def check_unicode(value: Any, param: str) -> None:
    """Refuses halves of surrogate pairs, which no text has."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise WispError("There is half a surrogate pair in it.", "invalid_value", param=param) from None


def grammar_rule(grammar: Grammar, text: str, param: str) -> str:
    """A grammar in GBNF."""
    try:
        return gbnf.add(grammar, text)
    except gbnf.BadGrammar as error:
        raise WispError(f"The grammar is wrong: {error}.", "invalid_value", param=param) from None
