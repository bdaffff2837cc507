"""Parse JSON from outside: requests, answers of other servers, arguments of tools.

Python's parser recurses in C. In WebAssembly its stack overflows long before Python notices, which ends the engine. And
each value becomes an object of many times its characters. So depth and memory are checked first.
"""

from __future__ import annotations

import json
import re
from array import array
from itertools import accumulate
from typing import Any

MAX_DEPTH = 100  # objects and lists within each other
MAX_BYTES = 160 << 20  # of the objects that a text becomes, without its strings' characters
# Of an object, a list, a member's place and value, an item and half a string; roughly.
_BYTES = {"{": 150, "[": 60, ":": 100, ",": 40, '"': 25}

_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_OPENING, _CLOSING = b"[{", b"]}"
_STEPS = bytes(1 if c in _OPENING else 255 if c in _CLOSING else 0 for c in range(256))  # 255: -1 as a signed byte
_OTHERS = bytes(c for c in range(256) if c not in _OPENING + _CLOSING)


class TooDeep(ValueError):
    """The JSON is nested more than MAX_DEPTH levels deep."""

    advice = "Make it flatter."

    def __init__(self) -> None:
        super().__init__(f"JSON is nested more than {MAX_DEPTH} levels deep")


class TooLarge(ValueError):
    """The values of the JSON would need more than MAX_BYTES."""

    advice = "Send less at once."

    def __init__(self) -> None:
        super().__init__(f"JSON has so many values that they would need more than {MAX_BYTES >> 20} MB of memory")


def parse(text: str | bytes, *, strict: bool = False) -> Any:
    """Parse JSON. Raises TooDeep, TooLarge, or another ValueError where the text is not JSON.

    `strict`: reject NaN, Infinity and -Infinity, which Python accepts.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    if _size(text) > MAX_BYTES:
        strings = (text.count('"') - text.count('\\"')) * _BYTES['"']
        if strings > MAX_BYTES or strings + _size(_STRING.sub("", text)) > MAX_BYTES:
            raise TooLarge
    if depth(text) > MAX_DEPTH:
        raise TooDeep
    return json.loads(text, parse_constant=_rejected if strict else None)


def _rejected(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def stored(text: str | None) -> dict[str, Any]:
    """Parse the object that an earlier visit stored. Empty if there is none, or if it is damaged."""
    try:
        found = parse(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _size(text: str) -> int:
    """Bytes of the objects that a JSON text becomes, roughly; more where strings have brackets, colons and commas."""
    return sum(text.count(mark) * size for mark, size in _BYTES.items())


def depth(text: str) -> int:
    """The levels of nesting of a JSON text; at most that many where it has few brackets."""
    brackets = text.count("[") + text.count("{")
    if brackets <= MAX_DEPTH:
        return brackets
    rest = _STRING.sub("", text).encode("utf-8", "replace").translate(_STEPS, _OTHERS)
    return max(accumulate(array("b", rest)), default=0)


def is_deep(value: Any) -> bool:
    """Whether a value is nested more than MAX_DEPTH levels deep. json.dumps() recurses as the parser does."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [part for part in level if isinstance(part, dict | list)]
        if not level:
            return False
        inner = (part.values() if isinstance(part, dict) else part for part in level)
        level = list({id(part): part for parts in inner for part in parts}.values())
    return True


def count(value: Any, most: int) -> int:
    """How many values a value has within it, each place of one counted; more than `most` where there are more."""
    counted, level = 0, [value]
    while level:
        inside = [part for part in level if isinstance(part, dict | list)]
        counted += sum(map(len, inside))
        if counted > most:
            break
        level = [i for part in inside for i in (part.values() if isinstance(part, dict) else part)]
    return counted
