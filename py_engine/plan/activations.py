"""Activation functions by name, as the #params of wgsl/lib/activation.wgsl."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Xielu:
    """The activation xIELU (Huang and Schlag 2024) of a layer.

    beta x + alpha_p x^2 for positive x, else beta x + alpha_n (exp(min(x, eps)) - 1 - x).
    """

    alpha_n: float
    alpha_p: float
    beta: float
    eps: float


def activation_params(name: str) -> dict[str, str | float]:
    """The #params of an activation. "silu<7": SiLU, at most 7, and what it gates within -7 to 7.

    "clamped_silu<7": SiLU of the gate or 7, whichever is less, and what it gates within -7 to 7.
    "situ<7<5": 7 * tanh(gate / 7) * sigmoid(gate), and 5 * tanh(x / 5) of what it gates; 0: it is not bounded.
    """
    name, *limits = name.split("<")
    return {"ACTIVATION": name, **{key: float(x) for key, x in zip(("LIMIT", "UP_LIMIT"), limits, strict=False)}}
