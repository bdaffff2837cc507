"""The bytes of pictures as the numbers that encoders compute with."""

from __future__ import annotations

import struct

from py_engine.models.projectors.stages import Stages
from py_engine.plan.plan import Buffer


def byte_values(s: Stages) -> Buffer:
    """What each byte of each colour becomes, in float32: (3, 256)."""
    found = []
    for colour in zip(s.tower.mean, s.tower.deviation, strict=True):
        mean, deviation = map(_f32, colour)
        values = [_f32(_f32(_f32(byte / 255) - mean) / deviation) for byte in range(256)]
        found += [2 * value - 1 for value in values] if s.tower.kind == "gemma4v" else values
    buffer = s.ops.buffer("image.values", (3, 256), "f32", "state")
    s.plan.constants[buffer.name] = struct.pack("<768f", *found)
    return buffer


def fractions(s: Stages) -> Buffer:
    """What each number of 256ths of a byte adds to a value of each colour, in float32: (3, 256)."""
    found = [part / (256 * 255 * deviation) for deviation in s.tower.deviation for part in range(256)]
    buffer = s.ops.buffer("image.fraction_values", (3, 256), "f32", "state")
    s.plan.constants[buffer.name] = struct.pack("<768f", *found)
    return buffer


def _f32(value: float) -> float:
    """The nearest float32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
