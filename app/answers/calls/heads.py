"""Heads of tool calls: texts with placeholders, such as MiniCPM's %s"> after <function name=".

A parser searches for them as patterns, with any whitespace between symbols.
"""

import re

# In a head: the tool's name; the call's id, which the model chooses; and the call's number. Before an argument: its
# name, and the kind of its value.
NAME, ID, NUMBER, KIND = "%s", "%i", "%d", "%t"
_PATTERNS = {
    NAME: r"\s*+(?P<name>[^\"\s<>\[\]{}]+)\s*+",
    ID: r"\s*+(?P<id>\w+)\s*+",
    NUMBER: r"\s*+(?P<number>\d+)\s*+",
    KIND: r"\s*+(?P<kind>\w+)\s*+",
}


def pattern(text: str) -> str:
    """A pattern that matches the text with any whitespace."""
    parts = re.findall(r"\s+|\w+|[^\w\s]", text)
    return r"\s*+".join(re.escape(p) for p in parts if not p.isspace())


def head_pattern(head: str) -> str:
    """A pattern that matches a head with any name and id, as the groups "name", "id" and "number"."""
    return "".join(_PATTERNS.get(part) or pattern(part) for part in parts_of(head))


def begins_head(text: str, head: str) -> bool:
    """Whether the text is the beginning of a head, or all of it. The head has no NAME any more.

    Blanks are matched loosely, as in an answer.
    """
    for part in parts_of(head):
        for symbol in [part] if part in _PATTERNS else re.findall(r"\w+|[^\w\s]", part):
            text = text.lstrip()
            if not text:
                return True
            if symbol in _PATTERNS:
                found = re.match(_PATTERNS[symbol], text)
                arrived = found[0] if found is not None else ""
            else:
                arrived = symbol
            if arrived.startswith(text):
                return True
            if not arrived or not text.startswith(arrived):
                return False
            text = text.removeprefix(arrived)
    return not text.strip()


def parts_of(head: str) -> list[str]:
    """A head's texts and the placeholders between them."""
    return [part for part in re.split(f"({NAME}|{ID}|{NUMBER}|{KIND})", head) if part]
