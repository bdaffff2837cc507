"""Random JSON texts: deep, broken, with brackets in strings. What parses must be what Python's parser returns."""

import json
from random import Random

from py_engine import json_input
from py_engine.json_input import MAX_DEPTH

PIECES = (
    "[",
    "]",
    "{",
    "}",
    '"',
    '\\"',
    "\\",
    ",",
    ":",
    "1",
    '"a":',
    "null",
    "é",
    "\ud800",
    "[[",
    '{"a":',
    " ",
    "1e999",
    "-",
)


def case(rng: Random) -> str:
    """Pieces in random order, or a value with brackets around it, cut or not."""
    if rng.random() < 0.5:
        return "".join(rng.choices(PIECES, k=rng.randrange(1, 60)))
    opening, inner, closing = rng.choice(
        (("[", "1", "]"), ('{"[":', '"]}"', "}"), ('[{"":', "[]", "}]"), ('["[",', '""', "]"))
    )
    times = rng.choice((1, MAX_DEPTH // 2, MAX_DEPTH, MAX_DEPTH + 1, 30_000, 200_000))
    text = opening * times + inner + closing * times
    return text[: rng.randrange(len(text))] if rng.random() < 0.3 else text


def run(text: str) -> None:
    """Parse it."""
    try:
        value = json_input.parse(text)
    except ValueError:
        return
    assert json.dumps(value) == json.dumps(json.loads(text))
