"""Pictures of any size, drawn: coloured squares and noise."""

from typing import Any

import numpy as np


def drawn(width: int, height: int) -> np.ndarray[Any, Any]:
    """The picture of that size whose pixels the goldens of sizes have, uint8 (height, width, 3)."""
    random = np.random.default_rng(4099 * width + height)
    squares = random.integers(0, 256, (-(-height // 7), -(-width // 7), 3))
    noisy = np.kron(squares, np.ones((7, 7, 1)))[:height, :width] + random.normal(0, 20, (height, width, 3))
    return np.clip(noisy, 0, 255).astype(np.uint8)
