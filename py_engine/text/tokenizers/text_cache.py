"""A cache of texts' token ids: the earlier turns of a chat come again with each question."""

from collections import OrderedDict
from collections.abc import Callable

LEAST_CHARS = 256  # of a text that is cached; to encode a shorter one takes no longer than to find it
MOST_CHARS = 1 << 20  # of all cached texts; the least recently used ones are dropped


class TextCache:
    """Encodes texts with `encode(text, first)`, and caches the ids of long ones."""

    def __init__(self, encode: Callable[[str, bool], list[int]]) -> None:
        self._encode = encode
        self._ids: OrderedDict[tuple[str, bool], list[int]] = OrderedDict()
        self._chars = 0

    def encode(self, text: str, first: bool) -> list[int]:
        """Return the ids of a text, which the caller must not change."""
        if not LEAST_CHARS <= len(text) <= MOST_CHARS:
            return self._encode(text, first)
        key = text, first
        ids = self._ids.get(key)
        if ids is not None:
            self._ids.move_to_end(key)
            return ids
        ids = self._ids[key] = self._encode(text, first)
        self._chars += len(text)
        while self._chars > MOST_CHARS:
            (dropped, _), _ = self._ids.popitem(last=False)
            self._chars -= len(dropped)
        return ids
