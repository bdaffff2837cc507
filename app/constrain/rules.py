"""Grammar rules for the forms that a request may name: the entry point of this package.

Most requests have no constraint: the modules that make rules are imported for the first one that has.
"""

from typing import Any

from app.constrain.ebnf import Grammar
from app.constrain.effort import TooComplex
from app.openai.fields import unsupported
from app.openai.formats import Format


def form_rule(grammar: Grammar, form: Format) -> str:
    """Add the rule for the form that a request names."""
    from app.constrain.sources import check_json

    check_json(form.value, form.param)
    try:
        return _rule(grammar, form)
    except TooComplex:
        raise unsupported("The form of the answer is too complex; make it smaller.", form.param) from None


def schema_rule(grammar: Grammar, schema: Any, param: str, *, strict: bool = False, ordered: bool = False) -> str:
    """Add the rule for the JSON values that a schema allows. `ordered`: properties come in the schema's order."""
    from app.constrain import sources

    return sources.schema_rule(grammar, schema, param, strict=strict, ordered=ordered)


def _rule(grammar: Grammar, form: Format) -> str:
    from app.constrain import sources, structural

    if form.kind == "json_object":
        return sources.schema_rule(grammar, {"type": "object"}, form.param)
    if form.kind == "json_schema":
        return sources.schema_rule(grammar, form.value, form.param, strict=form.strict)
    if form.kind == "regex":
        return sources.regex_rule(grammar, form.value, form.param)
    if form.kind == "grammar":
        return sources.grammar_rule(grammar, form.value, form.param)
    return structural.structural_rule(grammar, form.value, form.param)
