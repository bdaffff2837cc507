"""Which tokens the KV cache holds, so that a request computes only what differs from the one before."""

from __future__ import annotations

from py_engine.plan.cache import AHEAD


class KvCache:
    """The tokens whose keys and values lie in the cache, by position.

    `spare`: rows of a sliding window's ring beside its window (cache.py). Positions far behind the last one that was
    written can then not be gone back to: what the tokens before them saw is overwritten.
    """

    def __init__(self, spare: int) -> None:
        self.tokens: list[int] = []
        self.spare = spare
        self.written = 0  # positions from here on have never been written
        self.prompted = 0  # positions up to here were computed as a prompt, in batches

    def holds(self, ids: list[int]) -> int:
        """Tokens of the longest common prefix."""
        pairs = enumerate(zip(self.tokens, ids, strict=False))
        return next((n for n, (a, b) in pairs if a != b), min(len(self.tokens), len(ids)))

    def reuse(self, ids: list[int], exact: bool = False) -> int:
        """Positions of `ids` that need no computing: the longest common prefix, but never the last token, whose logits
        are wanted. What lies behind is forgotten.

        `exact`: only what was computed as a prompt, as all of it would be without a cache. One token at a time rounds
        a little differently, which can turn a choice that was nearly even.
        """
        n = self.holds(ids[:-1])
        if exact:
            n = min(n, self.prompted)
        if self.spare and self.written - n > self.spare:
            n = 0
        if n == 0:
            self.written = 0
        del self.tokens[n:]
        self.prompted = min(self.prompted, n)
        return n

    def take_over(self, other: KvCache, n: int) -> None:
        """The cache holds what another does of its first `n` tokens, and no more."""
        self.tokens, self.prompted = other.tokens[:n], min(n, other.prompted)
        self.written = max(self.written, n)

    def append(self, ids: list[int], generated: bool = False) -> None:
        """Tokens whose keys and values have been computed; behind generated ones the GPU may have gone on."""
        if not generated and self.prompted == len(self.tokens):
            self.prompted += len(ids)
        self.tokens += ids
        self.written = max(self.written, len(self.tokens) + (AHEAD if generated else 0))
