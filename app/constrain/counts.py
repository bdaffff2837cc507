"""Read numbers from texts: int() takes signs, blanks, underscores and digits of any script, and rejects many digits."""

import re

LARGEST = 10**15


def count(text: str) -> int | None:
    """The value of ASCII digits, capped at LARGEST; None for another text."""
    if not text.isascii() or not text.isdigit():
        return None
    digits = text.lstrip("0")
    return LARGEST if len(digits) > 15 else int(digits or "0")


def hexadecimal(text: str) -> int | None:
    """The value of hexadecimal digits; None for another text."""
    return int(text, 16) if re.fullmatch("[0-9A-Fa-f]+", text) else None
