"""Find the tokens that a text begins with at a place, whatever lengths and prefixes the tokens have.

The tokens are sorted. A prefix of a text is also a prefix of every string between the two. So all tokens that a text
begins with are among the last token that is not after the text, and that token's own prefixes.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import AnyStr, Generic

from py_engine.errors import WispError

MAX_NESTED = 128  # tokens that are prefixes of each other, where each of them is tried


class PrefixIndex(Generic[AnyStr]):
    """An index of tokens, which have numbers in their order. -1 stands for none."""

    def __init__(self, tokens: Iterable[AnyStr], nested: int | None = None) -> None:
        """`tokens`: each once, none empty. WispError if more than `nested` of them are prefixes of each other."""
        self.tokens: list[AnyStr] = sorted(tokens)
        self.shorter: list[int] = []  # token -> the longest other token that is a prefix of it
        self._skips: list[int] = []  # token -> another prefix of it, as in a skew-binary list: see _link()
        self.most = max(map(len, self.tokens), default=0)  # characters or bytes
        if self._link() > (nested or len(self.tokens)):
            raise WispError(
                f"More than {nested} tokens of the vocabulary are prefixes of each other.", "corrupt_header"
            )

    def _link(self) -> int:
        """Link each token with its prefixes. Return how many are prefixes of one, itself included, at most.

        A skip goes as far as two equal skips before it, or to the next prefix. So steps and skips find one of n
        prefixes in a number of steps in proportion to log n.
        """
        tokens, shorter, skips = self.tokens, self.shorter, self._skips
        depths: list[int] = []  # token -> how many tokens are prefixes of it, itself included
        inner = -1
        for i, token in enumerate(tokens):
            while inner >= 0 and not token.startswith(tokens[inner]):
                inner = shorter[inner]
            shorter.append(inner)
            depth, skip = 0, inner
            if inner >= 0:
                depth, far = depths[inner], skips[inner]
                if far >= 0:
                    farther = skips[far]
                    reached = depths[farther] if farther >= 0 else 0
                    if depth - depths[far] == depths[far] - reached:
                        skip = farther
            depths.append(depth + 1)
            skips.append(skip)
            inner = i
        return max(depths, default=0)

    def longest(self, text: AnyStr, at: int) -> int:
        """The longest token that text[at:] begins with. `shorter` has the others."""
        tokens, skips = self.tokens, self._skips
        i = bisect_right(tokens, text[at : at + self.most]) - 1
        while i >= 0 and not text.startswith(tokens[i], at):
            skip = skips[i]
            i = self.shorter[i] if skip < 0 or text.startswith(tokens[skip], at) else skip
        return i
