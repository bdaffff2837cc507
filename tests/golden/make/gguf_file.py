"""Collect metadata and random tensors, then write them as a GGUF file of some tensor type."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import ArrayLike

from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.quantize import FILE_TYPES, Quantizer
from tools.gguf_writer import Value, add_value, finish


@dataclass(frozen=True)
class Layout:
    """How a file is laid out: what readers must bear and converters rarely write."""

    align: int | None = None  # bytes, general.alignment
    shuffle: bool = False  # tensors in random order
    split: int = 0  # tensors a file at most; the files are then called stem-00001-of-0000N.gguf


class GgufFile:
    """A model in the making: metadata and float32 tensors, all random numbers from one seed in the order of calls."""

    def __init__(self, architecture: str, seed: int, omit: Collection[str] = ()) -> None:
        self.architecture, self.seed = architecture, seed
        self.random = np.random.default_rng(seed)
        self.metadata: list[tuple[str, Value]] = []
        self.tensors: dict[str, np.ndarray] = {}
        self.float32: set[str] = set()  # tensors that are never quantized
        self.kinds: dict[str, str] = {}  # types of single tensors, in place of the file's
        self.omit = omit

    def add(self, key: str, value: Value | None) -> None:
        """Add metadata; "%s" in the key stands for the architecture. None and omitted keys are skipped."""
        if value is not None and key.replace("%s.", "") not in self.omit:
            self.metadata.append((key.replace("%s", self.architecture), value))

    def matrix(
        self, name: str, *shape: int, gain: float = 1.0, std: float | None = None, float32: bool = False
    ) -> None:
        """Add a matrix (..., out, in) of normal numbers with deviation `std`, by default gain / sqrt(in)."""
        deviation = std if std is not None else gain / np.sqrt(shape[-1])
        self.tensors[name] = (self.random.standard_normal(shape) * deviation).astype(np.float32)
        if float32:
            self.float32.add(name)

    def vector(self, name: str, *shape: int, mean: float = 0.0, std: float = 0.2) -> None:
        """Add normal numbers that stay float32."""
        self.constant(name, mean + self.random.standard_normal(shape) * std)

    def norm(self, name: str, *shape: int, mean: float = 1.0, bias: bool = False) -> None:
        """Add a norm's weight and, with `bias`, its bias."""
        self.vector(name + ".weight", *shape, mean=mean, std=0.15 * mean)
        if bias:
            self.vector(name + ".bias", *shape, std=0.1)

    def constant(self, name: str, values: ArrayLike) -> None:
        self.tensors[name] = np.asarray(values, np.float32)
        self.float32.add(name)

    def integers(self, name: str, values: ArrayLike) -> None:
        self.tensors[name] = np.asarray(values, np.int32)
        self.float32.add(name)

    def write(self, path: Path, kind: str, layout: Layout, library: Library | None) -> None:
        """Write the tensors as `kind`; what gguf-py cannot quantize is quantized by ggml, from `library`."""
        quantizer = Quantizer(kind, self.float32, self.kinds, self.seed, library)
        writer = gguf.GGUFWriter(str(path), self.architecture, split_max_tensors=layout.split)
        if layout.align:
            writer.add_custom_alignment(layout.align)
        writer.add_name("synthetic")  # llama.cpp treats some names specially: phi-3, jina-v2-...
        for key, value in self.metadata:
            add_value(writer, key, value)
        writer.add_quantization_version(2)
        writer.add_file_type(FILE_TYPES[kind])
        written = quantizer.quantize(self.tensors)
        names = list(written)
        if layout.shuffle:
            np.random.default_rng(0).shuffle(names)
        for name in names:
            data, tensor_type = written[name]
            writer.add_tensor(name, data, raw_dtype=tensor_type)
        finish(writer)
