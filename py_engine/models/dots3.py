"""dots3-note: DeepSeek's latent attention with other dimensions in layers with a window, and a gate for each head.

The rotated key has a norm of its own. Layers without a window have an index that chooses the positions a token attends
to, as in GLM 5 (glm_dsa.py). Source: llama.cpp's `dots3note` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import decoder, deepseek2
from py_engine.models.common import (
    block_count,
    dimension,
    natural,
    per_layer,
    windowed_ropes,
    windows,
)
from py_engine.models.indexer import index_shape
from py_engine.plan.indexer import IndexShape
from py_engine.plan.latent_attention import LatentShape

NEOX = False


@dataclass(frozen=True)
class Config(deepseek2.Config):
    """The hyperparameters. Where layers differ: those of layers without a window, with the most heads."""

    layers: tuple[LatentShape, ...] = ()
    index_of: IndexShape | None = None

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        blocks = block_count(header) - natural(header, "nextn_predict_layers")
        heads = per_layer(header, "attention.head_count", blocks)
        name = f"{header.architecture}.attention.head_count"
        most = {name: max(heads), f"{name}_kv": 1}
        base = super().from_gguf(replace(header, metadata=header.metadata | most))
        found = windows(header, blocks, 1)
        assert base.latent
        local = _windowed_shape(header, base.latent.rope)
        ropes = tuple(replace(rope, factor=1.0) if rope.scaling == "none" else rope for rope in base.ropes)
        shapes = tuple(
            replace(local if window else base.latent, heads=n) for window, n in zip(found, heads, strict=True)
        )
        return replace(
            base,
            layers=shapes,
            windows=found,
            ropes=windowed_ropes(header, ropes, found),
            index_of=index_shape(header, base.latent.rope, neox=True),
        )

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        shape = self.layers[i]
        scale = (shape.nope + shape.rope) ** -0.5
        index = None if self.windows[i] else self.index_of
        return replace(
            self, latent=shape, head_count=shape.heads, head_dim=shape.row, attention_scale=scale, index=index
        )


def _windowed_shape(header: Header, rope: int) -> LatentShape:
    rank, key, value = (
        dimension(header, f"attention.{name}_swa") for name in ("kv_lora_rank", "key_length_mla", "value_length_mla")
    )
    if key <= rope or any(n % 4 for n in (rank, key, value)):
        raise WispError("Wisp cannot run latent attention of these dimensions.", "corrupt_header")
    return LatentShape(1, rank, key - rope, rope, value)


build = decoder.build
output = decoder.output
