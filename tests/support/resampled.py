"""Clips at another rate, as llama.cpp's reader makes them: a Butterworth low-pass, then linear interpolation."""

from math import cos, pi, sin
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def resampled(samples: Array, rate: int, wanted: int) -> Array:
    """Mono samples at the rate `wanted`."""
    if rate == wanted:
        return samples
    if rate > wanted:
        return _on_lines(_low_pass(samples, wanted / rate), rate, wanted)
    return _low_pass(_on_lines(samples, rate, wanted), rate / wanted)


def _low_pass(samples: Array, ratio: float) -> Array:
    """Remove frequencies above `ratio` times the Nyquist frequency, by a Butterworth filter of fourth order."""
    found = samples.astype(np.float32)
    for stage in (1, 3):
        alpha = sin(pi * ratio) * cos(stage * pi / 8)
        b0 = (1 - cos(pi * ratio)) / 2 / (1 + alpha)
        a1, a2 = -2 * cos(pi * ratio) / (1 + alpha), (1 - alpha) / (1 + alpha)
        r1 = r2 = 0.0
        for i, x in enumerate(found.tolist()):
            y = b0 * x + r1
            r1, r2 = 2 * b0 * x - a1 * y + r2, b0 * x - a2 * y
            found[i] = y
    return found


def _on_lines(samples: Array, rate: int, wanted: int) -> Array:
    count = len(samples) * wanted // rate
    expected = count * (rate % wanted) + count * (rate // wanted) // wanted
    count += bool(len(samples)) and expected <= len(samples)  # as many as miniaudio expects
    at = np.arange(count, dtype=np.int64) * rate
    i, part = at // wanted, at % wanted / wanted
    lines = np.concatenate([[0], samples, np.zeros(1)])
    here = np.minimum(i, len(samples))
    found = lines[here] + part * (lines[here + 1] - lines[here])
    return np.where(i < len(samples), found, 0).astype(np.float32)
