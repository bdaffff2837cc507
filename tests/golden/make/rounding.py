"""Wisp's numpy engine with the one rounding of llama.cpp's that is coarse: it looks GELU up in tables of float16."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from py_engine.cpu.numerics import ACTIVATIONS, gelu, gelu_quick

WHOLE = 10  # inputs of this size are not looked up


def looked_up_gelu(x: np.ndarray) -> np.ndarray:
    """ggml_vec_gelu_f32."""
    near = np.clip(x, -WHOLE, WHOLE)
    found = halved(gelu(halved(near)))
    return np.where(x <= -WHOLE, np.float32(0), np.where(x >= WHOLE, x, found))


def looked_up_gelu_quick(x: np.ndarray) -> np.ndarray:
    """ggml_vec_gelu_quick_f32."""
    return halved(gelu_quick(halved(x)))


def halved(x: np.ndarray) -> np.ndarray:
    """Round to float16."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


@contextmanager
def tables_of_gelu() -> Iterator[set[str]]:
    """Let the numpy engine look GELU up, too; yield the names of what it looked up."""
    before, used = dict(ACTIVATIONS), set[str]()

    def noting(name: str, function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        def compute(x: np.ndarray) -> np.ndarray:
            used.add(name)
            return function(x)

        return compute

    for name, function in (("gelu", looked_up_gelu), ("gelu_quick", looked_up_gelu_quick)):
        ACTIVATIONS[name] = noting(name, function)
    try:
        yield used
    finally:
        ACTIVATIONS.update(before)
