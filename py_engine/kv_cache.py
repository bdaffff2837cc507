"""Which tokens the KV cache holds, so that a request computes only what differs from the one before."""

from __future__ import annotations


class KvCache:
    """The tokens whose keys and values lie in the cache, by position."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def reuse(self, ids: list[int]) -> int:
        """Positions of `ids` that need no computing: the longest common prefix, but never the last token, whose logits
        are wanted. What lies behind is forgotten.
        """
        n = 0
        for a, b in zip(self.tokens, ids[:-1], strict=False):
            if a != b:
                break
            n += 1
        del self.tokens[n:]
        return n

    def append(self, ids: list[int]) -> None:
        """Tokens whose keys and values have been computed."""
        self.tokens += ids
