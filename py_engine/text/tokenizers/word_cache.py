"""A cache of words' token ids, for tokenizers that encode each word of a text on its own."""

from collections.abc import Callable, Iterable

MAX_WORDS = 50_000  # the cache is cleared before a text if it holds more
MAX_LENGTH = 64  # characters; longer words seldom come again


class WordCache:
    """Encodes words with `encode_word`, each short word once."""

    def __init__(self, encode_word: Callable[[str], list[int]]) -> None:
        self._encode_word = encode_word
        self._ids: dict[str, list[int]] = {}

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the ids of all words, in order."""
        out: list[int] = []
        cache = self._ids
        if len(cache) > MAX_WORDS:
            cache.clear()
        for word in words:
            ids = cache.get(word)
            if ids is None:
                ids = self._encode_word(word)
                if len(word) < MAX_LENGTH:
                    cache[word] = ids
            out += ids
        return out
