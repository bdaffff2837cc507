"""Find the special tokens in a text, or break them so that the text cannot forge them.

Takes time in proportion to the text, however many special tokens the vocabulary and the text have.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from heapq import heappop, heappush

from py_engine.text.tokenizers.prefix_index import MAX_NESTED, PrefixIndex
from py_engine.text.tokenizers.vocab import CONTROL, USER_DEFINED, Vocab

BREAK = "\ufdd0"  # no token extends across it, and it is no token itself; Unicode reserves it for internal use
MOST_MARKS = 4  # indexes of tokens to break: with and without tools, for answers and for other texts
_BLANKS = " \t\n\v\f\r"


class SpecialTokens:
    """The special tokens of a vocabulary. Longer ones are split off first, wherever they are."""

    def __init__(self, vocab: Vocab, strip_right: frozenset[int], strip_left: frozenset[int]) -> None:
        """`strip_right`, `strip_left`: tokens that remove blanks to their right, and to their left."""
        self._vocab = vocab
        self._strip_right, self._strip_left = strip_right, strip_left
        ranks: dict[str, int] = {}  # text -> its index in vocab.special_ids
        defined: dict[str, int] = {}  # of the user-defined ones
        for rank, token in enumerate(vocab.special_ids):
            text = vocab.texts[token]
            ranks.setdefault(text, rank)
            if vocab.types[token] == USER_DEFINED:
                defined.setdefault(text, rank)
        self._all, self._defined = _Tokens(ranks), _Tokens(defined)
        first = "".join(map(re.escape, sorted({text[0] for text in ranks})))
        self._first = re.compile(f"[{first}]") if first else None
        self._marks: dict[tuple[frozenset[str], frozenset[str]], PrefixIndex[str]] = {}  # of _to_break()

    def split(self, text: str, control: bool) -> list[str | int]:
        """Split at special tokens: at user-defined ones always, at others with `control`."""
        chosen = self._chosen(text, self._all if control else self._defined)
        parts: list[str | int] = []
        at = 0
        for start, end, token in sorted(chosen):
            if start > at:
                parts.append(text[at:start])
            parts.append(token)
            at = end
        if at < len(text):
            parts.append(text[at:])
        return parts

    def _chosen(self, text: str, tokens: _Tokens) -> list[tuple[int, int, int]]:
        """(start, end, token) of the tokens to split off: in the order of their ranks, each where no other one is.

        Each place waits for its longest token, then, if another one is in the way of that, for the next.
        """
        ranks: list[int] = []  # a heap
        places: dict[int, array[int]] = {}  # rank -> places that wait for it

        def wait(start: int, found: int) -> None:
            if found >= 0:
                rank = tokens.ranks[found]
                if rank not in places:
                    places[rank] = array("L")
                    heappush(ranks, rank)
                places[rank].append(start)

        if self._first is not None and tokens.ranks:
            for match in self._first.finditer(text):
                wait(match.start(), tokens.index.longest(text, match.start()))
        taken = bytearray(len(text) if ranks else 0)
        chosen = []
        while ranks:
            rank = heappop(ranks)
            token = self._vocab.special_ids[rank]
            length = len(self._vocab.texts[token])
            shorter = tokens.index.shorter[tokens.number[rank]]
            for start in sorted(places.pop(rank)):
                if taken.find(1, start, start + length) < 0:
                    span = self._stripped(text, taken, start, start + length, token)
                    taken[slice(*span)] = b"\1" * (span[1] - span[0])
                    chosen.append((*span, token))
                elif not taken[start]:
                    wait(start, shorter)
        return chosen

    def _stripped(self, text: str, taken: bytearray, start: int, end: int, token: int) -> tuple[int, int]:
        """The span of a token with the blanks that it removes."""
        if token in self._strip_right:
            while end < len(text) and text[end] in _BLANKS and not taken[end]:
                end += 1
        if token in self._strip_left:
            while start and text[start - 1] in _BLANKS and not taken[start - 1]:
                start -= 1
        return start, end

    def defined_in(self, text: str) -> frozenset[str]:
        """The texts of the user-defined tokens that a text has anywhere, also within each other."""
        index, found = self._defined.index, set[int]()
        for match in self._first.finditer(text) if self._first and self._defined.ranks else ():
            token = index.longest(text, match.start())
            while token >= 0 and token not in found:
                found.add(token)
                token = index.shorter[token]
        return frozenset(index.tokens[token] for token in found)

    def broken(self, text: str, also: frozenset[str], unbroken: frozenset[str] = frozenset()) -> str:
        """Break every control token in a text but `unbroken`, and the user-defined ones of `also`: none is recognised.

        Not parsing them would not be enough: templates change texts, and the merges of some vocabularies make a control
        token from its characters. Nor is the beginning of one left at the text's end: templates write the parts of a
        message without a separator.
        """
        text = text.replace(BREAK, "")
        if self._first is None:
            return text
        index = self._to_break(also, unbroken)
        out, at = [], 0
        for match in self._first.finditer(text):
            start = match.start()
            found = index.longest(text, start)
            if found >= 0:
                out += [text[at:start], text[start] if len(index.tokens[found]) > 1 else "\ufffd", BREAK]
                at = start + 1
        begun = self._begun(text, at, index)
        return "".join([*out, text[at:]] if begun is None else [*out, text[at:begun], BREAK, text[begun:]])

    def _to_break(self, also: frozenset[str], unbroken: frozenset[str]) -> PrefixIndex[str]:
        if (also, unbroken) not in self._marks:
            if len(self._marks) == MOST_MARKS:
                self._marks.clear()
            types, ids = self._vocab.types, self._vocab.special_ids
            every = zip(self._all.index.tokens, self._all.ranks, strict=True)
            special = (mark for mark, rank in every if types[ids[rank]] == CONTROL or mark in also)
            self._marks[also, unbroken] = PrefixIndex(mark for mark in special if mark not in unbroken)
        return self._marks[also, unbroken]

    def _begun(self, text: str, start: int, index: PrefixIndex[str]) -> int | None:
        """Where to break the beginning of a token to be broken that is the end of text[start:], blanks aside."""
        marks = index.tokens
        end = len(text.rstrip(_BLANKS))
        for match in self._first.finditer(text, max(start, end - index.most + 1), end) if self._first else ():
            at = match.start()
            beginning = text[at:end]
            after = bisect_right(marks, beginning)
            if after < len(marks) and marks[after].startswith(beginning):
                return at + 1
        return None


class _Tokens:
    """An index of tokens, and their ranks."""

    def __init__(self, ranks: dict[str, int]) -> None:
        self.index = PrefixIndex(ranks, MAX_NESTED)
        self.ranks = [ranks[text] for text in self.index.tokens]  # number of a token -> rank
        self.number = {rank: number for number, rank in enumerate(self.ranks)}
