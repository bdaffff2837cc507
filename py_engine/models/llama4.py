"""Llama 4: attention in chunks, without them and without rotation in every fourth layer; experts with weighted inputs.

Source: llama.cpp's `llama4` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import natural, windowed_ropes, windows
from py_engine.plan.attention import Temperature

NEOX = False
CHUNK = 8192  # positions; the metadata does not say
PERIOD = 4  # the last layer of so many rotates nothing and, if the metadata has no other pattern, has no chunks
LARGE = 128  # experts of the model that does not normalise queries and keys
TEMPERATURE_SCALE = 0.1


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base, key = super().from_gguf(header), f"{header.architecture}.attention.sliding_window"
        if base.mixture is None or (key in header.metadata and not natural(header, "attention.sliding_window")):
            raise WispError("Llama 4 without experts or chunks is not supported.", "unsupported_architecture")
        chunks = windows(replace(header, metadata=header.metadata | {key: CHUNK}), base.block_count, PERIOD)
        ropes = (
            config.NO_ROPE if (i + 1) % PERIOD == 0 else rope
            for i, rope in enumerate(windowed_ropes(header, base.ropes, chunks))
        )
        return replace(base, windows=chunks, ropes=tuple(ropes), chunked=True)

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i: rotated queries and keys are normalised, others have a temperature."""
        assert self.mixture
        if self.ropes[i].dim:
            return replace(self, unit_qk_norm=self.mixture.expert_count != LARGE)
        return replace(self, temperature=Temperature(CHUNK, TEMPERATURE_SCALE, first=1))


build = decoder.build
output = decoder.output
