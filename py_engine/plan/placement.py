"""Where the bytes of each record belong: from pieces of GGUF tensors to rows of the plan's weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from py_engine.files.gguf_header import Header
from py_engine.files.records import Piece
from py_engine.plan.plan import ZEROS, Plan, Weight
from py_engine.plan.quants import row_bytes

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Placement:
    """`rows` rows of `row_bytes` bytes each, at byte `src` of a record, that belong at row `row0` of a weight part.

    For a vector (one row, perhaps of several tensors end to end) `row0` counts bytes.
    """

    weight: Weight
    src: int
    row0: int
    rows: int
    row_bytes: int


class Placements:
    """A map from records to parts of weights, which are split at a binding limit."""

    def __init__(self, header: Header, plan: Plan, max_binding: int) -> None:
        # tensor -> (part, first row or byte in the part, first row in the tensor, rows)
        self._destinations: dict[str, list[tuple[Weight, int, int, int]]] = {}
        for weight in plan.weights.values():
            for _, part in weight.split(max_binding):
                at = 0
                for tensor, first, rows in part.sources:
                    if tensor == ZEROS:  # as all memory is before something is uploaded
                        at += FLOAT_BYTES * rows
                        continue
                    self._destinations.setdefault(tensor, []).append((part, at, first, rows))
                    at += rows if weight.rows > 1 else header.tensors[tensor].nbytes

    def of(self, pieces: Sequence[Piece]) -> list[Placement]:
        """The placements of a record, given its pieces of tensors."""
        placements = []
        for piece in pieces:
            size = row_bytes(piece.tensor.type, piece.tensor.shape[0])
            begin, end = piece.tensor_offset // size, (piece.tensor_offset + piece.length) // size
            for part, at, first, rows in self._destinations.get(piece.tensor.name, []):
                lo, hi = max(begin, first), min(end, first + rows)
                if lo < hi:
                    src = piece.record_offset + lo * size - piece.tensor_offset
                    row0 = at + (lo - first) * (1 if part.rows > 1 else size)
                    placements.append(Placement(part, src, row0, hi - lo, size))
        return placements
