"""Apertus: llama with q and k norms and an ungated network whose activation, xIELU, has factors for each layer.

Source: llama.cpp's `apertus` architecture, and ggml's xIELU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log1p

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.plan.activations import Xielu

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    xielus: tuple[Xielu, ...] = ()  # of every layer

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        factors = zip(
            *(_per_layer(header, f"xielu.{name}", base.block_count) for name in ("alpha_n", "alpha_p", "beta", "eps")),
            strict=True,
        )
        layers = (Xielu(beta + _softplus(n), _softplus(p), beta, eps) for n, p, beta, eps in factors)
        return replace(base, xielus=tuple(layers))

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        return replace(self, xielu=self.xielus[i])


def _softplus(x: float) -> float:
    return x if x > 20 else log1p(exp(x))


def _per_layer(header: Header, key: str, layers: int) -> list[float]:
    """Read a number for every layer. The metadata may hold one for all."""
    value = header.get(key)
    numbers: list[float] = value if isinstance(value, list) else [value] * layers
    if len(numbers) < layers or not all(isinstance(x, float) and abs(x) < 1e3 for x in numbers):
        raise WispError(f"{key} in the file's metadata must be a number for each of {layers} layers.", "corrupt_header")
    return numbers[:layers]


build = decoder.build
output = decoder.output
