"""Which positions a request may reuse."""

from py_engine.generate.kv_cache import KvCache
from py_engine.plan.cache import LOOKAHEAD


def test_longest_common_prefix_without_the_last_token() -> None:
    cache = KvCache(0)
    assert cache.reuse([1, 2, 3]) == 0
    cache.append([1, 2, 3])
    assert cache.reuse([1, 2, 3]) == 2
    cache.append([3])
    cache.append([4, 5], generated=True)
    assert cache.reuse([1, 2, 3, 4, 5, 6]) == 5
    assert cache.reuse([1, 2, 9, 9]) == 2
    assert cache.reuse([7]) == 0


def test_copying_another_sequences_cache() -> None:
    one, other = KvCache(0), KvCache(0)
    one.reuse([1, 2, 3, 4])
    one.append([1, 2, 3])
    one.append([4, 5], generated=True)
    other.append([7, 8])
    other.copy_from(one, 4)
    assert (other.tokens, other.prompted) == ([1, 2, 3, 4], 3)
    assert other.reuse([1, 2, 3, 4, 6]) == 4
    assert other.reuse([1, 2, 3, 4, 6], exact=True) == 3, "the fourth was not computed as a prompt"
    assert one.tokens == [1, 2, 3, 4, 5]


def test_a_ring_cannot_reuse_overwritten_positions() -> None:
    cache = KvCache(ring_slack=2 * LOOKAHEAD)
    cache.reuse([0])
    long = list(range(2000))
    cache.append(long)
    cache.append([7] * 10, generated=True)
    assert cache.reuse([*long, 7, 7, 8]) == 2002, "a little back is in the ring"
    cache.append([8])
    assert cache.reuse([*long, 7, 7, 8, 9]) == 2003, "what was once written behind counts, 2010 + LOOKAHEAD"
    assert cache.reuse([*long[:1800], 1]) == 1800
    assert cache.reuse([*long[:1700], 1]) == 0, "further back nothing is kept"
    cache.append(long[:1000])
    assert cache.reuse([*long[:600], 1]) == 600, "a new beginning"
