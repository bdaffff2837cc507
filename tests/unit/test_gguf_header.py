"""The header reader on hand-made, truncated and damaged files: a header, a WispError or NeedMoreBytes, quickly."""

import asyncio
import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from py_engine.errors import CODES, WispError
from py_engine.files.gguf_header import Header, NeedMoreBytes, parse, read_header

MINI = Path(__file__).parents[2] / "static" / "models" / "wisp-mini-q4_0.gguf"
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def value(kind: int, v: Any) -> bytes:
    if kind == STRING:
        return string(v)
    if kind == ARRAY:
        element, items = v
        return struct.pack("<IQ", element, len(items)) + b"".join(value(element, item) for item in items)
    return struct.pack("<" + FORMATS[kind], v)


def key(name: str | bytes, kind: int, v: Any) -> bytes:
    return string(name) + struct.pack("<I", kind) + value(kind, v)


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


ARCH = key("general.architecture", STRING, "llama")


def gguf(
    keys: list[bytes], tensors: list[bytes], data: int = 0, version: int = 3, n: tuple[int, int] | None = None
) -> bytes:
    """A GGUF file with `data` bytes of tensor data after the padding; n overrides the counts (tensors, keys)."""
    n_tensors, n_keys = n or (len(tensors), len(keys))
    head = struct.pack("<4sIQQ", b"GGUF", version, n_tensors, n_keys) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(data) if data else head


def code_of(data: bytes, file_size: int | None = -1) -> str:
    with pytest.raises(WispError) as error:
        parse(data, len(data) if file_size == -1 else file_size)
    assert error.value.code in CODES
    return error.value.code


def outcome(data: bytes, file_size: int | None) -> str:
    """ "header", "more" or an error code; any other exception passes through."""
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
        assert mine.type == t.tensor_type
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


def string_of_length(n: int) -> bytes:
    return gguf([], [], n=(0, 1)) + struct.pack("<Q", n) + bytes(8)


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
def test_what_is_no_gguf_is_shown_to_a_person(data: bytes, seen: str) -> None:
    with pytest.raises(WispError) as error:
        parse(data, len(data))
    assert f"not a GGUF file: {seen}. Choose" in str(error.value)


BAD: list[tuple[str, bytes, str]] = [
    ("html", b"<!DOCTYPE html><html>" + bytes(100), "not_gguf"),
    ("empty", b"", "not_gguf"),
    ("old magic", b"ggjt" + bytes(100), "not_gguf"),
    ("version 0", gguf([ARCH], [], version=0), "unsupported_version"),
    ("version 1", gguf([ARCH], [], version=1), "unsupported_version"),
    ("version 4", gguf([ARCH], [], version=4), "unsupported_version"),
    ("big-endian", struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "unsupported_version"),
    ("tensor count", gguf([ARCH], [], n=(1 << 60, 1)), "corrupt_header"),
    ("key count", gguf([ARCH], [], n=(0, (1 << 64) - 1)), "corrupt_header"),
    ("few tensors too many", gguf([ARCH], [], n=(3, 1)), "truncated_file"),
    ("string length", string_of_length((1 << 64) - 1), "corrupt_header"),
    ("string past the end", string_of_length(1000), "truncated_file"),
    ("value length", gguf([string("k") + struct.pack("<IQ", STRING, 1 << 50)], []), "corrupt_header"),
    ("array count", gguf([string("k") + struct.pack("<IIQ", ARRAY, F64, 1 << 61)], []), "corrupt_header"),
    ("strings count", gguf([string("k") + struct.pack("<IIQ", ARRAY, STRING, 1 << 61)], []), "corrupt_header"),
    ("nested count", gguf([string("k") + struct.pack("<IIQ", ARRAY, ARRAY, 1 << 61)], []), "corrupt_header"),
    ("nesting", gguf([string("k") + struct.pack("<I" + "IQ" * 40, ARRAY, *([ARRAY, 1] * 40))], []), "corrupt_header"),
    ("value type", gguf([string("k") + struct.pack("<IQ", 13, 0)], []), "corrupt_header"),
    ("element type", gguf([string("k") + struct.pack("<IIQ", ARRAY, 99, 0)], []), "corrupt_header"),
    ("key not UTF-8", gguf([key(b"\xff\xfe", U8, 1)], []), "corrupt_header"),
    ("key twice", gguf([ARCH, ARCH], []), "corrupt_header"),
    ("alignment 0", gguf([ARCH, key("general.alignment", U32, 0)], []), "corrupt_header"),
    ("alignment 24", gguf([ARCH, key("general.alignment", U32, 24)], []), "corrupt_header"),
    ("alignment text", gguf([ARCH, key("general.alignment", STRING, "32")], []), "corrupt_header"),
    ("tensor twice", gguf([ARCH], [tensor("x", (8,), 0, 0), tensor("x", (8,), 0, 32)], 64), "corrupt_header"),
    ("dimensions", gguf([ARCH], [tensor("x", (1,) * 5, 0, 0)], 64), "corrupt_header"),
    ("huge shape", gguf([ARCH], [tensor("x", (1 << 32, 1 << 32), 0, 0)], 64), "corrupt_header"),
    ("negative shape", gguf([ARCH], [tensor("x", ((1 << 64) - 1,), 0, 0)], 64), "corrupt_header"),
    ("row not in blocks", gguf([ARCH], [tensor("x", (48,), 2, 0)], 64), "corrupt_header"),
    ("tensor type", gguf([ARCH], [tensor("x", (32,), 4, 0)], 64), "unsupported_quantization"),
    ("tensor type 2", gguf([ARCH], [tensor("x", (32,), 1 << 30, 0)], 64), "unsupported_quantization"),
    ("misaligned", gguf([ARCH], [tensor("x", (8,), 0, 4)], 64), "corrupt_header"),
    ("overlap", gguf([ARCH], [tensor("x", (16,), 0, 0), tensor("y", (8,), 0, 32)], 64), "corrupt_header"),
    ("outside", gguf([ARCH], [tensor("x", (8,), 0, 1 << 40)], 64), "corrupt_header"),
    ("past 2^64", gguf([ARCH], [tensor("x", (8,), 0, (1 << 64) - 32)], 64), "corrupt_header"),
    ("data missing", gguf([ARCH], [tensor("x", (800,), 0, 0)], 64), "truncated_file"),
]


@pytest.mark.parametrize(("data", "code"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_files(data: bytes, code: str) -> None:
    assert code_of(data) == code


def test_no_architecture() -> None:
    with pytest.raises(WispError) as error:
        _ = parse(gguf([key("a.b", U8, 1)], []), None).architecture
    assert error.value.code == "missing_metadata"


def test_random_damage_never_surprises() -> None:
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
