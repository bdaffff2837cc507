"""Estimate how long the mask engine takes to compile a grammar, before it is given to it: nothing can interrupt it.

The weights are milliseconds for a vocabulary of 150,000 tokens, measured with XGrammar 0.1.27 and rounded up.
"""

import re

MAX_COST = 3000.0
RULE, CLASS, LITERAL, REPEAT = 0.5, 0.06, 0.03, 8.0
WIDE = 15.0  # a group of alternatives with characters beyond ASCII, which many tokens begin with
UNROLLED = 128  # as many repetitions each cost as much as the repeated part

_BEYOND_ASCII = re.compile(r"\\u00[89a-f]")
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{(\d+)(?:,(\d*))?\}|[()]|::=')


def cost(text: str) -> float:
    """The cost of a grammar in XGrammar's EBNF. Repetitions within each other multiply."""
    total = last = 0.0  # of the open group, and of its last part
    wide = False  # the group has characters beyond ASCII
    groups: list[tuple[float, bool]] = []
    for token in _TOKEN.finditer(text):
        kind = token[0][0]
        if kind == "(":
            groups.append((total, wide))
            total, last, wide = 0.0, 0.0, False
        elif kind == ")":
            before, wide = groups.pop() if groups else (0.0, False)
            last, total = total, total + before
        elif kind == "{":
            times = min(max(int(token[1]), int(token[2] or 0)), UNROLLED)
            repeated = REPEAT + last * times
            total, last = total - last + repeated, repeated
        else:
            last = RULE if kind == ":" else CLASS if kind == "[" else LITERAL
            if kind == "[" and not wide and _BEYOND_ASCII.search(token[0]):
                last, wide = last + WIDE, True
            wide &= kind != ":"
            total += last
    return total
