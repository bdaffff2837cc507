"""PLaMo 2 and 3 (tokenizer.ggml.model "plamo2", "plamo3"): the split with the largest sum of scores, found backwards.

Scores count in steps of 1/10,000. Of equal splits, the one with the longer first token wins. A character that no token
has becomes the tokens of its UTF-8 bytes, at a score below that of any token. PLaMo 3 cuts a text first: around names
of special tokens, around runs of spaces and of one character, and at U+EE00, which it drops.
Source: llama.cpp's `llm_tokenizer_plamo2`.
"""

import re
from collections.abc import Iterator
from math import floor
from typing import Any

from py_engine.errors import WispError
from py_engine.text.tokenizers.prefix_index import MAX_NESTED, PrefixIndex
from py_engine.text.tokenizers.vocab import BYTE, Vocab, byte_of, numbers

STEPS = 10_000  # of a score of 1
UNKNOWN_SCORE = -10_000_000  # steps, of a character that becomes bytes
LEAST_SCORE = -20_000_000  # steps; tokens that have it or less are never chosen
BYTE_ORDER_MARK, CUT = "\ufeff", "\uee00"
APART = re.compile(r"<\|plamo:[^|\s]{0,64}\|>")
RUNS = re.compile(r"([^\n])\1{3,}| {2,}")


class PLaMo:
    """The best split of each part of a text (Viterbi)."""

    def __init__(self, vocab: Vocab, metadata: dict[str, Any], *, cuts: bool) -> None:
        """`cuts`: PLaMo 3."""
        self.vocab, self.cuts = vocab, cuts
        scores = numbers(metadata, "scores", len(vocab)) or [0.0] * len(vocab)
        self.bytes: dict[bytes, int] = {}
        ids: dict[str, int] = {}  # text -> id
        for i, (text, kind) in enumerate(zip(vocab.texts, vocab.types, strict=True)):
            if kind == BYTE:
                self.bytes[byte_of(text)] = i
            elif text:
                ids[text] = i
        steps = {text: _steps(scores[i]) for text, i in ids.items()}
        self.index = PrefixIndex((text for text, score in steps.items() if score > LEAST_SCORE), MAX_NESTED)
        self.ids = list(map(ids.__getitem__, self.index.tokens))
        self.lengths = list(map(len, self.index.tokens))
        self.scores = list(map(steps.__getitem__, self.index.tokens))
        if any(bytes([value]) not in self.bytes for value in range(256)):
            raise WispError("The PLaMo vocabulary lacks the tokens of some bytes.", "corrupt_header")

    def encode(self, text: str, first: bool = False) -> list[int]:
        """Encode a text without special tokens."""
        parts = _parts(text) if self.cuts else [text.removeprefix(BYTE_ORDER_MARK)]
        return [token for part in parts for token in self._best(part)]

    def _best(self, text: str) -> list[int]:
        """The ids of the best split of a text."""
        n, lengths, scores = len(text), self.lengths, self.scores
        longest, shorter = self.index.longest, self.index.shorter
        best = [0] * (n + 1)  # sum of the scores from a position on
        chosen = [-1] * n  # token there; -1: bytes
        for at in range(n - 1, -1, -1):
            as_bytes = best[at + 1] + UNKNOWN_SCORE
            most = as_bytes - 1  # an equal sum is enough
            found, one = longest(text, at), -1
            while found >= 0:
                total = best[at + lengths[found]] + scores[found]
                if total > most:
                    most, one = total, found
                found = shorter[found]
            best[at] = as_bytes if one < 0 else most
            chosen[at] = one
        out: list[int] = []
        at = 0
        while at < n:
            token = chosen[at]
            if token < 0:
                out += [self.bytes[bytes([value])] for value in text[at].encode()]
                at += 1
            else:
                out.append(self.ids[token])
                at += lengths[token]
        return out

    def piece(self, token: int) -> bytes:
        """The bytes of a token. Special tokens give their text."""
        text = self.vocab.texts[token]
        return byte_of(text) if self.vocab.types[token] == BYTE else text.encode("utf-8", "replace")


def _steps(score: float) -> int:
    """A score in steps, rounded to the nearest, halves away from zero."""
    size = floor(abs(score) * STEPS + 0.5)
    return -size if score < 0 else size


def _parts(text: str) -> Iterator[str]:
    """What PLaMo 3 encodes apart from each other."""
    for piece in _around(APART, text):
        for part in _around(RUNS, piece):
            yield from filter(None, part.split(CUT))


def _around(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """The pattern's matches in a text, and what is between them."""
    at = 0
    for match in pattern.finditer(text):
        if at < match.start():
            yield text[at : match.start()]
        yield match[0]
        at = match.end()
    if at < len(text):
        yield text[at:]
