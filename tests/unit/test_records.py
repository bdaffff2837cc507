"""Cutting files into records: every byte once, in order, never through a quantisation block."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.records import PieceIndex, plan_records, tensor_spans
from py_engine.files.tensor_types import BLOCK_SIZES, TensorType

TYPES = [TensorType[name] for name in ("F32", "F16", "BF16", "Q4_0", "Q8_0", "Q4_K", "Q6_K")]


def align(n: int, to: int = 32) -> int:
    return -(-n // to) * to


@st.composite
def files(draw: st.DrawFn) -> tuple[Header, int]:
    """A header with tensors of any type, with gaps between them, and the size of its file."""
    tensors, end = {}, 0
    for i in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(TYPES))
        block, block_bytes = BLOCK_SIZES[kind]
        row = draw(st.integers(1, 12)) * block
        rows = draw(st.integers(1, 60))
        nbytes = row // block * block_bytes * rows
        offset = align(end) + 32 * draw(st.sampled_from([0, 0, 0, 1, 300]))
        tensors[f"t{i}"] = TensorInfo(f"t{i}", (row, rows), kind, offset, nbytes)
        end = offset + nbytes
    data_offset = align(draw(st.integers(24, 9000)))
    size = data_offset + end + draw(st.sampled_from([0, 0, 17, 5000])) if tensors else data_offset
    return Header(3, {}, tensors, 32, data_offset, size), size


@given(files(), st.integers(1024, 20_000))
def test_records_cover_every_byte_once_and_cut_no_block(made: tuple[Header, int], max_bytes: int) -> None:
    header, size = made
    plan = plan_records(header, size, max_bytes)
    assert [record.index for record in plan] == list(range(len(plan)))
    assert plan[0].offset == 0
    assert plan[-1].end == size
    assert all(a.end == b.offset for a, b in pairwise(plan))
    assert all(0 < record.length <= max_bytes for record in plan)
    cuts = {record.offset for record in plan}
    assert header.data_offset in cuts | {size}
    for start, tensor in tensor_spans(header):
        block, block_bytes = BLOCK_SIZES[tensor.type]
        row_bytes = tensor.shape[0] // block * block_bytes
        unit = row_bytes if row_bytes <= max_bytes else block_bytes
        assert all((cut - start) % unit == 0 for cut in cuts if start < cut < start + tensor.nbytes)
        if tensor.nbytes <= max_bytes:  # a tensor is cut only when it must be
            assert not any(start < cut < start + tensor.nbytes for cut in cuts)


@given(files(), st.integers(1024, 20_000))
def test_pieces_rebuild_every_tensor(made: tuple[Header, int], max_bytes: int) -> None:
    header, size = made
    index = PieceIndex(header)
    got = dict.fromkeys(header.tensors, 0)
    for record in plan_records(header, size, max_bytes):
        for piece in index.pieces(record):
            assert piece.tensor_offset == got[piece.tensor.name]  # in order, without holes
            at = header.data_offset + piece.tensor.offset + piece.tensor_offset
            assert record.offset + piece.record_offset == at
            assert at + piece.length <= record.end
            got[piece.tensor.name] += piece.length
    assert got == {name: tensor.nbytes for name, tensor in header.tensors.items()}


def test_small_tensors_share_a_record() -> None:
    tensors = {f"t{i}": TensorInfo(f"t{i}", (32,), TensorType.F32, 128 * i, 128) for i in range(100)}
    assert len(plan_records(Header(3, {}, tensors, 32, 64, 64 + 12800), 64 + 12800)) == 2
