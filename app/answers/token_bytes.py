"""The bytes of a vocabulary's tokens, which the mask engine reads, and which texts a longer token begins with."""

import array
import re
from bisect import bisect_right

from py_engine.text.tokenizer import Tokenizer

# Bytes at the end of a text that a longer token may replace. Most tokens that replace more repeat one character.
MOST_MERGED = 16
MOST_KNOWN = 4096  # results of goes_on() that are cached
_NOT_UTF8 = re.compile(rb"[\xc0\xc1\xf5-\xff]")  # bytes of no UTF-8 text; ebnf.py uses one as a filler


class TokenBytes:
    """The bytes of all tokens, one after the other, and where each ends.

    A token without bytes is never allowed: control tokens that are not `shown`, and tokens that no UTF-8 text contains.
    """

    def __init__(self, tokenizer: Tokenizer, shown: frozenset[int]) -> None:
        data, ends = bytearray(), array.array("I")
        for token in range(len(tokenizer)):
            if token in shown or not tokenizer.hidden(token):
                piece = tokenizer.piece(token)
                if not _NOT_UTF8.search(piece):
                    data += piece
            ends.append(len(data))
        self.data, self.ends = bytes(data), ends
        self._known: dict[bytes, bool] = {}  # results of goes_on(): many texts end alike

    def goes_on(self, text: bytes) -> bool:
        """Whether a token begins with a text and is longer."""
        if text not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[text] = self._goes_on(text)
        return self._known[text]

    def _goes_on(self, text: bytes) -> bool:
        at = self.data.find(text)
        while at >= 0:
            token = bisect_right(self.ends, at)  # which has the byte at `at`
            begin, end = self.ends[token - 1] if token else 0, self.ends[token]
            if begin == at and end - at > len(text):
                return True
            at = self.data.find(text, end)
        return False

    def certain(self, pieces: list[bytes]) -> int:
        """How many of a text's first tokens stay the same when the text goes on.

        The last one may be merged with what follows. So may the last ones as one, if a token begins with their bytes:
        ' ' and '{' become ' {"'. A tokenizer could also merge the end of a token with what follows; that is not looked
        for.
        """
        count, rest = len(pieces), b""
        for i in range(len(pieces) - 1, -1, -1):
            rest = pieces[i] + rest
            if len(rest) > MOST_MERGED and count < len(pieces):
                break
            if i == len(pieces) - 1 or self.goes_on(rest):
                count = i
        return count
