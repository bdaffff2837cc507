"""Norms, caps and activations of rows, shared by several kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from py_engine.cpu.call import Array


def normed(x: Array, norm: Array | np.float32, eps: float) -> Array:
    """RMS norm of rows."""
    return x * inverse_rms(x, eps) * norm


def inverse_rms(x: Array, eps: float) -> Array:
    """1 / rms(x) of each row, (..., 1)."""
    scale: Array = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True, dtype=np.float32) + np.float32(eps))
    return scale.astype(np.float32)


def capped(x: Array, cap: float) -> Array:
    return np.float32(cap) * np.tanh(x / np.float32(cap)) if cap else x


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    """GELU in its tanh approximation."""
    return np.float32(0.5) * x * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * x * (1 + np.float32(0.044715) * x * x)))


def gated(act: str, gate: Array, up: Array) -> Array:
    """activation(gate) * up."""
    if act == "swiglu_oai":
        g = np.minimum(gate, np.float32(7))
        return g / (1 + np.exp(np.float32(-1.702) * g)) * (np.clip(up, -7, 7) + 1)
    return ACTIVATIONS[act](gate) * up


def relu2(x: Array) -> Array:
    """Squared ReLU (So et al. 2021)."""
    return np.square(np.maximum(x, np.float32(0)))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"silu": silu, "gelu": gelu, "tanh": np.tanh, "relu2": relu2}
