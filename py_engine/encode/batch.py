"""The inputs of one run of an encoder: their layout, which depends on their sizes alone and is cached, and contents."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from py_engine.plan.encoder import EncoderInputs, EncoderPlan
from py_engine.plan.pages import TABLES

Array: TypeAlias = NDArray[Any]
LAYOUTS = 8  # that are cached for each kind of input: pictures of a model have few sizes


@dataclass
class EncoderBatch:
    """What the host writes to which buffer; the rows of every stage; the tokens of each input, in order."""

    plan: EncoderPlan
    modality: str
    rows: dict[str, int] = field(default_factory=dict)
    writes: dict[str, Array] = field(default_factory=dict)  # by input, not yet padded
    tables: dict[int, Array] = field(default_factory=dict)  # by the index of the first word in the state's tables
    tokens: list[int] = field(default_factory=list)
    contents: list[tuple[str, int, Array]] = field(default_factory=list)  # (input, first byte, pixels or frames)

    def inputs(self) -> EncoderInputs:
        """The same as bytes, for a runner."""
        writes = [(f"{self.modality}.{name}", 0, _bytes(self.padded(name, each))) for name, each in self.writes.items()]
        writes += [("state", TABLES + 4 * at, _bytes(values)) for at, values in self.tables.items()]
        writes += [(f"{self.modality}.{name}", at, _bytes(values)) for name, at, values in self.contents]
        return EncoderInputs(tuple(writes), self.rows, sum(self.tokens))

    def takes(self, name: str) -> bool:
        """Whether the encoder has this input."""
        return f"{self.modality}.{name}" in self.plan.inputs

    def write(self, name: str, values: Array) -> None:
        """Set an input, u32 or f32."""
        self.writes[name] = values

    def padded(self, name: str, values: Array) -> Array:
        """Rows of an input, u32 or f32, padded to the buffer's width."""
        shape = self.plan.inputs[f"{self.modality}.{name}"]
        padded = np.zeros((len(values), *shape[1:]), np.float32 if values.dtype.kind == "f" else np.uint32)
        padded[tuple(slice(0, size) for size in values.shape)] = values
        return padded

    def with_contents(self, contents: list[tuple[str, int, Array]]) -> EncoderBatch:
        """This layout, of inputs with these contents."""
        return replace(self, contents=contents)

    def write_taps(self, name: str, ids: Array, weights: Array | None = None) -> None:
        """Set taps: ids (n, taps), with weights of the same shape; 1 where none are given."""
        pairs = np.empty((*ids.shape, 2), np.uint32)
        pairs[..., 0] = ids
        pairs[..., 1] = (np.ones(ids.shape) if weights is None else weights).astype(np.float32).view(np.uint32)
        self.write(name, pairs)

    def write_segments(self, table: str, sizes: list[int]) -> None:
        """Set a table of segments: groups of rows that attend to each other, of these sizes."""
        ends = np.cumsum(sizes)
        each = np.stack([ends - sizes, ends, np.arange(len(sizes))], axis=1)
        self.tables[self.plan.segments[table]] = np.repeat(each, sizes, axis=0).astype(np.uint32)


def _bytes(values: Array) -> memoryview:
    return np.ascontiguousarray(values).data.cast("B")
