"""How hard a model is to think: a request's effort, as a level that the model's template has."""

import re
from functools import lru_cache
from typing import Any

from app.openai.requests import EFFORTS

_PRINTED = frozenset(["low", "medium", "high"])  # gpt-oss and Muse Glimmer print any text; they were trained with these
_WITHOUT = {"no_think": "none"}  # Hunyuan 3's name -> ours
_QUOTED = re.compile(r"""["'](\w+)["']""")
_MENTIONS = re.compile(r"(?<![a-zA-Z])(effort|strength)s?\b")  # thinking_effort, too


@lru_cache(maxsize=16)
def levels(source: str) -> dict[str, str]:
    """A template's levels: a request's effort -> the level's name.

    They are the texts in the template's statements about the effort. Some templates reject all others: an error is
    raised in a statement about the effort, or after a check that the effort is not in a list. Others print any text, so
    they have usual levels besides.
    """
    found: dict[str, str] = {}
    rejects = is_check = False
    for statement in _statements(source):
        if _MENTIONS.search(statement):
            names = {_WITHOUT.get(name, name): name for name in _QUOTED.findall(statement)}
            found |= {ours: name for ours, name in names.items() if ours in EFFORTS}
            rejects = rejects or "raise_exception" in statement
        rejects = rejects or (is_check and "raise_exception" in statement)
        is_check = bool(_MENTIONS.search(statement)) and "not in" in statement
    return found if rejects and found else {level: level for level in _PRINTED} | found


def level_of(source: str, effort: str) -> str:
    """The template's level for an effort, else the next higher one that it has, else its highest.

    An effort that is not one of OpenAI's stays: a client that knows the template may use its names.
    """
    if effort not in EFFORTS:
        return effort
    known = levels(source)
    higher = [level for level in EFFORTS[EFFORTS.index(effort) :] if level in known]
    return known[higher[0] if higher else max(known, key=EFFORTS.index)]


def with_effort(source: str, variables: dict[str, Any]) -> dict[str, Any]:
    """The variables with the effort's level, under each name that templates have for it.

    Where a template has a level for no thoughts, that level is its only switch of thoughts (Hunyuan 3,
    Mistral Small 4).
    """
    effort, thinks, out = variables.get("reasoning_effort"), variables.get("enable_thinking"), dict(variables)
    if isinstance(thinks, bool) and "enable_thinking" not in source and "none" in levels(source):
        effort = (effort or "high") if thinks else "none"
    if isinstance(effort, str):
        level = level_of(source, effort)
        out = {"reasoning_strength": level, "thinking_effort": level, **out, "reasoning_effort": level}
    return out


def _statements(source: str) -> list[str]:
    """The code between a template's braces."""
    return [re.split(r"[%}]\}", begun, maxsplit=1)[0] for begun in re.split(r"\{[{%]", source)[1:]]
