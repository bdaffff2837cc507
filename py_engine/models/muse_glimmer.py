"""Muse Glimmer: normalised embeddings, gates of attention, norms before and after each block.

Only layers with a sliding window rotate. Source: llama.cpp's `muse-glimmer` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import number, optional_number, rope_base, windowed_dimensions, windows

NEOX = False
PERIOD = 4  # the last layer of so many has no window
CAP = 30.0  # of the logits, where the metadata has none
POST_NORM_EPS = 1e-8


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        rope, layers = base.ropes[0], windows(header, base.block_count, PERIOD)
        local = replace(
            rope.unscaled(rope_base(header, "rope.freq_base_swa", rope.base)),
            dim=windowed_dimensions(header, rope.dim, base.head_dim),
        )
        return replace(
            base,
            windows=layers,
            ropes=tuple(local if window else config.NO_ROPE for window in layers),
            unit_embeddings=True,
            post_norm_eps=POST_NORM_EPS,
            logit_scale=number(header, "logit_scale"),
            final_soft_cap=optional_number(header, "final_logit_softcapping", CAP),
        )


build = decoder.build
output = decoder.output
