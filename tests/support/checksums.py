"""The definition of checksum() in py_engine/files/shards.js, in numpy."""

import numpy as np


def checksums(data: bytes) -> list[int]:
    """The two sums over a record's bytes."""
    words = np.frombuffer(data + bytes(-len(data) % 4), "<u4")
    mixed = words ^ (np.arange(len(words), dtype=np.uint32) * np.uint32(0x9E3779B1))
    mixed = (mixed ^ (mixed >> 16)) * np.uint32(0x7FEB352D)
    mixed ^= mixed >> 15
    again = mixed * np.uint32(0x846CA68B)
    again ^= again >> 16
    return [int((part.sum(dtype=np.uint64) + start) % (1 << 32)) for part, start in ((mixed, len(data)), (again, 0))]
