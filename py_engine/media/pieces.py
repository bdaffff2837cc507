"""The pieces of a picture: the parts that a recipe cuts out, or all of them below each other as one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from py_engine.media.encoders import Vision
from py_engine.media.prepared import Piece
from py_engine.media.recipe import Recipe, grid_of, n_tokens


def pieces(vision: Vision, plan: Recipe, parts: Sequence[bytes], hashes: Sequence[bytes | None]) -> tuple[Piece, ...]:
    """`parts`: the pixels of the recipe's cuts; `hashes`: their SHA-256, where the browser computed it."""
    found = tuple(
        Piece(cut.size, pixels, n_tokens(vision, cut.size), grid_of(vision, cut.size), sha256)
        for cut, pixels, sha256 in zip(plan.cuts, parts, hashes, strict=True)
    )
    if plan.stacked is None:
        return found
    (width, height), stacked = found[0].size, plan.stacked
    tokens = found[0].n_tokens + stacked.in_lines
    of_all = [each for each in hashes if each is not None]
    sha256 = hashlib.sha256(b"".join(of_all)).digest() if len(of_all) == len(found) else None
    return (Piece((width, height * len(found)), b"".join(parts), tokens, (tokens, 1), sha256, stacked),)
