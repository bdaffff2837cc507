"""Unigram (tokenizer.ggml.model "t5"): the most probable split into tokens, after SentencePiece's normalisation.

tokenizer.ggml.precompiled_charsmap: u32 n | n bytes of a double array of u32 | zero-terminated replacement texts. The
array is a trie: it maps prefixes of the text, byte by byte, to offsets of replacements. Bits of a unit of the
array: 0-7 its byte; 8 whether it has a value; 10-30 the offset of its children (times 256 if bit 9 is set). A value's
unit has bit 31 set and the offset of the replacement in the other bits.
"""

import re
import struct
from typing import Any

from py_engine.errors import WispError
from py_engine.text.tokenizers.prefix_index import PrefixIndex
from py_engine.text.tokenizers.spm import spaced_piece
from py_engine.text.tokenizers.vocab import NORMAL, UNUSED, USER_DEFINED, Vocab, numbers
from py_engine.text.tokenizers.word_cache import WordCache

UNKNOWN_PENALTY = 10.0
MAX_NESTED = 64  # pieces in a chain of prefixes; SentencePiece trains pieces of at most 16 characters by default
MAX_PREFIX = 32  # bytes of what a table replaces: one that refers to itself has no end
MAX_REPLACEMENT = 256  # bytes; those of NFKC have 33 at most
MAX_GROWTH = 2  # times as many bytes, and LEAST_GROWTH: what would make a text longer is then no longer replaced
LEAST_GROWTH = 10_000


class UGM:
    """The split of normalised text with the largest sum of scores (Viterbi), word by word if that is exact."""

    def __init__(self, vocab: Vocab, metadata: dict[str, Any]) -> None:
        scores = numbers(metadata, "scores", len(vocab))
        if not scores:
            raise WispError("The GGUF file has a unigram vocabulary without scores.", "missing_metadata")
        self.vocab = vocab
        self.unknown = vocab.special("unknown") or 0
        self.add_space_prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", False))
        self.merge_spaces = bool(metadata.get("tokenizer.ggml.remove_extra_whitespaces", False))
        self.charsmap = CharsMap(bytes(int(n) & 0xFF for n in numbers(metadata, "precompiled_charsmap", 0)))
        types = vocab.types
        self.scores: dict[str, float] = {}
        for text, i in vocab.ids.items():
            if text and types[i] in (NORMAL, USER_DEFINED, UNUSED):
                self.scores[text] = 0.0 if types[i] == USER_DEFINED else scores[i]
        self.index = PrefixIndex(self.scores, MAX_NESTED)
        self.edges = [(len(text), self.scores[text]) for text in self.index.tokens]
        normal = [scores[i] for i, kind in enumerate(types) if kind == NORMAL]
        self.unknown_score = min(normal, default=0.0) - UNKNOWN_PENALTY
        separable = not any("▁" in t.lstrip("▁") for t in self.scores)
        self.words = re.compile("▁*[^▁]+|▁+" if separable else "(?s:.+)")
        self.cache = WordCache(self._best)

    def encode(self, text: str, first: bool = False) -> list[int]:
        """Encode a text without special and user-defined tokens. Adjacent unknown ones are one."""
        ids = self.cache.encode(self.words.findall(self._normalise(text)))
        if self.unknown not in ids:
            return ids
        return [id for id, before in zip(ids, [None, *ids], strict=False) if not id == before == self.unknown]

    def _normalise(self, text: str) -> str:
        text = self.charsmap.replace(text)
        if self.merge_spaces:
            return "".join("▁" + word for word in text.split(" ") if word)
        at = len(text) - len(text.lstrip(" "))
        if self.add_space_prefix and at < len(text):
            text = text[:at] + " " + text[at:]
        return text.replace(" ", "▁")

    def _best(self, word: str) -> list[int]:
        """The best split's ids. Adjacent unknown characters are one token."""
        n, scores, edges, unknown_score = len(word), self.scores, self.edges, self.unknown_score
        longest, shorter = self.index.longest, self.index.shorter
        best = [0.0, *[float("-inf")] * n]
        start = [0] * (n + 1)
        known = [False] * (n + 1)
        for i, c in enumerate(word):
            here = best[i]
            found = longest(word, i)
            while found >= 0:
                length, score = edges[found]
                if here + score > best[i + length]:
                    end = i + length
                    best[end], start[end], known[end] = here + score, i, True
                found = shorter[found]
            if c not in scores and here + unknown_score > best[i + 1]:
                best[i + 1], start[i + 1], known[i + 1] = here + unknown_score, i, False
        out: list[int] = []
        end = n
        while end:
            token = self.vocab.ids[word[start[end] : end]] if known[end] else self.unknown
            if not (out and out[-1] == token == self.unknown):
                out.append(token)
            end = start[end]
        return out[::-1]

    def piece(self, token: int) -> bytes:
        """The bytes of a token. Special tokens give their text."""
        return spaced_piece(self.vocab, token)


class CharsMap:
    """SentencePiece's table of character replacements."""

    def __init__(self, blob: bytes) -> None:
        self.units: tuple[int, ...] = ()
        self.texts = b""
        if len(blob) >= 4:
            (size,) = struct.unpack_from("<I", blob)
            if size % 4 or 4 + size >= len(blob):
                raise WispError("tokenizer.ggml.precompiled_charsmap is damaged.", "corrupt_header")
            self.units = struct.unpack_from(f"<{size // 4}I", blob, 4)
            self.texts = blob[4 + size :]

    def replace(self, text: str) -> str:
        """Replace the longest matching prefix at every step."""
        if not self.units:
            return text
        data = text.encode()
        out: list[bytes] = []
        at = 0
        left = MAX_GROWTH * len(data) + LEAST_GROWTH
        while at < len(data):
            length, replacement = self._longest(data, at)
            if len(replacement) > length:
                left -= len(replacement)
            if not length or left < 0:
                length = 1
                while at + length < len(data) and data[at + length] & 0xC0 == 0x80:
                    length += 1
                replacement = data[at : at + length]
            out.append(replacement)
            at += length
        return b"".join(out).decode("utf-8", "replace")

    def _longest(self, data: bytes, at: int) -> tuple[int, bytes]:
        units = self.units
        found, length = -1, 0
        node = _offset(units[0])
        for i in range(at, min(len(data), at + MAX_PREFIX)):
            byte = data[i]
            node ^= byte
            if not byte or node >= len(units) or units[node] & 0x800000FF != byte:
                break
            has_value = units[node] >> 8 & 1
            node ^= _offset(units[node])
            if has_value and node < len(units):
                found, length = units[node] & 0x7FFFFFFF, i + 1 - at
        if not length or found >= len(self.texts):
            return 0, b""
        end = self.texts.find(b"\0", found, found + MAX_REPLACEMENT)
        return (length, self.texts[found:end]) if end >= 0 else (0, b"")


def _offset(unit: int) -> int:
    return (unit >> 10 & 0x1FFFFF) << ((unit & 0x200) >> 6)
