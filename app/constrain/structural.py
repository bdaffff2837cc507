"""Grammar rules for structural tags: XGrammar's {type, ...} trees for answers with free and constrained parts."""

from app.constrain.ebnf import ANY, Grammar, either, literal, text_until
from app.constrain.effort import spend
from app.constrain.sources import grammar_rule, regex_rule, schema_rule
from app.openai.fields import Json, unsupported, wrong_type, wrong_value


def structural_rule(grammar: Grammar, tag: Json, param: str) -> str:
    """Add the rule for a structural tag. `any_text` extends to the end of the answer, or of the enclosing tag."""
    return _Writer(grammar).rule(tag, param, None)


MEMBERS: dict[str, tuple[str, ...]] = {  # of each type of node
    "any_text": (),
    "triggered_tags": ("triggers", "tags", "at_least_one", "stop_after_first"),
    "const_string": ("value",),
    "json_schema": ("json_schema",),
    "regex": ("pattern",),
    "grammar": ("grammar",),
    "sequence": ("elements",),
    "or": ("elements",),
    "tag": ("begin", "content", "end"),
    "tags_with_separator": ("tags", "separator", "at_least_one", "stop_after_first"),
}
_NEUTRAL: dict[str, tuple[Json, ...]] = {"excludes": ([],), "style": ("json",)}  # values that change nothing


class _Writer:
    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar

    def rule(self, tag: Json, param: str, until: str | None) -> str:
        """Add the rule of one node. `until`: the text that ends any_text; the rule includes it."""
        return self._grammar.add("tag", self._body(tag, param, until))

    def _body(self, tag: Json, param: str, until: str | None) -> str:
        spend(100)
        if not isinstance(tag, dict):
            raise wrong_type(param, "an object", tag)
        kind = tag.get("type")
        _check_members(tag, kind, param)
        if kind == "any_text":
            if until is None:
                return f"({ANY})*"
            return text_until(until)
        if kind == "triggered_tags":
            return self._triggered(tag, param, until)
        end = f" {literal(until)}" if until else ""
        if kind == "const_string":
            return f"{literal(_text(tag, 'value', param))}{end}"
        if kind == "json_schema":
            return schema_rule(self._grammar, tag.get("json_schema"), f"{param}.json_schema") + end
        if kind == "regex":
            return regex_rule(self._grammar, _text(tag, "pattern", param), f"{param}.pattern") + end
        if kind == "grammar":
            return grammar_rule(self._grammar, _text(tag, "grammar", param), f"{param}.grammar") + end
        if kind == "sequence":
            return self._sequence(tag, param, until)
        if kind == "or":
            parts = _list(tag, "elements", param)
            return either(self.rule(p, f"{param}.elements[{i}]", until) for i, p in enumerate(parts))
        if kind == "tag":
            return self._tag(tag, param) + end
        if kind == "tags_with_separator":
            return self._separated(tag, param) + end
        kinds = ", ".join(MEMBERS)
        raise wrong_value(
            f"{param}.type is {kind!r}, which is not a structural tag; it must be one of {kinds}.", f"{param}.type"
        )

    def _tag(self, tag: dict[str, Json], param: str) -> str:
        _check_members(tag, "tag", param)
        content = self.rule(tag.get("content"), f"{param}.content", _text(tag, "end", param) or None)
        return f"{literal(_text(tag, 'begin', param))} {content}"

    def _sequence(self, tag: dict[str, Json], param: str, until: str | None) -> str:
        parts = _list(tag, "elements", param)
        out = []
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            if not last and _open_ended(part):
                where = f"{param}.elements[{i}]"
                raise unsupported("A sequence may have free text only last; put it last, or inside a tag.", where)
            out.append(self.rule(part, f"{param}.elements[{i}]", until if last else None))
        return " ".join(out)

    def _separated(self, tag: dict[str, Json], param: str) -> str:
        tags = _list(tag, "tags", param)
        one = self._grammar.add("tags", either(self._tag(t, f"{param}.tags[{i}]") for i, t in enumerate(tags)))
        more = "" if tag.get("stop_after_first") else f" ({literal(_text(tag, 'separator', param))} {one})*"
        return f"{one}{more}" if tag.get("at_least_one") else f"({one}{more})?"

    def _triggered(self, tag: dict[str, Json], param: str, until: str | None) -> str:
        tags = _list(tag, "tags", param)
        triggers = [t for t in _list(tag, "triggers", param) if isinstance(t, str) and t]
        pairs: dict[str, list[str]] = {}
        whole = []
        for i, t in enumerate(tags):
            where = f"{param}.tags[{i}]"
            begin = _text(t, "begin", where)
            trigger = next((x for x in triggers if begin.startswith(x)), None)
            if trigger is None:
                raise wrong_value(f"{where}.begin must start with one of the triggers.", where)
            rest = self._tag({**t, "begin": begin[len(trigger) :]}, where)
            pairs.setdefault(trigger, []).append(rest)
            whole.append(self._tag(t, where))
        if tag.get("at_least_one") and tag.get("stop_after_first"):
            return either(whole) + (f" {literal(until)}" if until else "")
        dispatched = ", ".join(
            f"({literal(trigger)}, {self._grammar.add('tags', either(rests))})" for trigger, rests in pairs.items()
        )
        again = str(not tag.get("stop_after_first")).lower()
        how = f"stop_eos=false, stop_str=({literal(until)})" if until else "stop_eos=true"
        free = self._grammar.add("free", f"TagDispatch({dispatched}, {how}, loop_after_dispatch={again})")
        return f"{either(whole)} {free}" if tag.get("at_least_one") else free


def _check_members(tag: Json, kind: Json, param: str) -> None:
    """Raise WispError for a member that this engine does not implement, such as XGrammar's `excludes`."""
    if not isinstance(tag, dict) or not isinstance(kind, str) or kind not in MEMBERS:
        return  # another error says so
    for name, value in tag.items():
        if name == "type" or name in MEMBERS[kind] or value is None or value in _NEUTRAL.get(name, ()):
            continue
        raise unsupported(f"{param}.{name} is not supported by this engine; leave it out.", f"{param}.{name}")


def _open_ended(tag: Json) -> bool:
    return isinstance(tag, dict) and tag.get("type") in ("any_text", "triggered_tags")


def _text(tag: Json, name: str, param: str) -> str:
    value = tag.get(name) if isinstance(tag, dict) else None
    if not isinstance(value, str):
        raise wrong_type(f"{param}.{name}", "a string", value)
    return value


def _list(tag: dict[str, Json], name: str, param: str) -> list[Json]:
    value = tag.get(name)
    if not isinstance(value, list) or not value:
        raise wrong_type(f"{param}.{name}", "a non-empty list", value)
    return value
