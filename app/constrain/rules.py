"""Grammar rules for the forms that a request may name: the entry point of this package."""

from app.constrain.ebnf import Grammar
from app.constrain.effort import TooComplex
from app.constrain.sources import check_json, grammar_rule, regex_rule, schema_rule
from app.constrain.structural import structural_rule
from app.openai.fields import unsupported
from app.openai.formats import Format

__all__ = ["form_rule", "schema_rule"]


def form_rule(grammar: Grammar, form: Format) -> str:
    """Add the rule for the form that a request names."""
    check_json(form.value, form.param)
    try:
        return _rule(grammar, form)
    except TooComplex:
        raise unsupported("The form of the answer is too complex; make it smaller.", form.param) from None


def _rule(grammar: Grammar, form: Format) -> str:
    if form.kind == "json_object":
        return schema_rule(grammar, {"type": "object"}, form.param)
    if form.kind == "json_schema":
        return schema_rule(grammar, form.value, form.param, strict=form.strict)
    if form.kind == "regex":
        return regex_rule(grammar, form.value, form.param)
    if form.kind == "grammar":
        return grammar_rule(grammar, form.value, form.param)
    return structural_rule(grammar, form.value, form.param)
