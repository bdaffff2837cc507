"""How the work of a kernel is cut for a device: the #params of matvec, matmul and attention, measured to be good.

Larger tiles load less for each product, smaller ones give every core of a GPU something to do. The workgroup's memory
bounds both. What was measured on the device itself (tuning.py) goes before what holds for most.
"""

from __future__ import annotations

from dataclasses import replace

from py_engine.plan import quants
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Weight

MATVEC = ("TK", "TR", "R", "AHEAD")
FILLING = 256  # workgroups that keep every core of a GPU busy
BUSY = 1 << 17  # threads, at most, that the rows of a matrix are spread over, where each has one row


def matvec_key(weight: Weight) -> str:
    """Where Device.tiles has (in bytes, TK, TR, R, AHEAD) of a matrix."""
    return f"matvec {weight.type.name} {weight.rows}x{weight.cols}"


def attention_key(n_ctx: int, head_dim: int, group: int) -> str:
    """Where Device.tiles has what attention_decode() gives."""
    return f"attention_decode {n_ctx} {head_dim} {group}"


def adopt(device: Device, key: str, tile: tuple[int, ...]) -> Device:
    """The device with a measured tile."""
    return replace(device, tiles=(*((k, v) for k, v in device.tiles if k != key), (key, tile)))


def dot8(device: Device, weight: Weight) -> bool:
    """Whether the matrix meets its vector as bytes: integer weights, and x fits the workgroup's memory."""
    if measured := dict(device.tiles).get(matvec_key(weight)):
        return bool(measured[0])
    if not (device.dot8 and weight.layout.dot8):
        return False
    tile = matvec(device, weight, True)
    return _memory(device, weight, True, tile["TK"], tile["TR"], tile["R"]) <= device.max_workgroup_storage


def _memory(device: Device, weight: Weight, in_bytes: bool, along: int, across: int, rows: int) -> int:
    """Bytes of a workgroup of matvec.wgsl: sums of its rows, and x as bytes with what sums its squares."""
    lanes = -(-along // device.subgroup) if device.subgroup else along
    x = quants.groups(weight.cols) * (quants.GROUP + 8) + 4 * along * across if in_bytes else 0
    return 4 * (rows + 1) * across * lanes + x


def matvec(device: Device, weight: Weight, in_bytes: bool) -> dict[str, int]:
    """matvec.wgsl: TK threads share a row, and each has R rows, so that x is loaded once for them."""
    if (measured := dict(device.tiles).get(matvec_key(weight))) and bool(measured[0]) == in_bytes:
        return dict(zip(MATVEC if in_bytes else MATVEC[:3], measured[1:], strict=False))
    groups = quants.groups(weight.cols)
    along = 4
    while along < 32 and along * 2 <= groups:
        along *= 2
    if not in_bytes:
        if device.software:
            return {"TK": along, "TR": 64 // along, "R": 4}
        along = 64 if groups >= 64 and weight.rows <= 4096 else along
        across, rows = max(1, 128 // along), 8
        while rows > 2 and weight.rows < 2 * FILLING * across * rows:
            rows //= 2
        return {"TK": along, "TR": across, "R": rows}
    units, threads = groups // weight.layout.groups_per_thread, _threads(device, weight)
    rows = 2 if weight.rows >= 6144 else 1
    along = max(4, 8 // weight.layout.groups_per_thread)
    while along < min(16 if rows > 1 else 64, units // 2) and weight.rows * along * 2 <= BUSY * rows:
        along *= 2
    while threads > 128 and weight.rows * along < 32 * threads * rows:
        threads //= 2
    return {"TK": along, "TR": threads // along, "R": rows, "AHEAD": _ahead(weight, along)}


def _threads(device: Device, weight: Weight) -> int:
    """Of a workgroup, each of which rounds x anew: the more, the longer x is, or the sooner the weights are met."""
    wanted = 1024 if weight.cols >= 6144 else 256 * weight.layout.groups_per_thread
    while wanted > device.max_threads:
        wanted //= 2
    return wanted


def _ahead(weight: Weight, along: int) -> int:
    """Units of weights of a row that a thread has on their way: some 72 bytes, where there are not threads enough."""
    if weight.rows > 8192:
        return 1
    layout = weight.layout
    size = layout.groups_per_thread * quants.GROUP * layout.block_bytes // layout.block
    return max(1, min(-(-quants.groups(weight.cols) // layout.groups_per_thread // along), 72 // size))


def matvec_small_batch(device: Device, weight: Weight, in_bytes: bool) -> dict[str, int]:
    """matvec_small_batch.wgsl: as matvec(); more rows of a thread would not fit its registers."""
    groups, along = quants.groups(weight.cols), 4
    wide = 64 if groups >= 256 else 32
    while along < (wide if in_bytes and weight.rows <= 4096 and groups >= 64 else 16) and along * 2 <= groups:
        along *= 2
    if not in_bytes:
        return {"TK": along, "TR": 64 // along, "R": 2}
    across, rows = (256 if along > 16 else 128) // along, 2 if along == 64 else 4
    while rows > 1 and weight.rows < FILLING * across * rows:
        rows //= 2
    return {"TK": along, "TR": across, "R": rows}


def alternatives(device: Device, weight: Weight, tile: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Other tiles than `tile` (in bytes, TK, TR, R, AHEAD) that the kernel can have, one of its numbers halved or
    doubled: the threads of a row, the rows of a thread; in bytes also the threads, and the units ahead.
    """
    in_bytes, along, across, each, ahead = (*tile, 0)[:5]
    threads, groups = along * across, quants.groups(weight.cols)
    found: list[tuple[int, ...]] = []
    units = groups // (weight.layout.groups_per_thread if in_bytes else 1)
    for a, r, n, w in (
        (along // 2, each, threads, ahead), (along * 2, each, threads, ahead), (along, each * 2, threads, ahead),
        (along, each // 2, threads, ahead), (along, each, threads // 2, ahead), (along, each, threads * 2, ahead),
        (along, each, threads, ahead * 2), (along, each, threads, ahead // 2),
    ):  # fmt: skip
        if not 4 <= a <= min(64, n, units) or not 1 <= r <= min(8, a):
            continue
        used = _memory(device, weight, bool(in_bytes), a, n // a, r)
        rows = n // a * r  # of a workgroup: as many as threads at most, and four end to end
        fits = rows % 4 == 0 and 64 <= n <= device.max_threads and used <= device.max_workgroup_storage
        if fits and (not in_bytes or 1 <= w <= max(1, -(-units // a))) and (in_bytes or n == threads):
            found.append((in_bytes, a, n // a, r, *((w,) if in_bytes else ())))
    return [cut for cut in dict.fromkeys(found) if cut != tile]


def matmul(device: Device, batch: int, rows: int) -> tuple[str, dict[str, int]]:
    """The kernel for batches of `batch` tokens, and its tile of TM tokens x TN rows."""
    if device.matrix and batch >= 64:
        sides = {"SIDE": device.matrix, "LANES": device.subgroup, "SM": 2, "SN": 2}
        if rows // 128 * (batch // 128) >= FILLING:
            return "matmul_matrix", {"TM": 128, "TN": 128, "DEPTH": 32} | sides
        return "matmul_matrix", {"TM": 64, "TN": 64, "DEPTH": 64} | sides
    size = 2 if device.f16 else 4
    if batch >= 64 and not device.software and (64 + 64) * 36 * size <= device.max_workgroup_storage:
        return "matmul", {"TM": 64, "TN": 64, "MM": 4, "MN": 4}
    return "matmul", {"TM": 32, "TN": 64, "MM": 4, "MN": 4}


def attention(device: Device, batch: int, head_dim: int, group: int, causal: bool = True) -> tuple[str, dict[str, int]]:
    """The kernel for batches of tokens whose `group` query heads share a key, and its tile of TQ tokens x TS
    positions: as large as the workgroup's memory holds. Not `causal`: that of encoders.
    """
    side = device.matrix if causal else 0
    if side and batch >= 64 and head_dim % (2 * side) == 0 and head_dim <= 128 and group <= 32:
        return "attention_matrix", {"TQ": 32 // group, "ROWS": 32, "TS": 32, "SIDE": side, "LANES": device.subgroup}
    size = 2 if device.f16 else 4
    most = max(1, 16 // group)
    threads = 64 if head_dim <= 128 else 128
    for tokens, positions in [(most, n) for n in (32, 16, 8, 4)] + [(1, 4)]:
        rows = group * tokens
        used = (rows + positions) * (head_dim + 4) * size + rows * (positions + 3) * 4
        if used <= device.max_workgroup_storage:
            break
    return "attention", {"TQ": tokens, "TS": positions, "WG": max(threads, head_dim // 4)}


def attention_loads(kv: str, head_dim: int, positions: int, threads: int) -> dict[str, int]:
    """attention_decode.wgsl: what a thread has on its way at once, as much as its registers hold."""
    wide = {"f16": 8, "q8_0": 16}.get(kv, 4)
    chunks = head_dim // (wide if head_dim % wide == 0 else 4)
    vectors, all_threads = head_dim // 4, positions * threads
    lanes, columns = max(1, all_threads // vectors), -(-vectors // all_threads)
    return {"KEYS": min(8, -(-chunks // threads)), "VALUES": min(-(-positions // lanes), 16 // columns)}


def attention_decode(device: Device, n_ctx: int, head_dim: int, group: int) -> tuple[int, int, int]:
    """(positions of a tile, threads of a position, shares): a short context in one share, a long one over enough
    workgroups to fill a GPU.
    """
    if measured := dict(device.tiles).get(attention_key(n_ctx, head_dim, group)):
        positions, threads, shares = measured
        return positions, threads, shares
    if device.software:
        return 32, 1, max(1, min(8, -(-n_ctx // 32)))
    threads = 2 if device.subgroup >= 2 else 1
    if group * (64 * threads * 16 + head_dim * 4 + 512) > device.max_workgroup_storage:
        threads = 1
    return 64, threads, max(1, min(64, -(-n_ctx // 64)))
