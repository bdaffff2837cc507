"""Which of a chat's oldest turns are left out so that its prompt fits."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

Messages = list[dict[str, Any]]
CHARACTERS = 6  # of messages for each token of the prompt: in most texts more than fit
AROUND = 4  # tokens that templates write around a message
SAMPLE = 4000  # characters from which the tokens of a long text are estimated


def without_oldest_turns(messages: Messages, turns: int) -> Messages:
    """Drop the first user messages and their answers. System messages stay."""
    if not turns:
        return messages
    starts = [i for i, m in enumerate(messages) if m["role"] == "user"]
    dropped = range(starts[0], starts[turns])
    return [m for i, m in enumerate(messages) if i not in dropped or m["role"] in ("system", "developer")]


def fewest_turns(messages: Messages, capacity: int, tokens: Callable[[int], int]) -> int:
    """The fewest turns to leave out so that the prompt has `capacity` tokens at most; never the last one.

    `tokens(turns)`: of the prompt without so many. It is asked about the newest turns first, so that a long chat is
    never rendered as a whole, and then by bisection.
    """
    most = max(0, sum(m["role"] == "user" for m in messages) - 1)
    short, enough = min(most, turns_before(messages, capacity)), most
    step = 1
    while tokens(short) <= capacity:  # a longer prompt would fit
        if not short:
            return 0
        enough, short = short, max(0, short - step)
        step *= 2
    unknown = range(short + 1, enough)
    return min(most, short + 1 + bisect_left(unknown, True, key=lambda turns: tokens(turns) <= capacity))


def estimate(messages: Messages, tokens: Callable[[str], int]) -> int:
    """About how many tokens messages have. `tokens(text)` is asked about the newest texts only."""
    text = "".join(map(_said, messages))
    sample = text[-SAMPLE:]
    return AROUND * len(messages) + tokens(sample) * len(text) // max(1, len(sample))


def turns_before(messages: Messages, capacity: int) -> int:
    """The number of turns that are older than the newest messages with more characters than `capacity` tokens have."""
    left = CHARACTERS * capacity
    older = sum(m["role"] == "user" for m in messages)
    for message in reversed(messages):
        if left <= 0:
            break
        left -= len(_said(message)) + CHARACTERS * AROUND
        older -= message["role"] == "user"
    return older


def _said(message: dict[str, Any]) -> str:
    """What a message says, without the words of a template around it."""
    return f"{message.get('content') or ''}{message.get('tool_calls') or ''}"
