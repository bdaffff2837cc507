"""Distances of logits, embeddings and ids from the exact reference, and their tolerances."""

from typing import Any

import numpy as np

# Largest difference and mean KL divergence (nats) for logits of standard deviation 3: the rounding error of float32, or
# of some float16 in between, or of activations in bytes, with which llama.cpp itself errs by 0.26 and 1.4e-3. A real
# mistake (a wrong pairing, a forgotten factor) causes 1 to 14.
TOLERANCE = {"f32": (2e-3, 1e-6), "f16": (1.5e-1, 1e-3), "int8": (3e-1, 1.4e-3)}

EMBEDDING_TOLERANCE = {"f32": 1e-4, "f16": 5e-3}  # largest difference after normalisation


def distance(want: np.ndarray, got: np.ndarray) -> tuple[float, float]:
    """(largest absolute difference, mean KL(expected || got))."""
    a, b = log_softmax(want), log_softmax(got)
    return float(np.abs(want - got).max()), float((np.exp(a) * (a - b)).sum(-1).mean())


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Rows of log probabilities, in float64."""
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


def assert_close(want: np.ndarray, got: np.ndarray, precision: str) -> None:
    """Assert that every position is within the tolerance."""
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    difference, kl = distance(want, got)
    most, most_kl = TOLERANCE[precision]
    said = f"max {difference:.3g} (of {most}), KL {kl:.3g} (of {most_kl})"
    assert difference <= most, said
    assert kl <= most_kl, said


def assert_same_direction(want: np.ndarray, got: np.ndarray, precision: str) -> None:
    """Assert that embeddings (..., n_embd) agree after normalisation."""
    assert got.shape == want.shape
    a, b = (np.asarray(x, np.float64) / np.linalg.norm(x, axis=-1, keepdims=True) for x in (want, got))
    assert np.abs(a - b).max() <= EMBEDDING_TOLERANCE[precision]


def same_ids(want: Any, got: Any, margins: Any, noise: float) -> None:
    """Assert that greedy ids are equal up to one where the reference's margin is within twice the `noise`."""
    for k, (a, b) in enumerate(zip(want, got, strict=True)):
        if a != b:
            assert margins[k] <= 2 * noise, f"id {k} is {b}, not {a}, by {margins[k]:.3g}"
            return
