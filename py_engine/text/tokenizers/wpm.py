"""WordPiece (tokenizer.ggml.model "bert"): words start with ▁ in the vocabulary, continuations are unmarked."""

import unicodedata
from functools import lru_cache
from typing import Any

from py_engine.text.tokenizers.prefix_index import PrefixIndex
from py_engine.text.tokenizers.spm import spaced_piece
from py_engine.text.tokenizers.vocab import Vocab

_CJK = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
SPACES = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))
_BREAK, _DROP, _SINGLE, _PART = range(4)


class WPM:
    """WordPiece: normalise, split at spaces and punctuation, match the longest token at every step of a word."""

    def __init__(self, vocab: Vocab, metadata: dict[str, Any]) -> None:
        self.vocab = vocab
        self.lowercase = bool(metadata.get("tokenizer.ggml.normalizer.lowercase", True))
        self.strip_accents = bool(metadata.get("tokenizer.ggml.normalizer.strip_accents", self.lowercase))
        self.index = PrefixIndex(text for text in vocab.ids if text)
        self.cache: dict[str, list[int]] = {}

    def encode(self, text: str, first: bool = False) -> list[int]:
        """Encode a text without special tokens."""
        out: list[int] = []
        for word in self._words(text):
            ids = self.cache.get(word)
            if ids is None:
                ids = self._encode_word(word)
                if len(self.cache) < 50_000 and len(word) < 64:
                    self.cache[word] = ids
            out += ids
        return out

    def _words(self, text: str) -> list[str]:
        if self.strip_accents:  # like llama.cpp: the first character of each decomposition
            text = "".join(c if c < "\x80" else unicodedata.normalize("NFD", c)[0] for c in text)
        words: list[str] = []
        parts: list[str] = []  # of the word in progress
        for c in text:
            kind = _kind(c, self.strip_accents)
            if kind == _PART:
                parts.append(lower(c) if self.lowercase else c)
            elif kind != _DROP:
                words.append("".join(parts))
                parts.clear()
                if kind == _SINGLE:
                    words.append(lower(c) if self.lowercase else c)
        return [w for w in (*words, "".join(parts)) if w]

    def _encode_word(self, word: str) -> list[int]:
        word, at, out = "▁" + word, 0, list[int]()
        while at < len(word):
            found = self.index.longest(word, at)
            if found < 0:
                unknown = self.vocab.special("unknown")
                return [] if unknown is None else [unknown]
            token = self.index.tokens[found]
            out.append(self.vocab.ids[token])
            at += len(token)
        return out

    def piece(self, token: int) -> bytes:
        """The bytes of a token. Special tokens give their text."""
        return spaced_piece(self.vocab, token)


def lower(c: str) -> str:
    """One character in lower case. Python makes two of U+0130; as in llama.cpp, the first one counts."""
    return c.lower()[0]


@lru_cache(maxsize=4096)
def _kind(c: str, strip_accents: bool) -> int:
    if c in SPACES:
        return _BREAK
    category = unicodedata.category(c)
    if c in "\0\ufffd" or (category[0] == "C" and category != "Cn"):  # llama.cpp keeps unassigned characters
        return _DROP
    if strip_accents and category[0] == "M":
        return _DROP
    if category[0] == "P" or (c < "\x7f" and category[0] == "S"):
        return _SINGLE
    code = ord(c)
    return _SINGLE if any(a <= code <= b for a, b in _CJK) else _PART
