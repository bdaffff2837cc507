"""Norms, caps and activations of rows, shared by several kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from py_engine.cpu.call import Array

# Abramowitz and Stegun 7.1.26: 1 - erf(z) = (the polynomial of 1 / (1 + 0.3275911 z)) * exp(-z^2), within 1.5e-7
ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def normed(x: Array, norm: Array | np.float32, eps: float) -> Array:
    """RMS norm of rows."""
    return x * inverse_rms(x, eps) * norm


def inverse_rms(x: Array, eps: float) -> Array:
    """1 / rms(x) of each row, (..., 1)."""
    total = np.add.reduce(x * x, axis=-1, keepdims=True, dtype=np.float32)  # mean() takes three times as long
    scale: Array = 1 / np.sqrt(total / np.float32(x.shape[-1]) + np.float32(eps))
    return scale.astype(np.float32, copy=False)


def capped(x: Array, cap: float) -> Array:
    return np.float32(cap) * np.tanh(x / np.float32(cap)) if cap else x


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    """GELU in its tanh approximation."""
    return np.float32(0.5) * x * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * x * (1 + np.float32(0.044715) * x * x)))


def gelu_quick(x: Array) -> Array:
    """GELU in its sigmoid approximation."""
    return x / (1 + np.exp(np.float32(-1.702) * x))


def gelu_erf(x: Array) -> Array:
    """GELU by the error function, as in activation.wgsl."""
    z = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = np.full_like(t, ERF[-1])
    for factor in ERF[-2::-1]:
        series = series * t + np.float32(factor)
    tail = np.float32(0.5) * series * t * np.exp(-z * z)
    return x * np.where(x < 0, tail, 1 - tail)


def limits_of(params: Mapping[str, Any]) -> tuple[float, float]:
    """gated()'s limits in an op's #params."""
    return params.get("LIMIT", 0.0), params.get("UP_LIMIT", 0.0)


def gated(act: str, gate: Array, up: Array, limit: float = 0, up_limit: float = 0) -> Array:
    """activation(gate) * up. `limit`: of both, if it is not 0; `up_limit`: of "situ", that of up."""
    if act == "swiglu_oai":
        g = np.minimum(gate, np.float32(7))
        return g / (1 + np.exp(np.float32(-1.702) * g)) * (np.clip(up, -7, 7) + 1)
    most = np.float32(limit)
    if act == "situ":
        bounded = np.float32(up_limit) * np.tanh(up / np.float32(up_limit)) if up_limit else up
        return most * np.tanh(gate / most) / (1 + np.exp(-gate)) * bounded
    if act == "clamped_silu":
        return silu(np.minimum(gate, most)) * np.clip(up, -most, most)
    if limit:
        return np.minimum(ACTIVATIONS[act](gate), most) * np.clip(up, -most, most)
    return ACTIVATIONS[act](gate) * up


def relu2(x: Array) -> Array:
    """Squared ReLU (So et al. 2021)."""
    return np.square(np.maximum(x, np.float32(0)))


def hard_sigmoid(x: Array) -> Array:
    return np.clip((x + np.float32(3)) / np.float32(6), 0, 1)


def relu(x: Array) -> Array:
    return np.maximum(x, np.float32(0))


def xielu(x: Array, factors: Mapping[str, float]) -> Array:
    """xIELU with its factors alpha_n, alpha_p, beta and eps, as in activation.wgsl."""
    alpha_n, alpha_p, beta, eps = (np.float32(factors[name]) for name in ("alpha_n", "alpha_p", "beta", "eps"))
    negative = (np.expm1(np.minimum(x, eps)) - x) * alpha_n
    return beta * x + np.where(x > 0, x * x * alpha_p, negative)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_quick": gelu_quick,
    "gelu_erf": gelu_erf,
    "relu": relu,
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": lambda x: x * hard_sigmoid(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(np.float32(0), x),
    "softplus2": lambda x: np.logaddexp2(np.float32(0), x),
    "tanh": np.tanh,
    "relu2": relu2,
}


def rows_times(x: Array, w: Array) -> Array:
    """x W^T, a row at a time: products of several rows at once may add in another order than those of one."""
    return x @ w.T if len(x) == 1 else np.concatenate([x[m : m + 1] @ w.T for m in range(len(x))])


def round_to_bytes(x: Array) -> Array:
    """Round x (n, cols) as quantize_x.wgsl: a scale per group of 32, 255 levels."""
    groups = x.reshape(-1, 32)
    largest = np.abs(groups).max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = np.where(largest > 0, np.round(groups * (np.float32(127) / largest)), 0)
    return (levels * (largest / np.float32(127))).reshape(x.shape)
