"""How much work the constraints of one request may take.

Automata can grow exponentially with a pattern or schema. Each step of their construction is counted, so that a request
that needs too many ends with an error within about a second. Counting, unlike a clock, gives the same answer each time.
"""

from collections.abc import Callable
from typing import TypeVar

MAX_EFFORT = 500_000  # steps, each of a microsecond or less in CPython

Made = TypeVar("Made")
_left = MAX_EFFORT


class TooComplex(Exception):
    """The constraints of the request need more steps or states than they may have."""


def begin() -> None:
    """Start counting for another request. Grammars are written without waiting, so one count is enough."""
    global _left
    _left = MAX_EFFORT


def spend(steps: int) -> None:
    """Count steps of a construction. Raises TooComplex where the request has none left."""
    global _left
    _left -= steps
    if _left < 0:
        raise TooComplex


def left() -> int:
    """The steps that the request, or the attempt, has left."""
    return _left


def need(steps: int) -> None:
    """Raise TooComplex at once where fewer steps than these are left; then none are, as if they had been spent."""
    global _left
    if steps > _left:
        _left = -1
        raise TooComplex


def attempt(steps: int, make: Callable[[], Made]) -> Made | None:
    """What `make` makes, or None where it needs more steps than these. The request pays for those that it used."""
    global _left
    before = _left
    granted = _left = min(steps, before)
    try:
        return make()
    except TooComplex:
        return None
    finally:
        _left = before - (granted - _left)
