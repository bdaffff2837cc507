"""Find the tokens that match a text at a place, however many lengths and prefixes the tokens have.

The tokens are sorted. Every string that sorts between a text and a prefix of the text has that prefix, too. So let t be
the last token that does not sort after the text: each token that the text begins with is t or a prefix of t.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import AnyStr, Generic

from py_engine.errors import WispError

MAX_NESTED = 128  # tokens in a chain of prefixes (a, ab, abc ...), for tokenizers that try each of them


class PrefixIndex(Generic[AnyStr]):
    """An index of sorted tokens. The number of a token is its place in `tokens`; -1: no token."""

    def __init__(self, tokens: Iterable[AnyStr], nested: int | None = None) -> None:
        """`tokens`: each once, none empty. WispError corrupt_header if a chain of prefixes has more than `nested`."""
        self.tokens: list[AnyStr] = sorted(tokens)
        self.shorter: list[int] = []  # number of a token -> that of its longest proper prefix
        self._skips: list[int] = []  # number of a token -> that of a shorter prefix: see _link()
        self.most = max(map(len, self.tokens), default=0)  # characters or bytes of the longest token
        if self._link() > (nested or len(self.tokens)):
            raise WispError(
                f"More than {nested} tokens of the vocabulary are prefixes of each other.", "corrupt_header"
            )

    def _link(self) -> int:
        """Link each token with its prefixes. Return the length of the longest chain of prefixes.

        A skip covers the next two skips if these are of equal length; else it leads to the longest proper prefix. So a
        search among n prefixes takes O(log n) steps, as in a skew-binary list (Myers 1983).
        """
        tokens, shorter, skips = self.tokens, self.shorter, self._skips
        depths: list[int] = []  # number of a token -> how many tokens are prefixes of it, itself included
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
        """The number of the longest token that text[at:] begins with. `shorter` leads to the others."""
        tokens, skips = self.tokens, self._skips
        i = bisect_right(tokens, text[at : at + self.most]) - 1
        while i >= 0 and not text.startswith(tokens[i], at):
            skip = skips[i]
            i = self.shorter[i] if skip < 0 or text.startswith(tokens[skip], at) else skip
        return i
