"""GroveMoE (Wu et al. 2025): Qwen 3 with experts; neighbouring ones share a second, smaller network.

The second networks read what the first ones give. Source: llama.cpp's `grovemoe` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import count, dimension, number

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base, sharing = super().from_gguf(header), count(header, "experts_per_group")
        if not base.mixture or base.mixture.expert_count % sharing or sharing < 2:
            raise WispError(f"{sharing} experts cannot share a network of this model.", "corrupt_header")
        mixture = replace(
            base.mixture,
            sharing=sharing,
            shared_length=dimension(header, "expert_chunk_feed_forward_length"),
            shared_scale=number(header, "expert_group_scale"),
        )
        return replace(base, mixture=mixture)


build = decoder.build
output = decoder.output
