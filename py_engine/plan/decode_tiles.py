"""How attention of a small batch is divided in long contexts, where query heads share keys.

The #params of attention_decode_tiles.wgsl. Short contexts have too little work for it, and are left to
attention_decode.wgsl.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan.attention import Call
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Contexts, Plan
from py_engine.plan.shared_constants import MAX_STEPS

ABOVE = 512  # positions of a context above which it is used
HEADS = (4, 3, 8, 7, 6, 5, 2)  # query heads of a workgroup, the best first
LATENT_HEADS = (8, 12, 4, 16, 20, 7, 6, 5, 3, 2)  # the same where one row serves all heads
OCTET = 8  # positions of a thread's scores
SCORES = ((4, 16), (4, 8), (2, 16), (2, 8), (2, 4))  # (HT, SLICES), the best first
NONE = ("attention_decode_tiles", (0,))  # in Device.tiles: the device is faster without them
MAX_SUMS = 24  # vectors of a thread's sums, which are in registers
MAX_AHEAD = 2  # octets of a thread that are in registers before the scores


@dataclass(frozen=True)
class Tile:
    """`share`: workgroups that share a key/value head, each with as many of its query heads. `params`: #params."""

    share: int
    params: dict[str, int]


def tile(device: Device, call: Call, positions: int, plan: Plan) -> Tile | None:
    """The largest tile of `positions` positions that fits; None if there is none, or the kernel cannot do it.

    Without subgroups, keys that are not shared, windows, biases, q8_0 caches, encoders and contexts that begin after
    position 0 are left out.
    """
    n_head, n_head_kv, head_dim = call.heads
    options, group, latents = call.options, n_head // n_head_kv, call.cache.k is call.cache.v
    biased = options.slopes or options.relative or options.index_mask
    plain = not (options.window or options.part or options.first or biased)
    first = options.value_from if latents else 0
    whole = (
        head_dim % 4 == 0 and first % 4 == 0 and positions % OCTET == plan.page % OCTET == 0 and bool(first) == latents
    )
    if (
        device.software
        or NONE in device.tiles
        or plan.n_ctx <= ABOVE
        or not (plain and whole and group > 1 and call.cache.kind != "q8_0")
    ):
        return None
    loaded = 2 if call.cache.kind == "f16" and head_dim % 8 == 0 and not latents else 1  # vectors of a load
    for heads in LATENT_HEADS if latents else HEADS:
        if group % heads == 0 and (params := _params(device, heads, positions, head_dim, first, loaded)):
            return Tile(group // heads, params)
    return None


def left(shares: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """tiles.attention_shares() of attention_decode.wgsl, which has the contexts up to ABOVE."""
    short = [(share, up_to) for share, up_to in shares if 0 < up_to < ABOVE]
    return [*short, (shares[len(short)][0], 0)]


def last_contexts(batch: int, positions: int, above: int) -> Contexts:
    """When the last op of attention_decode.wgsl is dispatched, of contexts that are longer than `above`.

    The host knows a bound of the batch's longest context, which several steps may have in common. Other tokens may have
    short ones, and which kernel a token has does not depend on others: each kernel leaves out the other one's tokens.
    """
    return Contexts(positions, above, ABOVE + MAX_STEPS if batch == 1 else 0, or_unknown=True)


def _params(
    device: Device, heads: int, positions: int, head_dim: int, first: int, loaded: int
) -> dict[str, int] | None:
    chunks, columns = head_dim // 4 // loaded, (head_dim - first) // 4
    for per_thread, slices in SCORES:
        groups = -(-heads // per_thread)
        threads = slices * (positions // OCTET) * groups
        if slices > min(device.subgroup, chunks) or threads > device.max_threads or per_thread >= 2 * heads:
            continue
        vectors, teams = -(-columns // threads), 1
        while 2 * teams <= min(positions // OCTET, threads // columns):
            teams *= 2
        pitch = -(-chunks // slices) * slices * loaded
        used = groups * per_thread * (16 * pitch + 4 * positions + 4 * (positions // OCTET) + 4)
        if used <= device.max_workgroup_storage and vectors * heads <= MAX_SUMS:
            return {
                "HT": per_thread,
                "SLICES": slices,
                "VC": vectors,
                "TEAMS": teams,
                "AHEAD": min(MAX_AHEAD, positions // OCTET // teams),
                "FIRST": first,
            }
    return None
