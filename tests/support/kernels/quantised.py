"""Quantised matrices, assembled from the goldens' blocks."""

from pathlib import Path

import numpy as np

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import quants
from py_engine.plan.plan import Weight
from tests.support.kernels.bench import Bench

BLOCKS = np.load(Path(__file__).parents[2] / "golden" / "dequant.npz")


def matrix(bench: Bench, type: Q, name: str, rows: int, cols: int, tame: bool = False) -> Weight:
    """A matrix that repeats the file's blocks. `tame`: only blocks of similar magnitude, so that none dominates."""
    blocks, values = BLOCKS[f"{type.name}.raw"], np.abs(BLOCKS[f"{type.name}.f32"]).max(axis=1)
    if tame:
        blocks = blocks[(values > np.median(values) / 100) & (values <= np.median(values) * 2)]
    count = rows * cols // quants.LAYOUTS[type].block
    bench.raw[name] = blocks[np.arange(count) % len(blocks)].reshape(-1)
    weight = Weight(name, type, rows, cols, ((name, 0, rows),))
    bench.plan.weights[name] = weight
    return weight
