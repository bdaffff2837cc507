"""The chunks of a prompt with media, in the order in which the text model reads them: token ids, images, sound."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from py_engine.media.prepared import Content, Piece, Spectrum
from py_engine.media.projector import Projector
from py_engine.media.sizes import Size


@dataclass(frozen=True)
class TextChunk:
    """Token ids."""

    ids: list[int]
    kind = "text"

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    @property
    def n_pos(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class MediaChunk:
    """An image, a tile of one, or sound: embeddings in place of tokens."""

    kind: str  # "image" or "audio"
    part: Piece | Spectrum
    projector: Projector
    grid: Size  # columns and rows of tokens where positions have two dimensions; else all tokens in one row
    non_causal: bool
    mrope: bool  # positions have dimensions: time, row, column
    number: int | None = None  # of the picture in its prompt, from 0, where positions have that dimension, too

    @property
    def n_tokens(self) -> int:
        return self.part.n_tokens

    @property
    def n_pos(self) -> int:
        """Positions that the chunk takes: the next chunk begins so much later."""
        return max(self.grid) if self.mrope and self.number is None else self.n_tokens

    def positions(self) -> list[tuple[int, int, int]]:
        """Time, row and column of each token, relative to the chunk's first position.

        Of a picture with a number: time, column and row; the last two are relative inside only, and count from 0.
        """
        if not self.mrope:
            return [(i, i, i) for i in range(self.n_tokens)]
        columns, rows = self.grid
        if self.number is not None:
            layout, last = self.projector.need_vision().layout, self.n_tokens - 1
            line, count = layout.line(columns), layout.in_lines(columns, rows)
            return [(0, 0, 0), *((1 + i, i % line, i // line) for i in range(count)), (last, last, last)]
        return [(0, y, x) for y in range(rows) for x in range(columns)]

    @cached_property
    def hash(self) -> str:
        """Equal for equal content and projector: caches of embeddings and of KV recognize a picture by it."""
        return Content(self.projector, self.part).hash


Chunk = TextChunk | MediaChunk
