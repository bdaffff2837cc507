"""Find markers in text that comes in pieces: stop strings, tags of reasoning, triggers of tool calls."""

from __future__ import annotations

from collections.abc import Iterable


class Markers:
    """Strings to look for; empty ones are ignored."""

    def __init__(self, markers: Iterable[str]) -> None:
        self._markers = tuple(marker for marker in markers if marker)
        self._longest = max(map(len, self._markers), default=0)

    def first(self, text: str) -> tuple[int, str] | None:
        """Where the first marker begins, and which it is: of several that begin there, the longest."""
        found = [(at, -len(marker), marker) for marker in self._markers if (at := text.find(marker)) >= 0]
        if not found:
            return None
        at, _, marker = min(found)
        return at, marker

    def undecided(self, text: str) -> int:
        """The length of the longest end of `text` that may become a marker."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            if self.may_grow(text[-length:]):
                return length
        return 0

    def may_grow(self, text: str) -> bool:
        """Whether `text` is the beginning of a longer marker."""
        return any(len(marker) > len(text) and marker.startswith(text) for marker in self._markers)


class Until:
    """A filter that passes text on up to the first of some markers. Holds back text that may become one."""

    def __init__(self, markers: Iterable[str]) -> None:
        self._markers = Markers(markers)
        self.held = ""

    def push(self, text: str) -> tuple[str, str | None, str]:
        """(text before any marker, the marker that was found, the text after it)."""
        text = self.held + text
        if (found := self._markers.first(text)) is None:
            return self._hold(text, len(text) - self._markers.undecided(text))
        at, marker = found
        if self._markers.may_grow(text[at:]):
            return self._hold(text, at)
        self.held = ""
        return text[:at], marker, text[at + len(marker) :]

    def _hold(self, text: str, at: int) -> tuple[str, None, str]:
        self.held = text[at:]
        return text[:at], None, ""
