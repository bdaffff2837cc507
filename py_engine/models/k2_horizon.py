"""K2 Horizon: norms of parts of a row, norms with weights of each head, and gates of attention by softplus to base 2.

Some of its models have experts. Experts of attention's values are not supported. Source: llama.cpp's `k2-horizon`
architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import natural

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base, groups = super().from_gguf(header), natural(header, "attention.group_norm_groups") or 1
        if natural(header, "attention.value_expert_count"):
            raise WispError("K2 Horizon with experts of values is not supported yet.", "unsupported_architecture")
        if base.embedding_length % groups:
            raise WispError(
                f"Rows of {base.embedding_length} values do not divide into {groups} parts.", "corrupt_header"
            )
        return replace(base, norm_groups=groups, head_norms=True, gate_activation="softplus2")


build = decoder.build
output = decoder.output
