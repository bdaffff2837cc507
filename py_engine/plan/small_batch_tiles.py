"""How matvec_small_batch.wgsl divides its work on a device, and which small product both mat-vec kernels can add.

The threads per row are matvec.wgsl's, so that a token gets the bits that it gets alone. The numbers here were measured
on H100s and H200s (docs/contributing/speed-of-several-requests.md).
"""

from __future__ import annotations

from py_engine.plan import quants, tiles
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Weight
from py_engine.plan.shared_constants import SHORT_BATCH, STAGED_GROUPS

# threads per row, rows in parallel, rows per thread, whether x is staged, tokens of a workgroup, prefetched units
SMALL_BATCH = ("TK", "TR", "R", "STAGED", "TOKENS", "AHEAD")
THREADS = 128  # of a workgroup
MAX_ROWS = 4  # of a thread, at most: it has a sum for each row and token
LEAST_TOKENS, MOST_TOKENS = 2, 8  # of a workgroup
MOST_AHEAD = 2  # units of a row that a thread prefetches, at most, if they are single groups
MOST_SUMS_WITH_TWO_AHEAD = 16  # of a thread: with more, it prefetches one unit
ROUNDED_COLS = 1280  # of x, up to which each workgroup rounds its tokens itself
ROUNDED_SMALL = (2048, 3072)  # without a norm also up to so many rows and columns
ROUNDED_SIZE = 1 << 23  # values of a matrix, up to which its workgroups round x themselves
LOW_RANK_LANES = 64  # threads that share a row of lib/low_rank_input.wgsl, at least


def key(weight: Weight) -> str:
    """The key in Device.tiles of a matrix's tile: in bytes, then SMALL_BATCH."""
    return f"small_batch {weight.type.name} {weight.rows}x{weight.cols}"


def matvec_small_batch(device: Device, weight: Weight, in_bytes: bool, rounds_x: bool = False) -> dict[str, int]:
    """The tile of matvec_small_batch.wgsl. `rounds_x`: workgroups round x themselves (rounds())."""
    tk = tiles.matvec(device, weight, in_bytes)["TK"]
    if (measured := dict(device.tiles).get(key(weight))) and measured[:2] == (int(in_bytes), tk):
        tile = dict(zip(SMALL_BATCH, measured[1:], strict=True)) | ({"STAGED": 0} if rounds_x else {})
        if workgroup_bytes(device, weight, tile, rounds_x) <= device.max_workgroup_storage:  # maybe less than it was
            return tile
    if not in_bytes:
        if device.software:
            return {"TK": tk, "TR": max(4, 64 // tk), "R": 1, "STAGED": 0, "TOKENS": MOST_TOKENS, "AHEAD": 0}
        return _occupying(device, weight, (tk, THREADS, MAX_ROWS), tiles.FULL_OCCUPANCY, 4)
    size, staged = weight.rows * weight.cols, _staged(device, weight, tk)
    if staged and not rounds_x:
        return staged
    if rounds_x:
        threads = min(device.max_threads, 2 * THREADS if weight.cols <= 1536 else 4 * THREADS)
        return _occupying(device, weight, (tk, threads, 2), tiles.FULL_OCCUPANCY) | {"AHEAD": 1}
    tokens = LEAST_TOKENS if size <= 1 << 22 else 4
    if weight.layout.codebook:  # unpacked once for all tokens
        tokens = MOST_TOKENS
    rows, ahead = _most(weight, True)
    tile = _occupying(device, weight, (tk, THREADS, rows), 2 * tiles.FULL_OCCUPANCY, tokens)
    units = quants.groups(weight.cols) // weight.layout.groups_per_thread
    if tile["R"] * tile["TOKENS"] > MOST_SUMS_WITH_TWO_AHEAD:
        ahead = 1
    return tile | {"AHEAD": max(1, min(ahead, units // tk))}


def _most(weight: Weight, in_bytes: bool) -> tuple[int, int]:
    """(rows of a thread, units of a row that it prefetches), at most.

    Fewer for pairs of groups: longer programs take longer in a step, although one kernel alone may be faster.
    """
    if not in_bytes:
        return MAX_ROWS, 0
    return (MAX_ROWS, MOST_AHEAD) if weight.layout.groups_per_thread == 1 else (MAX_ROWS // 2, 1)


def _occupying(
    device: Device, weight: Weight, sizes: tuple[int, int, int], workgroups: int, tokens: int = LEAST_TOKENS
) -> dict[str, int]:
    """The tile that fits and has so many workgroups. `sizes`: threads per row and in all, rows per thread at most.

    A workgroup has four rows at least, which RoPE rotates.
    """
    tk, threads, r = sizes
    while True:
        tile = {"TK": tk, "TR": max(threads // tk, 4 // r), "R": r, "STAGED": 0, "TOKENS": tokens, "AHEAD": 0}
        occupies = weight.rows * (SHORT_BATCH // tokens) >= workgroups * tile["TR"] * r
        if r == 1 or (occupies and _sum_bytes(device, tile, 0) <= device.max_workgroup_storage):
            return tile
        r //= 2


def _staged(device: Device, weight: Weight, tk: int) -> dict[str, int] | None:
    """The tile with x in workgroup memory, which pays for wide types only; None if it does not fit."""
    if not tiles.wide(weight):
        return None
    size = weight.rows * weight.cols
    tr = min(device.max_threads, 512 if weight.rows * tk >= tiles.FULL_OCCUPANCY * 1024 else 256) // tk
    r = 2 if weight.rows >= tiles.FULL_OCCUPANCY * 2 * tr else 1
    tokens = LEAST_TOKENS if size <= 1 << 21 else 4 if size <= 1 << 25 else MOST_TOKENS
    tile = {"TK": tk, "TR": tr, "R": r, "STAGED": 1, "TOKENS": tokens, "AHEAD": 0}
    return tile if _stages(device, weight, tile) else None


def rounds(device: Device, weight: Weight, normed: bool, threads: int = 0) -> bool:
    """Whether each workgroup rounds x of its tokens itself: for small matrices it takes less time than a dispatch.

    A sum of squares must have the order of matvec.wgsl's: it has a thread for each part of a group, and no more
    threads than lib/reduce.wgsl adds in turn. `threads`: of a workgroup of matvec.wgsl, if not its tile's.
    """
    rows, cols = ROUNDED_SMALL
    small = weight.cols <= ROUNDED_COLS or (not normed and weight.rows <= rows and weight.cols <= cols)
    small = small and weight.rows * weight.cols <= ROUNDED_SIZE
    if normed:
        one = tiles.matvec(device, weight, True)
        working = quants.groups(weight.cols) * (4 if device.subgroup >= 4 else 1)
        small = small and working <= (threads or one["TK"] * one["TR"]) <= 16 * device.subgroup
    tile = matvec_small_batch(device, weight, True, rounds_x=True)
    return small and _fits(device, weight, tile, True)


def _sum_bytes(device: Device, tile: dict[str, int], more: int) -> int:
    """Workgroup memory of the sums: of each row and token, and `more` of each token."""
    return 4 * tile["TOKENS"] * tile["TR"] * (tile["R"] + more) * tiles.parts_of_a_sum(device, tile["TK"])


def workgroup_bytes(device: Device, weight: Weight, tile: dict[str, int], rounds_x: bool = False) -> int:
    """Workgroup memory of the kernel."""
    groups = quants.groups(weight.cols) if rounds_x else STAGED_GROUPS if tile["STAGED"] else 0
    more = tile["TR"] * tile["TK"] * 4 if rounds_x else 0  # sums of squares, at most
    return _sum_bytes(device, tile, 1) + tile["TOKENS"] * groups * (quants.GROUP + 8) + more


def _stages(device: Device, weight: Weight, tile: dict[str, int]) -> bool:
    """Whether x can be STAGED: in turns of all threads of a row, and with the memory for it."""
    whole = tile["TK"] * max(1, tile["AHEAD"]) * weight.layout.groups_per_thread <= STAGED_GROUPS
    return whole and _fits(device, weight, tile, False)


def _fits(device: Device, weight: Weight, tile: dict[str, int], rounds_x: bool) -> bool:
    used = workgroup_bytes(device, weight, tile, rounds_x)
    return used <= device.max_workgroup_storage and 32 <= tile["TK"] * tile["TR"] <= device.max_threads


def alternatives(device: Device, weight: Weight, first: tuple[int, ...], rounds_x: bool) -> list[tuple[int, ...]]:
    """Valid tiles (in bytes, then SMALL_BATCH) near `first`."""
    in_bytes, tk, tr, r, staged, tokens, ahead = first
    most_rows, most_ahead = _most(weight, bool(in_bytes))
    found: list[tuple[int, ...]] = []
    for numbers in (
        (tr, r, staged, 2 * tokens, ahead), (tr, r, staged, tokens // 2, ahead), (tr, r, 1 - staged, tokens, staged),
        (tr, 2 * r, staged, tokens, ahead), (tr // 2, 2 * r, staged, tokens, ahead),
        (tr, r // 2, staged, tokens, ahead), (2 * tr, r // 2, staged, tokens, ahead),
        (2 * tr, r // 2, 1 - staged, tokens, staged), (tr, r // 2, staged, 2 * tokens, ahead),
        (2 * tr, r // 2, 1, 2 * tokens, 0), (tr, r, staged, tokens, ahead // 2), (tr, r, staged, tokens, ahead + 1),
    ):  # fmt: skip
        tile = dict(zip(SMALL_BATCH, (tk, *numbers), strict=True))
        valid = 1 <= tile["R"] <= most_rows and LEAST_TOKENS <= tile["TOKENS"] <= MOST_TOKENS
        valid = valid and tile["TR"] * tile["R"] % 4 == 0  # RoPE rotates four rows
        valid = valid and tile["AHEAD"] <= (0 if tile["STAGED"] else most_ahead)
        stages = not tile["STAGED"] or (in_bytes and not rounds_x and valid and _stages(device, weight, tile))
        if valid and stages and _fits(device, weight, tile, rounds_x):
            found.append((in_bytes, *tile.values()))
    return [tile for tile in dict.fromkeys(found) if tile != first]


def fits_beside(device: Device, weight: Weight) -> bool:
    """Whether workgroups of both kernels that multiply with a matrix can compute lib/low_rank_input.wgsl.

    They need LOW_RANK_LANES threads, workgroup memory for two sums of each part of a row, and one line of workgroups.
    """
    in_bytes = tiles.dot8(device, weight)
    one = tiles.matvec(device, weight, in_bytes)
    several = matvec_small_batch(device, weight, in_bytes)
    threads = one["TK"] * one["TR"]
    sums = 8 * threads // min(LOW_RANK_LANES, max(1, device.subgroup))
    used = tiles.workgroup_bytes(device, weight, in_bytes, (one["TK"], one["TR"], one["R"])) + sums
    if not in_bytes:  # else quantize_rows.wgsl computes it in small batches
        more = 8 * several["TK"] * several["TR"] // min(LOW_RANK_LANES, max(1, device.subgroup))
        used = max(used, _sum_bytes(device, several, 1) + more)
    rows = min(tile["TR"] * tile["R"] for tile in (one, several))
    fits = used <= device.max_workgroup_storage and weight.rows <= tiles.MAX_WORKGROUPS // 2 * rows
    return fits and min(threads, several["TK"] * several["TR"]) >= LOW_RANK_LANES


def low_rank_lanes(device: Device, weight: Weight, most: int) -> int:
    """Threads that share a row of lib/low_rank_input.wgsl in both kernels: one for each group, from 64 to `most`."""
    in_bytes = tiles.dot8(device, weight)
    for tile in (tiles.matvec(device, weight, in_bytes), matvec_small_batch(device, weight, in_bytes)):
        most = min(most, tile["TK"] * tile["TR"])
    lanes = LOW_RANK_LANES
    while 2 * lanes <= most and lanes < quants.groups(weight.cols):
        lanes *= 2
    return lanes
