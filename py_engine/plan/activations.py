"""Activation functions by name, as the #params of wgsl/lib/activation.wgsl."""

from __future__ import annotations


def activation_params(name: str) -> dict[str, str | float]:
    """The #params of an activation. "silu<7": SiLU, at most 7, and what it gates within -7 to 7."""
    name, _, limit = name.partition("<")
    return {"ACTIVATION": name, **({"LIMIT": float(limit)} if limit else {})}
