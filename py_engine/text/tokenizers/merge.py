"""Greedy pair merging for BPE and SPM: join the best pair, the leftmost of equals, until none is left."""

import itertools
from heapq import heapify, heappop, heappush

HEAP_LENGTH = 256  # symbols above which a heap is faster than rescanning the list
_NEVER = float("inf")


def merge(parts: list[str], priority: dict[str, float], joiner: str) -> list[str]:
    """Merge neighbours a, b of `parts` while `priority` has a + joiner + b, the lowest value first."""
    if len(parts) > HEAP_LENGTH:
        return _merge_with_heap(parts, priority, joiner)
    get = priority.get
    ranks = [get(a + joiner + b, _NEVER) for a, b in itertools.pairwise(parts)]
    while ranks:
        best = min(ranks)
        if best == _NEVER:
            break
        i = ranks.index(best)
        parts[i] += parts.pop(i + 1)
        ranks.pop(i)
        if i < len(ranks):
            ranks[i] = get(parts[i] + joiner + parts[i + 1], _NEVER)
        if i:
            ranks[i - 1] = get(parts[i - 1] + joiner + parts[i], _NEVER)
    return parts


def _merge_with_heap(parts: list[str], priority: dict[str, float], joiner: str) -> list[str]:
    """merge() with a heap over a linked list: O(n log n)."""
    get = priority.get
    n = len(parts)
    before, after = list(range(-1, n - 1)), list(range(1, n + 1))
    size = [len(p) for p in parts]  # 0: merged into its left neighbour
    heap: list[tuple[float, int, int, int]] = []  # priority, left, right, joined length when pushed
    for i in range(n - 1):
        rank = get(parts[i] + joiner + parts[i + 1])
        if rank is not None:
            heap.append((rank, i, i + 1, size[i] + size[i + 1]))
    heapify(heap)
    while heap:
        _, i, j, length = heappop(heap)
        if not size[i] or not size[j] or size[i] + size[j] != length:
            continue
        parts[i] += parts[j]
        size[i], size[j] = length, 0
        after[i] = after[j]
        if after[i] < n:
            before[after[i]] = i
        for left, right in ((before[i], i), (i, after[i])):
            if left >= 0 and right < n:
                rank = get(parts[left] + joiner + parts[right])
                if rank is not None:
                    heappush(heap, (rank, left, right, size[left] + size[right]))
    return [p for p, s in zip(parts, size, strict=True) if s]
