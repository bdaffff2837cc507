"""The pieces of a picture: the parts that a recipe cuts out, or all of them below each other as one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from py_engine.media.encoders import Vision
from py_engine.media.prepared import Piece
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


def _below(vision: Vision, parts: Sequence[Piece]) -> Piece:
    """Parts of one size below each other as one piece."""
    (width, height), hashes = parts[0].size, [part.sha256 for part in parts if part.sha256]
    size = width, height * len(parts)
    sha256 = hashlib.sha256(b"".join(hashes)).digest() if len(hashes) == len(parts) else None
    pixels = b"".join(part.pixels for part in parts)
    return Piece(size, pixels, n_tokens(vision, size), grid_of(vision, size), sha256)
