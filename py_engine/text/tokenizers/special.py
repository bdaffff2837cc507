"""Find the special tokens in a text, or break them so that the text cannot forge them.

Takes time in proportion to the text, however many special tokens the vocabulary and the text have.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from heapq import heappop, heappush

from py_engine.text.tokenizers.vocab import CONTROL, USER_DEFINED, Vocab, check_lengths

BREAK = "\ufdd0"  # no token extends across it, and it is no token itself; Unicode reserves it for internal use
_BLANKS = " \t\n\v\f\r"


class SpecialTokens:
    """The special tokens of a vocabulary. Longer ones are split off first, wherever they are."""

    def __init__(self, vocab: Vocab, strip_right: frozenset[int], strip_left: frozenset[int]) -> None:
        """`strip_right`, `strip_left`: tokens that remove blanks to their right, and to their left."""
        self._vocab = vocab
        self._strip_right, self._strip_left = strip_right, strip_left
        self._all: dict[str, int] = {}  # text -> rank: its index in vocab.special_ids
        self._defined: dict[str, int] = {}  # of the user-defined ones
        lengths: dict[str, set[int]] = {}  # first two characters -> lengths of the tokens that begin with them
        for rank, token in enumerate(vocab.special_ids):
            text = vocab.texts[token]
            self._all.setdefault(text, rank)
            if vocab.types[token] == USER_DEFINED:
                self._defined.setdefault(text, rank)
            lengths.setdefault(text[:2], set()).add(len(text))
        for head in [head for head in lengths if len(head) == 2]:
            lengths[head] |= lengths.get(head[0], set())
        check_lengths(lengths.values())
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}
        first = "".join(map(re.escape, sorted({head[0] for head in lengths})))
        self._first = re.compile(f"[{first}]") if first else None
        self._marks: tuple[frozenset[str] | None, list[str], int] = (None, [], 0)  # of _begun()

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

    def _chosen(self, text: str, tokens: dict[str, int]) -> list[tuple[int, int, int]]:
        """(start, end, token) of the tokens to split off: in the order of their ranks, each where no other one is.

        Each place waits for its longest token, then, if another one is in the way of that, for the next.
        """
        ranks: list[int] = []  # a heap
        places: dict[int, array[int]] = {}  # rank -> places that wait for it

        def wait(start: int, limit: int) -> None:
            rank = self._longest(text, start, limit, tokens)
            if rank is not None:
                if rank not in places:
                    places[rank] = array("L")
                    heappush(ranks, rank)
                places[rank].append(start)

        if self._first is not None and tokens:
            for match in self._first.finditer(text):
                wait(match.start(), len(text) - match.start() + 1)
        taken = bytearray(len(text) if ranks else 0)
        chosen = []
        while ranks:
            rank = heappop(ranks)
            token = self._vocab.special_ids[rank]
            length = len(self._vocab.texts[token])
            for start in sorted(places.pop(rank)):
                if taken.find(1, start, start + length) < 0:
                    span = self._stripped(text, taken, start, start + length, token)
                    taken[slice(*span)] = b"\1" * (span[1] - span[0])
                    chosen.append((*span, token))
                elif not taken[start]:
                    wait(start, length)
        return chosen

    def _longest(self, text: str, start: int, limit: int, tokens: dict[str, int]) -> int | None:
        """The rank of the longest token at a place that is shorter than `limit`."""
        for length in self._lengths_at(text, start):
            if length < limit:
                rank = tokens.get(text[start : start + length])
                if rank is not None:
                    return rank
        return None

    def _lengths_at(self, text: str, start: int) -> list[int]:
        """The lengths of the tokens that may begin at a place, the longest first."""
        found = self._lengths.get(text[start : start + 2])
        return found if found is not None else self._lengths.get(text[start], [])

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
        starts = (match.start() for match in self._first.finditer(text)) if self._first and self._defined else ()
        words = (text[start : start + length] for start in starts for length in self._lengths_at(text, start))
        return frozenset(word for word in words if word in self._defined)

    def broken(self, text: str, also: frozenset[str]) -> str:
        """Break every control token in a text, and the user-defined ones of `also`, so that none is recognised.

        Not parsing them would not be enough: templates change texts, and the merges of some vocabularies make a control
        token from its characters. Nor is the beginning of one left at the text's end: templates write the parts of a
        message without a separator.
        """
        text = text.replace(BREAK, "")
        if self._first is None:
            return text
        out, at = [], 0
        for match in self._first.finditer(text):
            start = match.start()
            for length in self._lengths_at(text, start):
                word = text[start : start + length]
                rank = self._all.get(word)
                if rank is not None and (self._vocab.types[self._vocab.special_ids[rank]] == CONTROL or word in also):
                    out += [text[at:start], word[0] if len(word) > 1 else "\ufffd"]
                    at = start + 1
                    break
            else:
                continue
            out.append(BREAK)
        begun = self._begun(text, at, also)
        return "".join([*out, text[at:]] if begun is None else [*out, text[at:begun], BREAK, text[begun:]])

    def _begun(self, text: str, start: int, also: frozenset[str]) -> int | None:
        """Where to break the beginning of a token to be broken that is the end of text[start:], blanks aside."""
        if self._marks[0] != also:
            types, ids = self._vocab.types, self._vocab.special_ids
            marks = sorted(mark for mark, rank in self._all.items() if types[ids[rank]] == CONTROL or mark in also)
            self._marks = also, marks, max(map(len, marks), default=0)
        _, marks, longest = self._marks
        end = len(text.rstrip(_BLANKS))
        for match in self._first.finditer(text, max(start, end - longest + 1), end) if self._first else ():
            at = match.start()
            beginning = text[at:end]
            after = bisect_right(marks, beginning)
            if after < len(marks) and marks[after].startswith(beginning):
                return at + 1
        return None
