"""The candidates for a model's kernels: what can be chosen by measurement, and between which variants.

A choice is made on ops like the model's own, of its types and shapes, on throwaway buffers (workloads.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from py_engine.plan import decode_tiles, matmul_tiles, small_batch_tiles, tiles
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Plan
from py_engine.tuning.workloads import (
    Attention,
    EncoderMatmul,
    Matrix,
    MediaAttention,
    Prefill,
    SmallBatch,
    Workload,
    attention_of,
    encoder_matmuls_of,
    matrices_of,
    media_attention_of,
    prefill_of,
    small_batches_of,
)

MIN_GAIN = 1.1  # how many times faster than the first another candidate must be; less would not show in a model
MIN_GAIN_OF_TILES = 1.03  # the same of tiles of many rows, whose times vary little
MAX_NMSE, MAX_NMSE_ROUNDED = 1e-5, 1e-4  # normalised mean squared error; the latter if activations are rounded to bytes
MAX_PRODUCTS = 4  # of an encoder that are measured: those of a block
MAX_MATRICES = 5  # matrices of a model that are measured, the most costly first
MAX_SMALL_BATCHES = 3  # the same of small batches


@dataclass(frozen=True)
class Candidate:
    """A device with some fields changed. `max_nmse`: the largest error accepted."""

    name: str
    device: Device
    max_nmse: float = MAX_NMSE


@dataclass(frozen=True)
class Choice:
    """Candidates for one workload; the first is the default. `apply` transfers one to the device.

    `min_gain`: how many times faster than the first another must be.
    """

    name: str
    workload: Workload
    candidates: list[Candidate]
    apply: Callable[[Device, Candidate], Device]
    min_gain: float = MIN_GAIN


def choices(plan: Plan, device: Device, forced: Iterable[str]) -> list[Callable[[Device], Choice | None]]:
    """The choices to make, in order. Each gets the device as chosen so far. `forced` fields do not change."""
    fixed = frozenset(forced)
    found: list[Callable[[Device], Choice | None]] = []
    matrices = matrices_of(plan)[:MAX_MATRICES]
    if matrices:
        found.append(partial(_subgroups, matrix=matrices[0], fixed=fixed))
        found.append(partial(_activations, matrix=matrices[0], fixed=fixed))
    if (prefill := prefill_of(plan, device)) is not None:
        found.append(partial(_prefill, workload=prefill, fixed=fixed))
    found += [partial(_matrix, matrix=m, fixed=fixed) for m in matrices]
    found += [partial(_encoder_matmul, workload=rows) for rows in encoder_matmuls_of(plan)[:MAX_PRODUCTS]]
    if (of_media := media_attention_of(plan)) is not None:
        found.append(partial(_media_attention, workload=of_media))
    if (attention := attention_of(plan, device)) is not None:
        found.insert(4, partial(_attention, workload=attention))  # not last: its cost grows with the context
    found += [partial(_small_batch, matrix=m) for m in small_batches_of(plan)[:MAX_SMALL_BATCHES]]
    return found


def _with_fields(device: Device, candidate: Candidate, names: Iterable[str]) -> Device:
    return replace(device, **{name: getattr(candidate.device, name) for name in names})


def _subgroups(device: Device, matrix: Matrix, fixed: frozenset[str]) -> Choice | None:
    """Reductions within subgroups, or through workgroup memory.

    If prefill uses subgroup matrices, subgroups are given up only if their results are wrong.
    """
    if not device.subgroup or "subgroup" in fixed:
        return None
    floats = replace(device, dot8=False)
    candidates = [
        Candidate(f"subgroups of {device.subgroup}", floats),
        Candidate("workgroup memory", replace(floats, subgroup=0, matrix=0)),
    ]
    return Choice(
        "sums",
        matrix,
        candidates,
        partial(_with_fields, names=("subgroup", "matrix")),
        float("inf") if device.matrix else MIN_GAIN,
    )


def _prefill(device: Device, workload: Prefill, fixed: frozenset[str]) -> Choice:
    """Subgroup matrices, activations in bytes, f16 or f32 in the matmul of many tokens; f16 or f32 in attention."""
    candidates = []
    rounds = device.dot8 and workload.sample.layout.dot8 and not workload.precise
    in_bytes = [device.int8, False] if rounds and "int8" not in fixed else [device.int8]
    for side in dict.fromkeys([device.matrix] if "matrix" in fixed else [device.matrix, 0]):
        for f16 in dict.fromkeys([device.f16] if "f16" in fixed else [device.f16, False]):
            for int8 in dict.fromkeys(in_bytes):
                if side and (not f16 or int8 != device.int8):
                    continue
                name = f"subgroup matrices of {side}" if side else "f16" if f16 else "f32"
                rounded = rounds and int8 and not side
                variant = replace(device, matrix=side, f16=f16, int8=int8)
                max_nmse = MAX_NMSE_ROUNDED if rounded else MAX_NMSE
                candidates.append(Candidate(f"bytes and {name}" if rounded else name, variant, max_nmse))
    return Choice("prefill", workload, candidates, partial(_with_fields, names=("matrix", "f16", "int8")))


def _activations(device: Device, matrix: Matrix, fixed: frozenset[str]) -> Choice | None:
    """Whether integer matrices are multiplied with activations rounded to bytes, or with floats."""
    if not device.dot8 or "dot8" in fixed or not tiles.dot8(device, matrix.weight):
        return None
    candidates = [Candidate("bytes", device, MAX_NMSE_ROUNDED), Candidate("floats", replace(device, dot8=False))]
    return Choice("activations", matrix, candidates, partial(_with_fields, names=("dot8",)))


def _matrix(device: Device, matrix: Matrix, fixed: frozenset[str]) -> Choice | None:
    """The tile of one of the model's matrices at decode, and whether it uses bytes or floats."""
    weight = matrix.weight
    default = tiles.dot8(device, weight)
    candidates = []
    for in_bytes in dict.fromkeys([default] if "dot8" in fixed else [default, False]):
        first = (int(in_bytes), *tiles.matvec(device, weight, in_bytes).values())
        for tile in [first, *(tiles.alternatives(device, weight, first) if in_bytes == default else [])]:
            variant = replace(device, tiles=((tiles.matvec_key(matrix.sample), tile),))
            name = f"{'bytes' if in_bytes else 'floats'}, {tile[1]} x {tile[2]} threads, {tile[3]} rows per thread"
            name += f", {tile[4]} units prefetched" if in_bytes else ""
            candidates.append(Candidate(name, variant, MAX_NMSE_ROUNDED if in_bytes else MAX_NMSE))
    key = tiles.matvec_key(weight)
    return Choice(matrix.name, matrix, candidates, lambda d, c: tiles.with_tile(d, key, c.device.tiles[0][1]))


def _small_batch(device: Device, matrix: SmallBatch) -> Choice:
    """The tile of one of the model's matrices in steps of several sequences, with the threads per row of one.

    A thread has a sum for each row and token, so it depends on the compiler how many rows are best.
    """
    weight, key = matrix.weight, small_batch_tiles.key(matrix.sample)
    in_bytes = tiles.dot8(device, weight)
    alone = (int(in_bytes), *tiles.matvec(device, weight, in_bytes).values())
    device = tiles.with_tile(device, tiles.matvec_key(matrix.sample), alone)
    rounds_x = in_bytes and small_batch_tiles.rounds(device, weight, matrix.normed)
    first = (int(in_bytes), *small_batch_tiles.matvec_small_batch(device, weight, in_bytes, rounds_x).values())
    candidates = []
    for tile in [first, *small_batch_tiles.alternatives(device, weight, first, rounds_x)]:
        name = f"{'bytes' if in_bytes else 'floats'}, {tile[1]} x {tile[2]} threads, {tile[3]} rows per thread"
        name += f", {tile[5]} tokens" + (", x staged" if tile[4] else "")
        name += f", {tile[6]} units prefetched" if tile[6] else ""
        max_nmse = MAX_NMSE_ROUNDED if in_bytes else MAX_NMSE
        candidates.append(Candidate(name, tiles.with_tile(device, key, tile), max_nmse))
    key_of_weight = small_batch_tiles.key(weight)
    return Choice(
        matrix.name, matrix, candidates, lambda d, c: tiles.with_tile(d, key_of_weight, dict(c.device.tiles)[key])
    )


def _encoder_matmul(device: Device, workload: EncoderMatmul) -> Choice | None:
    """The tile of a product of many rows."""
    kernel, tile = matmul_tiles.matmul(device, workload.n, workload.weight)
    if kernel != "matmul_matrix":
        return None
    first = tuple(tile[name] for name in matmul_tiles.MATMUL)
    key, candidates = matmul_tiles.matmul_key(workload.sample), []
    for other in [first, *matmul_tiles.matmul_alternatives(device, first)]:
        name = ", ".join(f"{name} {size}" for name, size in zip(matmul_tiles.MATMUL, other, strict=True))
        candidates.append(Candidate(name, tiles.with_tile(device, key, other)))
    key_of_weight = matmul_tiles.matmul_key(workload.weight)
    return Choice(
        workload.name, workload, candidates,
        lambda d, c: tiles.with_tile(d, key_of_weight, dict(c.device.tiles)[key]), MIN_GAIN_OF_TILES,
    )  # fmt: skip


def _media_attention(device: Device, workload: MediaAttention) -> Choice | None:
    """The tile of attention over all rows of a picture or sound."""
    kernel, tile = tiles.attention(device, workload.n, tiles.AttentionHeads(workload.head_dim, 1))
    if kernel != "attention_matrix":
        return None
    first = tuple(tile[name] for name in tiles.MEDIA_ATTENTION)
    key, candidates = tiles.media_attention_key(workload.head_dim), []
    for other in [first, *tiles.media_attention_alternatives(device, workload.head_dim, first)]:
        name = ", ".join(f"{name} {size}" for name, size in zip(tiles.MEDIA_ATTENTION, other, strict=True))
        candidates.append(Candidate(name, tiles.with_tile(device, key, other)))
    return Choice(
        workload.name, workload, candidates,
        lambda d, c: tiles.with_tile(d, key, dict(c.device.tiles)[key]), MIN_GAIN_OF_TILES,
    )  # fmt: skip


def _attention(device: Device, workload: Attention) -> Choice:
    """The tile of decode attention: positions of a tile, threads per position, splits of the context."""
    first = tiles.attention_decode(device, workload.model_n_ctx, workload.head_dim, workload.group)
    positions, threads, splits = first
    variants = [first, (positions, 1, splits), (positions, threads, max(1, splits // 2))]
    if not device.software:
        variants += [(32, min(4, max(1, device.subgroup)), splits), (32, threads, splits)]
        if workload.group * (128 * 16 + workload.head_dim * 4 + 1024) <= device.max_workgroup_storage:
            variants.append((128, 1, splits))
    candidates = []
    for tile in dict.fromkeys(variants):
        key = tiles.attention_key(workload.n_ctx, workload.head_dim, workload.group)
        name = f"{tile[0]} positions, {tile[1]} threads per position, {tile[2]} splits"
        candidates.append(Candidate(name, replace(device, tiles=((key, tile),))))
    without = replace(candidates[0].device, tiles=(*candidates[0].device.tiles, decode_tiles.NONE))
    if any(op.kernel == "attention_decode_tiles" for op in workload.planned(device)[0].lists["test"]):
        candidates.append(Candidate("no tiles of heads and positions", without))

    def chosen(of_model: Device, candidate: Candidate) -> Device:
        (_, tile), *more = candidate.device.tiles
        of_model = tiles.with_tile(of_model, of_attention, tile)
        return replace(of_model, tiles=(*of_model.tiles, *more))

    of_attention = tiles.attention_key(workload.model_n_ctx, workload.head_dim, workload.group)
    return Choice("attention", workload, candidates, chosen)
