"""Random answers with tool calls in every syntax, damaged: whole, and cut into pieces in several ways."""

import re
from random import Random
from typing import Any

from app.openai.answers import Message
from tests.support.call_kinds import KINDS, dialect

FRAGMENT = re.compile(r"<[^<>\s]*>|\[[A-Z_]+\]|\w+|\s+|.", re.DOTALL)
OWN = {kind: FRAGMENT.findall(answer) for kind, (_, answer, _) in KINDS.items()}
OTHERS = (
    *"{}[]\"'\\:, \n\t=()<>|a", '\\"', "\\\n", "\xa0", "\u2028", "😀", "\0", "Rome", "weather", "city", "None", "True",
    "NaN", "1e999", '{"a":1}', '{"name": "weather", "arguments": {', "</think>", "<think>", "<|", "|>", '<|"|>', "'''",
    " " * 290, "x" * 400, "\n" * 310, 'city="Rome"', "city='R\\'o'", "assistant", "to=functions.f", "call:f", "[ARGS]",
)  # fmt: skip
PROMPTS = ("", "", ">>>", "<think>\n")
Case = tuple[str, str, str, list[list[int]]]  # a kind, an answer, the prompt's end, and where the answer is cut


def case(rng: Random) -> Case:
    """An answer that was changed, or one of fragments."""
    kind = rng.choice(list(KINDS))
    own = OWN[kind]
    if rng.random() < 0.4:
        parts = list(own)
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(len(parts))
            parts[at : at + rng.randrange(2)] = [rng.choice((rng.choice(own), rng.choice(OTHERS), ""))]
    else:
        parts = [rng.choice(own if rng.random() < 0.7 else OTHERS) for _ in range(rng.choice((3, 10, 40, 120)))]
    text = "".join(parts)
    text = text[: rng.randrange(len(text) + 1)] if rng.random() < 0.2 else text
    cuts = [sorted(rng.choices(range(len(text) + 1), k=rng.choice((1, 2, 5, 30)))) for _ in range(3)]
    return kind, text, rng.choice(PROMPTS), [*cuts, list(range(len(text)))]


def run(given: Case) -> None:
    """Parse the answer in each way."""
    kind, text, prompt, cuts = given
    for ended in (True, False):
        whole = _parsed(kind, text, prompt, [], ended)
        for cut in cuts:
            assert _parsed(kind, text, prompt, cut, ended) == whole, cut


def _parsed(kind: str, text: str, prompt: str, cuts: list[int], ended: bool) -> dict[str, Any]:
    """The message. `ended`: by the model, and not by a limit."""
    parser, message = dialect(kind).parser(prompt, True, bytes), Message()
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        for delta in parser.push(text[begin:end]):
            assert all(delta.values())
            message.add(delta)
    for delta in parser.finish(cut=not ended):
        message.add(delta)
    return message.as_dict()
