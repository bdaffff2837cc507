"""Hand-made GGUF files, intact and damaged, and the file of the embedded model."""

import struct
from pathlib import Path
from typing import Any

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
    """A GGUF file with `data` bytes of tensor data after the padding; `n` overrides the counts (tensors, keys)."""
    n_tensors, n_keys = n or (len(tensors), len(keys))
    head = struct.pack("<4sIQQ", b"GGUF", version, n_tensors, n_keys) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(data) if data else head


def string_of_length(n: int) -> bytes:
    return gguf([], [], n=(0, 1)) + struct.pack("<Q", n) + bytes(8)


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


def with_numbers(data: bytes, numbers: dict[str, int]) -> bytes:
    """A GGUF file with further numbers (uint32) in its metadata. A text beside them keeps the data aligned."""
    added = b"".join(key(name, U32, number) for name, number in numbers.items())
    filler = -(len(added) + len(key("filler", STRING, ""))) % 32
    added += key("filler", STRING, "x" * filler)
    count = int.from_bytes(data[16:24], "little") + len(numbers) + 1
    return data[:16] + count.to_bytes(8, "little") + added + data[24:]
