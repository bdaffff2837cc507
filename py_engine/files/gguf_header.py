"""Reads a GGUF file's header from its first bytes: metadata and tensor table, no tensor data.

Layout (little-endian; GGUF versions 2 and 3):
    "GGUF" | version u32 | n_tensors u64 | n_kv u64
    n_kv x      key string | value type u32 | value
    n_tensors x name string | n_dims u32 | n_dims x u64 | ggml type u32 | offset u64
    padding to the alignment, then the tensor data; offsets count from its start
gguf_values.py reads strings and values.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from gguf.constants import GGUF_DEFAULT_ALIGNMENT

from py_engine.errors import WispError
from py_engine.files.gguf_values import NeedMoreBytes, ValueReader, corrupt
from py_engine.files.tensor_types import BLOCK_SIZES, TensorType

MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 17
MAX_DIMS = 4
FIRST_READ = 1024 * 1024

_REQUIRED: Any = object()
_TENSOR_BYTES = 600  # of the Python objects, roughly
_MIN_KEY, _MIN_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8  # bytes of the shortest entry of each table


@dataclass(frozen=True)
class TensorInfo:
    """One tensor. `shape` is in ggml's order: shape[0] is the row length, ne0. `offset`: bytes after data_offset."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    """The header of a GGUF file. Arrays in the metadata are lists."""

    version: int
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    alignment: int
    data_offset: int
    file_size: int | None

    @property
    def largest_dimension(self) -> int:
        """The largest dimension of any tensor."""
        return max((max(info.shape) for info in self.tensors.values()), default=0)

    @property
    def architecture(self) -> str:
        name = self.metadata.get("general.architecture")
        if not isinstance(name, str) or not name:
            raise WispError("The GGUF file does not say its general.architecture.", "missing_metadata")
        return name

    def get(self, key: str, default: Any = None) -> Any:
        """The metadata value of `key`, else the default."""
        return self.metadata.get(key, default)

    def arch(self, key: str, default: Any = _REQUIRED) -> Any:
        """The value of "<architecture>.<key>", else the default. Without a default, WispError missing_metadata."""
        full = f"{self.architecture}.{key}"
        value = self.metadata.get(full, default)
        if value is _REQUIRED:
            raise WispError(
                f"The GGUF file lacks the metadata key {full}, which its architecture needs.", "missing_metadata"
            )
        return value


def _beginning(data: bytes | bytearray | memoryview) -> str:
    """Describe a file's first bytes: text as text, other bytes in hexadecimal."""
    first = bytes(data[:24])
    if not first:
        return "it is empty"
    text = first.decode("utf-8", "ignore")  # the last character may be cut
    line = text.strip().splitlines()[0] if text.strip() else ""
    if len(text.encode()) > len(first) - 4 and line.isprintable() and not set(text) & {"\0", "\ufffd"}:
        return f'it starts with the text "{line}"' if line else "it starts with blank lines"
    return f"it starts with the bytes {first[:8].hex(' ').upper()}"


def parse(prefix: bytes, file_size: int | None) -> Header:
    """Read a header from the first bytes of a file of `file_size` bytes (None: unknown).

    Raises NeedMoreBytes if the prefix is too short, WispError (not_gguf, unsupported_version, truncated_file,
    corrupt_header, unsupported_quantization) if no longer prefix would help.
    """
    return _Parser(file_size).run(prefix)


async def read_header(
    read: Callable[[int, int], Awaitable[bytes]], file_size: int | None, length: int = FIRST_READ
) -> Header:
    """Read a header with `read(offset, length)`, which may return fewer bytes at the end of the file.

    `length`: bytes to read first.
    """
    parser = _Parser(file_size)
    prefix = b""
    while True:
        limit = length if parser.file_size is None else min(length, parser.file_size)
        if limit > len(prefix):
            more = bytes(await read(len(prefix), limit - len(prefix)))
            prefix += more
            if len(prefix) < limit:  # the end of the file, whatever size was given
                parser.file_size = len(prefix)
        try:
            return parser.run(prefix)
        except NeedMoreBytes as error:
            length = max(4 * length, error.needed)


class _Parser(ValueReader):
    """Reads one header. After NeedMoreBytes, run() with a longer prefix continues at the entry that was incomplete."""

    def __init__(self, file_size: int | None) -> None:
        super().__init__(file_size)
        self.version = 0
        self.n_tensors = 0
        self.n_keys = 0
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}

    def run(self, prefix: bytes) -> Header:
        self.buf = prefix
        if not self.version:
            self._preamble()
        while len(self.metadata) < self.n_keys:
            start = self.pos
            try:
                self._key_value()
            except NeedMoreBytes:
                self.pos = start
                raise
        alignment = self.metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 20:
            corrupt(f"general.alignment is {alignment!r}, not a power of two")
        while len(self.tensors) < self.n_tensors:
            start = self.pos
            try:
                self._tensor(alignment)
            except NeedMoreBytes:
                self.pos = start
                raise
        data_offset = -(-self.pos // alignment) * alignment
        self._check_layout(data_offset, alignment)
        return Header(self.version, self.metadata, self.tensors, alignment, data_offset, self.file_size)

    # -- the parts of the file

    def _preamble(self) -> None:
        magic = self.buf[:4]
        if magic != b"GGUF"[: len(magic)] or (self.file_size is not None and self.file_size < 4):
            raise WispError(
                f"This is not a GGUF file: {_beginning(self.buf)}. Choose a file whose name ends in .gguf "
                "(a page about the model, or a Git LFS pointer, is not the model itself).",
                "not_gguf",
            )
        self.pos = 4
        try:
            version = self.u32("the version")
            if version not in (2, 3):
                _unsupported_version(version)
            n_tensors, n_keys = self.u64("the tensor count"), self.u64("the metadata count")
        except NeedMoreBytes:
            self.pos = 0
            raise
        if n_tensors > MAX_TENSORS or n_keys > MAX_KEYS:
            corrupt(f"it claims {n_tensors} tensors and {n_keys} metadata keys")
        self.require(n_keys * _MIN_KEY + n_tensors * _MIN_TENSOR, "the metadata and the tensor table")
        self.version, self.n_tensors, self.n_keys = version, n_tensors, n_keys

    def _key_value(self) -> None:
        key = self.name("a metadata key")
        if key in self.metadata:
            corrupt(f"the metadata key {key!r} appears twice")
        self.metadata[key] = self.value(self.value_type(key), key)

    def _tensor(self, alignment: int) -> None:
        name = self.name("a tensor name")
        if name in self.tensors:
            corrupt(f"the tensor {name!r} appears twice")
        what = f"the entry of tensor {name!r}"
        n_dims = self.u32(what)
        if n_dims > MAX_DIMS:
            corrupt(f"tensor {name!r} has {n_dims} dimensions")
        shape = tuple(self.u64(what) for _ in range(n_dims)) or (1,)
        type_id, offset = self.u32(what), self.u64(what)
        try:
            kind = TensorType(type_id)
            block, block_bytes = BLOCK_SIZES[kind]
        except (ValueError, KeyError):
            raise WispError(
                f"Tensor {name!r} has the unknown data type {type_id}. Choose another quantisation of "
                "the model, such as Q4_0, Q8_0 or F16.",
                "unsupported_quantization",
            ) from None
        count = 1
        for n in shape:
            count *= n
        if max(shape) >= 1 << 63 or count >= 1 << 63:
            corrupt(f"tensor {name!r} has the shape {shape}")
        if shape[0] % block:
            corrupt(f"tensor {name!r} has rows of {shape[0]}, not a multiple of the {block} of its type {kind.name}")
        if offset % alignment:
            corrupt(f"tensor {name!r} starts at {offset}, which is not a multiple of {alignment}")
        self.allocate(_TENSOR_BYTES)
        self.tensors[name] = TensorInfo(name, shape, kind, offset, count // block * block_bytes)

    def _check_layout(self, data_offset: int, alignment: int) -> None:
        """Check that no tensor overlaps another or lies outside the file."""
        ordered = sorted((t for t in self.tensors.values() if t.nbytes), key=lambda t: t.offset)
        packed = sum(-(-t.nbytes // alignment) * alignment for t in ordered)
        end, before = 0, ""
        for t in ordered:
            if t.offset < end:
                corrupt(f"tensors {before!r} and {t.name!r} overlap")
            end, before = t.offset + t.nbytes, t.name
            if self.file_size is not None and data_offset + end > self.file_size:
                if end > packed:  # a truncated file does not explain this
                    corrupt(f"tensor {t.name!r} lies outside the file")
                self.truncated(data_offset + ordered[-1].offset + ordered[-1].nbytes, f"tensor {t.name!r}")


def _unsupported_version(version: int) -> NoReturn:
    if version & 0xFFFF == 0 and version:
        raise WispError(
            "This is a big-endian GGUF file. Choose a little-endian one, the usual kind.",
            "unsupported_version",
        )
    raise WispError(
        f"This file is GGUF version {version}; Wisp reads versions 2 and 3. Choose a newer conversion of the model."
        if version < 2
        else f"This file claims GGUF version {version}; Wisp reads versions 2 and 3.",
        "unsupported_version",
    )
