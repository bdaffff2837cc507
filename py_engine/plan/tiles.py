"""How a kernel's work is divided for a device: the #params of matvec and attention.

matmul_tiles.py has those of matmul, attention_tiles.py those of attention.wgsl, small_batch_tiles.py those of
matvec_small_batch.

Larger tiles load less per product; smaller ones occupy every core of a GPU. Workgroup memory bounds both. The defaults
here were measured to be good on several devices. A tile measured on the device itself (tuning/) takes precedence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.plan import attention_tiles, quants
from py_engine.plan.kernels import Device
from py_engine.plan.pages import PAGE
from py_engine.plan.plan import Weight

MEDIA_ATTENTION = ("ROWS", "STRIP", "TS")  # of attention_matrix.wgsl
MATVEC = ("TK", "TR", "R", "AHEAD")  # threads per row, rows in parallel, rows per thread, prefetched units
LARGE_ATTENTION = 128  # rows of a tile of attention_matrix.wgsl from which on smaller ones may be faster
FULL_OCCUPANCY = 256  # workgroups that keep every core of a GPU busy
WIDE_BYTES = 0.75  # bytes of a weight from which on a type is wide()
MAX_HEAD_DIM = 512  # up to which all query heads of a key head are in one workgroup
# (values of the query heads that a workgroup of decode attention has at most, positions of a context up to which that
# pays), of one token and of several
SHARED_VALUES = ((128, 1024), (256, 4096), (512, 1 << 30))
SHARED_VALUES_OF_SEVERAL = ((128, 256), (256, 1024), (512, 1 << 30))
MAX_WIDE_HEADS = 4  # of wider heads, query heads of a workgroup: more would leave cores of a GPU idle
SMALL_MATRIX_ROWS = 512  # of a matrix whose threads need no rows in common: there is nothing to hide loads with
MAX_WORKGROUPS = 65535  # WebGPU's maxComputeWorkgroupsPerDimension
MAX_ROW_THREADS = 1 << 17  # threads over all rows of a matrix, at most, if each computes one row


def matvec_key(weight: Weight) -> str:
    """The key in Device.tiles of a matrix's tile (in bytes, TK, TR, R, AHEAD)."""
    return f"matvec {weight.type.name} {weight.rows}x{weight.cols}"


def attention_key(n_ctx: int, head_dim: int, group: int) -> str:
    """The key in Device.tiles of the result of attention_decode()."""
    return f"attention_decode {n_ctx} {head_dim} {group}"


def media_attention_key(head_dim: int) -> str:
    """The key in Device.tiles of the tile of attention over all rows of a picture or sound: MEDIA_ATTENTION."""
    return f"attention {head_dim}"


def with_tile(device: Device, key: str, tile: tuple[int, ...]) -> Device:
    """The device with a measured tile."""
    return replace(device, tiles=(*((k, v) for k, v in device.tiles if k != key), (key, tile)))


def dot8(device: Device, weight: Weight) -> bool:
    """Whether to multiply with x rounded to bytes: the weights are integers, and x fits into workgroup memory."""
    if measured := dict(device.tiles).get(matvec_key(weight)):
        return bool(measured[0])
    if not (device.dot8 and weight.layout.dot8):
        return False
    tile = matvec(device, weight, True)
    return workgroup_bytes(device, weight, True, (tile["TK"], tile["TR"], tile["R"])) <= device.max_workgroup_storage


def workgroup_bytes(device: Device, weight: Weight, in_bytes: bool, tile: tuple[int, int, int]) -> int:
    """Workgroup memory of matvec.wgsl with (TK, TR, R): sums of its rows; in bytes also x and its sum of squares."""
    tk, tr, r = tile
    x = quants.groups(weight.cols) * (quants.GROUP + 8) + 4 * tk * tr if in_bytes else 0
    return 4 * (r + 1) * tr * parts_of_a_sum(device, tk) + x


def parts_of_a_sum(device: Device, tk: int) -> int:
    """Parts that a row's sum over TK threads has in workgroup memory: one per subgroup, or per thread."""
    return -(-tk // device.subgroup) if device.subgroup else tk


def matvec(device: Device, weight: Weight, in_bytes: bool) -> dict[str, int]:
    """The tile of matvec.wgsl: TK threads share a row. A thread computes R rows, so it loads x once for all of them."""
    if (measured := dict(device.tiles).get(matvec_key(weight))) and bool(measured[0]) == in_bytes:
        return dict(zip(MATVEC if in_bytes else MATVEC[:3], measured[1:], strict=False))
    groups = quants.groups(weight.cols)
    tk = 4
    while tk < 32 and tk * 2 <= groups:
        tk *= 2
    if not in_bytes:
        if device.software:
            return {"TK": tk, "TR": 64 // tk, "R": 4}
        if weight.rows <= SMALL_MATRIX_ROWS and device.max_threads >= 256:
            return {"TK": 64 if groups >= 32 else tk, "TR": 4, "R": 1}
        tk = 64 if groups >= 64 and weight.rows <= 4096 else tk
        tr, r = max(1, 128 // tk), 8
        while r > 2 and weight.rows < 2 * FULL_OCCUPANCY * tr * r:
            r //= 2
        return {"TK": tk, "TR": tr, "R": r}
    units, threads = groups // weight.layout.groups_per_thread, _matvec_threads(device, weight)
    r = 2 if weight.rows >= 6144 else 1
    tk = max(4, 8 // weight.layout.groups_per_thread)
    while tk < min(16 if r > 1 else 64, units // 2) and weight.rows * tk * 2 <= MAX_ROW_THREADS * r:
        tk *= 2
    if r > 1 and weight.layout.groups_per_thread == 1 and not wide(weight):  # others have long programs
        fits = workgroup_bytes(device, weight, True, (tk, threads // tk, 4)) <= device.max_workgroup_storage
        r = 4 if fits else r
    while threads > 128 and weight.rows * tk < 32 * threads * r:
        threads //= 2
    return {"TK": tk, "TR": threads // tk, "R": r, "AHEAD": _prefetched_units(weight, tk)}


def _matvec_threads(device: Device, weight: Weight) -> int:
    """Threads of a workgroup in bytes, which rounds all of x: one for each part of a group that a thread rounds.

    That is a quarter with subgroups. Without them it is a group, but sums and loads need as many threads.
    """
    quarters = 4 * quants.groups(weight.cols)
    threads = max(128, min(1024, 1 << (quarters - 1).bit_length()))
    while threads > device.max_threads:
        threads //= 2
    return threads


def _prefetched_units(weight: Weight, tk: int) -> int:
    """Units of a row that a thread prefetches: about 72 bytes, if there are too few threads to hide the latency."""
    if weight.rows > 8192:
        return 1
    layout = weight.layout
    size = layout.groups_per_thread * quants.GROUP * layout.block_bytes // layout.block
    return max(1, min(-(-quants.groups(weight.cols) // layout.groups_per_thread // tk), 72 // size))


def alternatives(device: Device, weight: Weight, tile: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Valid tiles that differ from `tile` (in bytes, TK, TR, R, AHEAD) in one number, halved or doubled.

    The numbers are the threads per row, the rows per thread and, in bytes, the threads and the prefetched units.
    """
    in_bytes, tk, tr, r, ahead = (*tile, 0)[:5]
    threads, groups = tk * tr, quants.groups(weight.cols)
    units = groups // (weight.layout.groups_per_thread if in_bytes else 1)
    found: list[tuple[int, ...]] = []
    for new_tk, new_r, new_threads, new_ahead in (
        (tk // 2, r, threads, ahead), (tk * 2, r, threads, ahead), (tk, r * 2, threads, ahead),
        (tk, r // 2, threads, ahead), (tk, r, threads // 2, ahead), (tk, r, threads * 2, ahead),
        (tk, r, threads, ahead * 2), (tk, r, threads, ahead // 2),
    ):  # fmt: skip
        if not 4 <= new_tk <= min(64, new_threads, units) or not 1 <= new_r <= min(8, new_tk):
            continue
        new_tr = new_threads // new_tk
        used = workgroup_bytes(device, weight, bool(in_bytes), (new_tk, new_tr, new_r))
        # a workgroup has at most as many rows as threads, in fours
        fits = new_tr * new_r % 4 == 0 and 64 <= new_threads <= device.max_threads
        fits = fits and used <= device.max_workgroup_storage
        if in_bytes:
            if fits and 1 <= new_ahead <= max(1, -(-units // new_tk)):
                found.append((in_bytes, new_tk, new_tr, new_r, new_ahead))
        elif fits and new_threads == threads:
            found.append((in_bytes, new_tk, new_tr, new_r))
    return [other for other in dict.fromkeys(found) if other != tile]


def wide(weight: Weight) -> bool:
    """Whether a thread that prefetches weights of this type needs too many registers for it: Q6_K and wider."""
    return weight.layout.block_bytes >= WIDE_BYTES * weight.layout.block


@dataclass(frozen=True)
class AttentionHeads:
    """Heads of attention: `head_dim` dimensions of a key, and how many query heads share one (`group`).

    `value_dim`: dimensions of a value; 0: as of a key. `page`: positions of a page of the cache, which tiles divide.
    """

    head_dim: int
    group: int
    value_dim: int = 0
    page: int = PAGE


def attention(device: Device, batch: int, heads: AttentionHeads, *, matrix: bool = True) -> tuple[str, dict[str, int]]:
    """The kernel for batches of tokens, and its tile of TQ tokens x TS positions: the largest that fits.

    `matrix`: the kernel with subgroup matrices may be used.
    """
    head_dim, group = heads.head_dim, heads.group
    side = device.matrix if matrix else 0
    if side and batch >= 64 and head_dim <= 256:
        dim = -(-head_dim // side) * side
        sides = {"SIDE": side, "LANES": device.subgroup, "DIM": dim}
        if group == 1 and (measured := dict(device.tiles).get(media_attention_key(head_dim))):
            tile = dict(zip(MEDIA_ATTENTION, measured, strict=True))
            return "attention_matrix", tile | {"TQ": tile["ROWS"]} | sides
        for rows, positions in _attention_matrix_tiles(dim):
            used = _attention_matrix_bytes(dim, rows, positions)
            if group <= rows and used <= device.max_workgroup_storage:
                return "attention_matrix", {"TQ": rows // group, "ROWS": rows, "STRIP": 16, "TS": positions} | sides
    return "attention", attention_tiles.attention(device, head_dim, heads.value_dim or head_dim, group, heads.page)


def _attention_matrix_tiles(dim: int) -> list[tuple[int, int]]:
    """(rows, positions) of tiles of attention_matrix.wgsl, as measured on H100 and H200, the best first."""
    if dim <= 64:
        return [(64, 32)]
    if dim <= 128:
        return [(128, 16 if dim <= 80 else 32), (64, 32)]
    return [(64, 16)]


def attention_rows(rows: int, group: int, batch: int, heads: int) -> int:
    """Rows of a tile of attention_matrix.wgsl in batches of `batch` tokens: `rows` or fewer. `heads`: key heads.

    Of few tiles, each of a GPU's cores has one at most, and a smaller one takes less time.
    """
    occupied = heads * -(-batch * group // rows) >= FULL_OCCUPANCY * 3 // 8
    return rows // 2 if not occupied and rows >= LARGE_ATTENTION and group <= rows // 2 else rows


def attention_share(device: Device, head_dim: int, group: int) -> int:
    """Workgroups that share a key head: the fewest with at most MAX_WIDE_HEADS heads that fit into workgroup memory.

    1 for most models.
    """
    if head_dim <= MAX_HEAD_DIM:
        return 1
    size = 2 if device.f16 else 4
    for share in range(1, group + 1):
        heads = group // share
        prefill = (heads + 4) * (head_dim + 4) * size + heads * 28
        decode = heads * (4 * head_dim + 1024)
        if group % share == 0 and heads <= MAX_WIDE_HEADS and max(prefill, decode) <= device.max_workgroup_storage:
            return share
    return group


def attention_shares(device: Device, head_dim: int, group: int, batch: int, window: int) -> list[tuple[int, int]]:
    """(workgroups that share `group` query heads, positions of a context up to which they do), the last one for any.

    A short context is few workgroups, and attention takes as long as one of them. Where there are more, each with fewer
    heads, keys and values are loaded more than once, from the GPU's cache, but each program is shorter. A head's result
    has the same bits. `window`: positions that a token sees, 0: all.
    """
    if device.software:
        return [(1, 0)]
    divisors, found = [n for n in range(1, group + 1) if group % n == 0], list[tuple[int, int]]()
    for values, up_to in SHARED_VALUES if batch == 1 else SHARED_VALUES_OF_SEVERAL:
        share = next((n for n in divisors if group // n * head_dim <= values), group)
        if found and head_dim > MAX_HEAD_DIM:  # latents are long, and one row serves all heads
            share = 1
        if found and found[-1][0] == share:
            found.pop()
        found.append((share, up_to))
        if window and up_to >= window:
            break
    return [*found[:-1], (found[-1][0], 0)]


def media_attention_alternatives(device: Device, head_dim: int, tile: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Other tiles of attention over all rows."""
    dim, found = -(-head_dim // device.matrix) * device.matrix, list[tuple[int, ...]]()
    for rows, strip, positions in ((64, 16, 32), (64, 32, 32), (128, 16, 32), (128, 32, 32), (64, 16, 64)):
        fits = _attention_matrix_bytes(dim, rows, positions) <= device.max_workgroup_storage
        if fits and rows // strip * device.subgroup <= device.max_threads and (rows, strip, positions) != tile:
            found.append((rows, strip, positions))
    return found


def _attention_matrix_bytes(head_dim: int, rows: int, positions: int) -> int:
    """Workgroup memory of attention_matrix.wgsl: keys and values, scores, weights, a factor per row, a flag."""
    return 4 * positions * (head_dim + 8) + rows * (4 * (positions + 4) + 2 * (positions + 8) + 4) + 16


def combine_lanes(device: Device, head_dim: int) -> int:
    """Splits that a workgroup of attention_combine.wgsl reads at a time. Latents have many: all heads share a row."""
    if device.software:
        return max(1, min(2, 1024 // head_dim))
    if head_dim > MAX_HEAD_DIM:
        vectors = head_dim // 4
        fits = min(device.max_threads // vectors, device.max_workgroup_storage // (2 * 20 * vectors))
        return max(1, min(4, fits))
    return min(16, 1024 // head_dim)


def attention_loads(device: Device, kv: str, head_dim: int, positions: int, threads: int) -> dict[str, int]:
    """Loads that a thread of attention_decode.wgsl has in flight: as many as its registers hold.

    A software GPU gains nothing by them, and takes many times as long to compile them.
    """
    if device.software:
        return {"KEYS": 1, "VALUES": 1}
    wide = {"f16": 8, "q8_0": 16}.get(kv, 4)
    chunks = head_dim // (wide if head_dim % wide == 0 else 4)
    vectors, all_threads = head_dim // 4, positions * threads
    lanes, columns = max(1, all_threads // vectors), -(-vectors // all_threads)
    return {"KEYS": min(8, -(-chunks // threads)), "VALUES": min(-(-positions // lanes), 16 // columns)}


def attention_decode(device: Device, n_ctx: int, head_dim: int, group: int) -> tuple[int, int, int]:
    """(positions of a tile, threads per position, splits of the context).

    A short context is one split. A long one is split over enough workgroups to occupy a GPU.
    """
    if measured := dict(device.tiles).get(attention_key(n_ctx, head_dim, group)):
        positions, threads, splits = measured  # maybe with subgroups, which were found to be wrong since
        return positions, min(threads, max(1, device.subgroup)), splits
    if device.software:
        return 32, 1, max(1, min(8, -(-n_ctx // 32)))
    if head_dim > MAX_HEAD_DIM:  # latents: a short context has too few tiles of the usual size
        return 32, max(1, min(4, device.subgroup)), max(1, min(128, -(-n_ctx // 32)))
    threads = 2 if device.subgroup >= 2 else 1
    if group * (64 * threads * 16 + head_dim * 4 + 512) > device.max_workgroup_storage:
        threads = 1
    return 64, threads, max(1, min(64, -(-n_ctx // 64)))
