"""Which tokens the KV cache of one sequence holds, so that a request computes only what is new."""

from __future__ import annotations

from py_engine.plan.cache import LOOKAHEAD


class KvCache:
    """The tokens whose keys and values are in the cache, by position.

    `ring_slack`: rows of a sliding window's ring beyond its window (plan/cache.py); 0: no ring. A ring cannot rewind
    far: older rows are overwritten.
    """

    def __init__(self, ring_slack: int) -> None:
        self.tokens: list[int] = []
        self.ring_slack = ring_slack
        self.written = 0  # positions from here on have never been written
        self.prompted = 0  # positions before this were computed as a prompt, in batches

    def common_prefix(self, ids: list[int]) -> int:
        """Length of the longest common prefix of `ids` and the cached tokens."""
        pairs = enumerate(zip(self.tokens, ids, strict=False))
        return next((n for n, (a, b) in pairs if a != b), min(len(self.tokens), len(ids)))

    def reuse(self, ids: list[int], exact: bool = False) -> int:
        """Keep the longest common prefix with `ids`, drop the rest, and return its length.

        The last token of `ids` is never reused, because its logits are needed.
        `exact`: reuse only positions that were computed as a prompt. Tokens computed one at a time round a little
        differently, which can flip a choice between two nearly equal logits.
        """
        n = self.common_prefix(ids[:-1])
        if exact:
            n = min(n, self.prompted)
        if self.ring_slack and self.written - n > self.ring_slack:
            n = 0
        if n == 0:
            self.written = 0
        del self.tokens[n:]
        self.prompted = min(self.prompted, n)
        return n

    def copy_from(self, other: KvCache, n: int) -> None:
        """Hold the first `n` tokens of another cache, and nothing else."""
        self.tokens, self.prompted = other.tokens[:n], min(n, other.prompted)
        self.written = max(self.written, n)

    def append(self, ids: list[int], generated: bool = False) -> None:
        """Record tokens whose keys and values were computed. After `generated` ones the GPU may have run ahead."""
        if not generated and self.prompted == len(self.tokens):
            self.prompted += len(ids)
        self.tokens += ids
        self.written = max(self.written, len(self.tokens) + (LOOKAHEAD if generated else 0))
