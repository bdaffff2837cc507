"""An encoder of images or sound in a plan: the lists that it consists of, and where its results are. Pure data.

An encoder is a chain of stages. Each is a list of ops over rows of its own number: patches, then merged patches, then
tokens. Before each stage, the host sets the number of rows. It also writes the inputs: patches or frames as rows, and
the taps of wgsl/gather.wgsl, which say which rows are added to which.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Contents: TypeAlias = bytes | memoryview


@dataclass(frozen=True)
class Stage:
    """One list. `rows`: the name of its number of rows, which the host computes for each batch."""

    list: str
    rows: str


@dataclass(frozen=True, eq=False)  # compared and hashed by identity: layouts are cached by it
class EncoderPlan:
    """One encoder of a plan."""

    stages: tuple[Stage, ...]
    output: str  # the buffer of the results, (tokens, padded width)
    width: int  # values of a token: of the main output, then of deepstack slices
    capacity: dict[str, int]  # most rows by name
    segments: dict[str, int]  # table of segments -> its index among the words of the state's tables
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)  # buffer that the host writes -> its shape


@dataclass(frozen=True)
class EncoderInputs:
    """What the host gives to one run: (buffer, first byte, contents), and the rows of every stage by name."""

    writes: tuple[tuple[str, int, Contents], ...]
    rows: dict[str, int]
    tokens: int  # rows of the results
