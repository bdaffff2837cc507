"""Pictures that code in the sandbox shows: PNG files of arrays of pixels.

The format is of the PNG specification, third edition (W3C): one IDAT chunk, no filter.
"""

import itertools
import struct
import zlib
from pathlib import Path
from typing import Any

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = {1: 0, 3: 2, 4: 6}  # channels -> the colour type: grey, RGB, RGBA
_MOST = 4096  # pixels on a side
_numbers = itertools.count(1)


def show(picture: Any, name: str = "") -> str:
    """Show an array of pixels to the user, as a PNG file; return the file's name.

    `picture`: (height, width) grey, (height, width, 3) RGB or (height, width, 4) RGBA. Bytes are 0 to 255, colours of
    floating point 0 to 1, and grey values are stretched between the smallest and the largest.
    """
    import numpy as np  # most code needs none, and it takes a second to load

    pixels = np.asarray(picture)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3 or pixels.shape[2] not in _COLOURS or not 0 < min(pixels.shape) <= max(pixels.shape) <= _MOST:
        shapes = f"(height, width), or with 3 or 4 colours, and at most {_MOST} pixels on a side"
        raise ValueError(f"show() takes an array of shape {shapes}, not {np.shape(picture)}")
    if pixels.dtype != np.uint8:
        values = pixels.astype(np.float64)
        low, high = (values.min(), values.max()) if pixels.shape[2] == 1 else (0.0, 1.0)
        scaled = (values - low) / ((high - low) or 1)
        pixels = np.rint(255 * np.nan_to_num(scaled.clip(0, 1))).astype(np.uint8)
    path = Path(name or f"picture-{next(_numbers)}.png").with_suffix(".png")
    path.write_bytes(png(pixels.tobytes(), pixels.shape[1], pixels.shape[0], pixels.shape[2]))
    return str(path)


def png(pixels: bytes, width: int, height: int, channels: int) -> bytes:
    """Return a PNG file of (height, width, channels) bytes."""
    row = width * channels
    lines = b"".join(b"\0" + pixels[at : at + row] for at in range(0, height * row, row))
    header = struct.pack(">2I5B", width, height, 8, _COLOURS[channels], 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
