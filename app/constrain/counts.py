"""Read counts from texts of any length: int() rejects more than 4300 digits, and accepts those of any script."""

LARGEST = 10**15


def count(text: str) -> int | None:
    """The value of ASCII digits, capped at LARGEST; None for another text."""
    if not text.isascii() or not text.isdigit():
        return None
    digits = text.lstrip("0")
    return LARGEST if len(digits) > 15 else int(digits or "0")
