"""Greedy pair merging for BPE and SPM: join the best pair, the leftmost of equals, until none is left."""

import itertools
from heapq import heapify, heappop, heappush

HEAP_LENGTH = 256  # symbols above which a heap is faster than rescanning the list
RUN_LENGTH = 4096  # symbols from which it is worth looking for few pairs that repeat
MAX_PAIRS = 64  # different ones
MAX_SCANS = 10  # of the whole text
_NEVER = float("inf")


def merge(parts: list[str], priority: dict[str, float], joiner: str) -> list[str]:
    """Merge neighbours a, b of `parts` while `priority` has a + joiner + b, the lowest value first."""
    if len(parts) > HEAP_LENGTH:
        if len(parts) > RUN_LENGTH:
            parts = _merge_runs(parts, priority, joiner)
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


def _merge_runs(parts: list[str], priority: dict[str, float], joiner: str) -> list[str]:
    """Begin merge() where a few pairs repeat: join each pair everywhere at once, with the text's symbols as characters.

    That is the order of merge() as long as one pair is the best, and joining it makes none that is as good.
    """
    names = list(dict.fromkeys(parts))
    if len(names) == 1 and not joiner and (equal := _equal_runs(names[0], len(parts), priority)):
        return equal
    if len(names) > MAX_PAIRS:
        return parts
    code = {name: chr(i) for i, name in enumerate(names)}
    text = "".join(map(code.__getitem__, parts))

    def rank(left: str, right: str) -> float:
        return priority.get(names[ord(left)] + joiner + names[ord(right)], _NEVER)

    left = MAX_SCANS * len(text)
    while (left := left - len(text)) > 0:
        pairs = set(itertools.pairwise(text))
        if len(pairs) > MAX_PAIRS:
            break
        best, second = ([*sorted((rank(a, b), a, b) for a, b in pairs)] + [(_NEVER, "", "")] * 2)[:2]
        if best[0] == second[0]:  # or nothing can be joined
            break
        lowest, a, b = best
        joined = names[ord(a)] + names[ord(b)]
        if joined not in code:
            code[joined] = chr(len(names))
            names.append(joined)
        new = code[joined]
        before, after = {x for x, y in pairs if y == a} | {new}, {y for x, y in pairs if x == b} | {new}
        if min(*(rank(x, new) for x in before), *(rank(new, y) for y in after), _NEVER) <= lowest:
            break
        text = text.replace(a + b, new)
    return [names[ord(char)] for char in text]


def _equal_runs(symbol: str, n: int, priority: dict[str, float]) -> list[str] | None:
    """merge() of n times one symbol where all runs of it up to a length are equally good: each grows to that length.

    None where that is not so. Vocabularies have runs of spaces in this way.
    """
    best, longest = priority.get(symbol * 2), 2
    while longest < n and best is not None and priority.get(symbol * (longest + 1)) == best:
        longest += 1
    if longest == 2 or any(priority.get(symbol * m) is not None for m in range(longest + 1, 2 * longest + 1)):
        return None
    return [symbol * longest] * (n // longest) + ([symbol * (n % longest)] if n % longest else [])
