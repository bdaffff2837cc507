"""The pieces of a picture: the parts that a recipe cuts out, or all of them below each other as one.

Two frames of a video may be one piece.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from py_engine.errors import WispError
from py_engine.media.encoders import Vision
from py_engine.media.prepared import Picture, Piece
from py_engine.media.recipe import Recipe, grid_of, n_tokens


def pieces(vision: Vision, plan: Recipe, parts: Sequence[bytes], hashes: Sequence[bytes | None]) -> tuple[Piece, ...]:
    """`parts`: the pixels of the recipe's cuts; `hashes`: their SHA-256, where the browser computed it."""
    found = tuple(
        Piece(cut.encoded, pixels, n_tokens(vision, cut.encoded), grid_of(vision, cut.encoded), sha256)
        for cut, pixels, sha256 in zip(plan.cuts, parts, hashes, strict=True)
    )
    if plan.fused > 1:
        return (
            tuple(_below(vision, found[i : i + plan.fused]) for i in range(0, len(found) - 1, plan.fused)) + found[-1:]
        )
    if plan.stacked is None:
        return found
    tokens = found[0].n_tokens + plan.stacked.in_lines
    return (replace(_below(vision, found), n_tokens=tokens, grid=(tokens, 1), stacked=plan.stacked),)


def paired(vision: Vision, first: Picture, second: Picture) -> Picture:
    """Two frames of a video as one picture. WispError if the projector takes no pairs, or they are not equal pieces."""
    if not vision.pairs:
        raise WispError("This projector reads each frame of a video by itself.", "invalid_value", param="media")
    one, two = first.pieces[0], second.pieces[0]
    if one.size != two.size or len(first.pieces) + len(second.pieces) > 2:
        what = "have different sizes" if one.size != two.size else "are cut into tiles"
        raise WispError(f"The two frames of a pair {what}.", "invalid_value", param="media")
    hashes = one.sha256, two.sha256
    sha256 = hashlib.sha256(hashes[0] + hashes[1]).digest() if hashes[0] and hashes[1] else None
    return replace(first, pieces=(replace(one, pixels=one.pixels + two.pixels, sha256=sha256, paired=True),))


def _below(vision: Vision, parts: Sequence[Piece]) -> Piece:
    """Parts of one size below each other as one piece."""
    (width, height), hashes = parts[0].size, [part.sha256 for part in parts if part.sha256]
    size = width, height * len(parts)
    sha256 = hashlib.sha256(b"".join(hashes)).digest() if len(hashes) == len(parts) else None
    pixels = b"".join(part.pixels for part in parts)
    return Piece(size, pixels, n_tokens(vision, size), grid_of(vision, size), sha256)
