"""The header reader on hand-made, truncated and damaged files: it quickly gives a header or one of its errors."""

import asyncio
import random
import time

import pytest

from py_engine.errors import CODES, WispError
from py_engine.files.gguf_header import Header, parse, read_header
from py_engine.files.gguf_values import NeedMoreBytes
from tests.support.gguf_bytes import (
    ARCH,
    ARRAY,
    BAD,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    MINI,
    STRING,
    U8,
    U16,
    U32,
    U64,
    gguf,
    key,
    tensor,
)


def code_of(data: bytes, file_size: int | None = -1) -> str:
    with pytest.raises(WispError) as error:
        parse(data, len(data) if file_size == -1 else file_size)
    assert error.value.code in CODES
    return error.value.code


def outcome(data: bytes, file_size: int | None) -> str:
    """Parse; return "header", "more" or an error code. Any other exception passes through."""
    try:
        header = parse(data, file_size)
    except WispError as error:
        return error.code
    except NeedMoreBytes as error:
        return "more" if error.needed > len(data) else f"asks for {error.needed}"
    return "header" if isinstance(header, Header) else "nothing"


def every_kind() -> bytes:
    keys = [
        ARCH,
        key("a.u8", U8, 200),
        key("a.i8", I8, -3),
        key("a.u16", U16, 65000),
        key("a.i16", I16, -300),
        key("a.u32", U32, 4_000_000_000),
        key("a.i32", I32, -5),
        key("a.f32", F32, 0.5),
        key("a.bool", BOOL, True),
        key("a.u64", U64, 1 << 63),
        key("a.i64", I64, -(1 << 62)),
        key("a.f64", F64, 1e300),
        key("llama.block_count", U32, 7),
        key("a.strings", ARRAY, (STRING, ["", "é", "日本"])),
        key("a.ints", ARRAY, (I32, [1, -2, 3])),
        key("a.bools", ARRAY, (BOOL, [True, False])),
        key("a.nested", ARRAY, (ARRAY, [(U8, [1]), (U8, [2, 3])])),
    ]
    tensors = [tensor("x", (32, 2), 2, 32), tensor("y", (3,), 0, 0), tensor("z", (4, 2, 2), 1, 96)]
    return gguf(keys, tensors, data=128)


@pytest.mark.parametrize("version", [2, 3])
def test_reads_every_kind_of_value(version: int) -> None:
    data = bytearray(every_kind())
    data[4] = version
    header = parse(bytes(data), len(data))
    m = header.metadata
    assert header.version == version
    assert header.architecture == "llama"
    assert header.alignment == 32
    assert [m[f"a.{k}"] for k in ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "u64", "i64", "f64")] == [
        200, -3, 65000, -300, 4_000_000_000, -5, 0.5, True, 1 << 63, -(1 << 62), 1e300,
    ]  # fmt: skip
    assert m["a.bool"] is True
    assert m["a.strings"] == ["", "é", "日本"]
    assert m["a.ints"] == [1, -2, 3]
    assert m["a.bools"] == [True, False]
    assert m["a.nested"] == [[1], [2, 3]]
    assert header.arch("block_count") == 7
    assert header.arch("absent", 5) == 5
    assert header.get("absent") is None
    with pytest.raises(WispError) as error:
        header.arch("absent")
    assert error.value.code == "missing_metadata"
    assert "llama.absent" in error.value.message
    x, y, z = (header.tensors[name] for name in "xyz")
    assert (x.shape, x.type.name, x.offset, x.nbytes) == ((32, 2), "Q4_0", 32, 36)
    assert (y.nbytes, z.nbytes, header.data_offset % 32) == (12, 32, 0)
    assert header.data_offset + 128 == len(data)


def test_agrees_with_the_gguf_package() -> None:
    from gguf import GGUFReader

    reader = GGUFReader(MINI)
    header = parse(MINI.read_bytes(), MINI.stat().st_size)
    assert list(header.tensors) == [t.name for t in reader.tensors]
    for t in reader.tensors:
        mine = header.tensors[t.name]
        assert mine.shape == tuple(int(n) for n in t.shape)
        assert int(mine.type) == int(t.tensor_type)
        assert header.data_offset + mine.offset == t.data_offset
        assert mine.nbytes == t.n_bytes
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            assert header.metadata[name] == field.contents()


def test_truncated_at_every_byte() -> None:
    data = every_kind()
    for size in range(len(data)):
        code = code_of(data[:size], size)
        assert code == ("not_gguf" if size < 4 else "truncated_file"), size
        assert outcome(data[:size], len(data)) in ("header", "more")  # the same bytes as a prefix of a whole file


def test_truncated_wisp_mini() -> None:
    whole = MINI.read_bytes()
    header = parse(whole, len(whole))
    for size in [*range(4, header.data_offset, 997), header.data_offset, len(whole) - 1]:
        assert code_of(whole[:size], size) == "truncated_file"
    assert code_of(whole[: header.data_offset], len(whole) - 32) == "truncated_file"
    assert parse(whole[: header.data_offset], len(whole)) == header
    assert parse(whole[: header.data_offset], None).tensors == header.tensors


def test_reads_in_growing_steps() -> None:
    words = [f"word{i}" * (1 + i % 9) for i in range(90_000)]
    data = gguf([ARCH, key("a.words", ARRAY, (STRING, words)), key("a.more", ARRAY, (STRING, words))], [])
    calls: list[tuple[int, int]] = []

    async def read(offset: int, length: int) -> bytes:
        calls.append((offset, length))
        return data[offset : offset + length]

    for size in (len(data), None):
        calls.clear()
        header = asyncio.run(read_header(read, size))
        assert header.metadata["a.words"] == words == header.metadata["a.more"]
        assert calls[0] == (0, 1 << 20)
        assert 2 <= len(calls) <= 5
        assert all(offset == sum(n for _, n in calls[:i]) for i, (offset, _) in enumerate(calls))


def test_a_short_read_is_a_truncated_file() -> None:
    data = every_kind()[:300]

    async def read(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    for size in (None, 5000):
        with pytest.raises(WispError) as error:
            asyncio.run(read_header(read, size))
        assert error.value.code == "truncated_file"


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (b"", "it is empty"),
        (b"# Licence\nApache-2.0, or any later one", 'it starts with the text "# Licence"'),
        ("<title>Grüße aus München</title>".encode(), 'it starts with the text "<title>Grüße aus Münc"'),
        ("\n\n{é".encode(), 'it starts with the text "{é"'),
        (b"\n\n\n\n", "it starts with blank lines"),
        (b"PK\3\4\x14\0\0\0model.bin and more of it", "it starts with the bytes 50 4B 03 04 14 00 00 00"),
        (b"\x89PNG\r\n\x1a\n\0\0", "it starts with the bytes 89 50 4E 47 0D 0A 1A 0A"),
        (b"ab\x1b[31mred", "it starts with the bytes 61 62 1B 5B 33 31 6D 72"),
    ],
)
def test_a_file_that_is_not_gguf_is_described(data: bytes, seen: str) -> None:
    with pytest.raises(WispError) as error:
        parse(data, len(data))
    assert f"not a GGUF file: {seen}. Choose" in str(error.value)


@pytest.mark.parametrize(("data", "code"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_files(data: bytes, code: str) -> None:
    assert code_of(data) == code


def test_no_architecture() -> None:
    with pytest.raises(WispError) as error:
        _ = parse(gguf([key("a.b", U8, 1)], []), None).architecture
    assert error.value.code == "missing_metadata"


def test_random_damage_raises_only_wisp_errors() -> None:
    rng = random.Random(7)
    small = every_kind()
    head = MINI.read_bytes()[:140_000]
    for i in range(6000):
        base, size = (small, len(small)) if i % 20 else (head, MINI.stat().st_size)
        data = bytearray(base)
        for _ in range(rng.choice([1, 1, 2, 8])):
            at = rng.randrange(len(data) if i % 2 else 400)
            data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256), data[at] ^ (1 << rng.randrange(8))])
        began = time.process_time()  # CPU time: other processes do not count
        assert outcome(bytes(data), rng.choice([size, None])) in ("header", "more", *CODES)
        assert time.process_time() - began < 1.0
