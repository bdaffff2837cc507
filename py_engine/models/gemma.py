"""Gemma 1, 2 and 3: scaled embeddings and GELU gates.

From Gemma 2: norms after each block, soft caps, sliding windows. Gemma 3: q and k norms, and another RoPE base in
layers with a window. EmbeddingGemma is a Gemma 3 with bidirectional attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import optional_number, rope_base, windowed_ropes, windows

NEOX = True
PERIODS = {"gemma2": 2, "gemma3": 6, "gemma-embedding": 6}
FINAL_CAPS = {"gemma2": 30.0, "gemma3": 0.0, "gemma-embedding": 0.0}  # where the metadata has none
LAYERS_27B = {"gemma2": 46, "gemma3": 62}  # the 27B models scale attention by n_embd / n_head


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base, name = super().from_gguf(header), header.architecture
        if name == "gemma":
            return replace(base, activation="gelu", embedding_scale=base.embedding_length**0.5, scaled_media=True)
        layers, ropes = windows(header, base.block_count, PERIODS[name]), base.ropes
        if name in ("gemma3", "gemma-embedding"):
            local = ropes[0].unscaled(rope_base(header, "rope.freq_base_swa"))
            ropes = tuple(local if window else rope for window, rope in zip(layers, ropes, strict=True))
        if name == "gemma2":
            ropes = windowed_ropes(header, ropes, layers)
        width = base.embedding_length / base.head_count if base.block_count == LAYERS_27B.get(name) else base.head_dim
        return replace(
            base,
            windows=layers,
            ropes=ropes,
            causal=base.causal and name != "gemma-embedding",
            activation="gelu",
            embedding_scale=base.embedding_length**0.5,
            scaled_media=name == "gemma2",
            attention_scale=width**-0.5,
            attention_soft_cap=optional_number(header, "attn_logit_softcapping", 50.0) if name == "gemma2" else 0.0,
            final_soft_cap=optional_number(header, "final_logit_softcapping", FINAL_CAPS[name]),
        )


build = decoder.build
output = decoder.output
