"""Cuts a model file into records, which are downloaded, hashed, cached and uploaded one by one."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from py_engine.errors import WispError
from py_engine.files.convolutions import flattened
from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.tensor_types import BLOCK_SIZES

MAX_FILE = 1 << 42  # bytes; a server may state any size, and the plan has an entry for each record
MAX_RECORD = 16 << 20  # bytes; a download has nine records in memory (shards.py)


@dataclass(frozen=True)
class Record:
    """Bytes [offset, offset + length) of a file; `index` counts from 0 in file order."""

    index: int
    offset: int
    length: int

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.offset + self.length


@dataclass(frozen=True)
class Piece:
    """Bytes of one tensor in a record: `length` bytes from `tensor_offset` on, at `record_offset`."""

    tensor: TensorInfo
    tensor_offset: int
    record_offset: int
    length: int


def plan_records(header: Header, file_size: int, max_bytes: int = MAX_RECORD) -> list[Record]:
    """Cut a file of `file_size` bytes into records of at most `max_bytes` that cover each byte once, in order.

    Record 0 holds the bytes before the tensor data. Later cuts are at tensor starts. A tensor longer than `max_bytes`
    is cut between rows, or between quantisation blocks if a row is longer, so no block is cut. Small tensors share a
    record; padding belongs to the tensor before it. Raises WispError model_too_large.
    """
    if file_size > MAX_FILE:
        raise WispError(
            f"The file has {file_size} bytes; at most {MAX_FILE >> 40} TiB can be loaded.", "model_too_large"
        )
    header = flattened(header)
    if max_bytes < 1024:
        raise ValueError("Records under 1 KiB cannot hold a quantisation block of every type.")
    head = min(header.data_offset, file_size)
    cuts = [*range(0, head, max_bytes), head]
    for end in _cuts(header, head, file_size, max_bytes):
        if end > cuts[-1]:
            cuts.append(end)
    return [Record(i, a, b - a) for i, (a, b) in enumerate(pairwise(cuts))]


def _cuts(header: Header, start: int, file_size: int, max_bytes: int) -> Iterator[int]:
    """The ends of the records from `start` on, in order. The last one is `file_size`."""
    spans = tensor_spans(header)
    for i, (begin, tensor) in enumerate(spans):
        follows = spans[i + 1][0] if i + 1 < len(spans) else file_size
        if follows - start <= max_bytes:
            continue
        while begin - start > max_bytes:  # a gap, cut anywhere
            start += max_bytes
            yield start
        if begin > start:
            yield begin
            start = begin
        unit = _unit(tensor, max_bytes)
        while follows - start > max_bytes and begin + tensor.nbytes > start + max_bytes:
            start = begin + (start + max_bytes - begin) // unit * unit
            yield start
        while follows - start > max_bytes:  # padding alone, cut anywhere after the tensor's end
            start += max_bytes
            yield start
    while file_size - start > max_bytes:
        start += max_bytes
        yield start
    yield file_size


def tensor_spans(header: Header) -> list[tuple[int, TensorInfo]]:
    """(offset in the file, tensor) of every tensor that has bytes, in file order."""
    found = [(header.data_offset + tensor.offset, tensor) for tensor in header.tensors.values() if tensor.nbytes]
    return sorted(found, key=lambda span: span[0])


def _unit(tensor: TensorInfo, max_bytes: int) -> int:
    """Bytes of the unit that a tensor is cut into: a row, or a block if a row is longer than a record."""
    block, block_bytes = BLOCK_SIZES[tensor.type]
    row_bytes = tensor.shape[0] // block * block_bytes
    return row_bytes if row_bytes <= max_bytes else block_bytes


class PieceIndex:
    """Finds the tensors that have bytes in a record."""

    def __init__(self, header: Header) -> None:
        self._spans = tensor_spans(header)
        self._starts = [start for start, _ in self._spans]

    def pieces(self, record: Record) -> list[Piece]:
        """The pieces of tensors in a record, in file order, without padding."""
        found = []
        i = max(0, bisect_right(self._starts, record.offset) - 1)
        while i < len(self._spans) and self._starts[i] < record.end:
            start, tensor = self._spans[i]
            begin, end = max(start, record.offset), min(start + tensor.nbytes, record.end)
            if begin < end:
                found.append(Piece(tensor, begin - start, begin - record.offset, end - begin))
            i += 1
        return found
