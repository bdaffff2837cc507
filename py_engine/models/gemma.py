"""Gemma 1, 2 and 3: scaled embeddings and GELU gates.

From Gemma 2: norms after each block, soft caps, sliding windows. Gemma 3: q and k norms, and another RoPE base in
layers with a window. EmbeddingGemma is a Gemma 3 with bidirectional attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import number, optional_number, rope_base, windows
from py_engine.plan.rope import RopeSpec

NEOX = True
PERIODS = {"gemma": 0, "gemma2": 2, "gemma3": 6, "gemma-embedding": 6}
LAYERS_27B = {"gemma2": 46, "gemma3": 62}  # the 27B models scale attention by n_embd / n_head


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base, name = super().from_gguf(header), header.architecture
        layers, ropes = windows(header, base.block_count, PERIODS[name]), base.ropes
        if name in ("gemma3", "gemma-embedding"):
            local = RopeSpec(ropes[0].dim, rope_base(header, "rope.freq_base_swa"))
            ropes = tuple(local if window else rope for window, rope in zip(layers, ropes, strict=True))
        width = base.embedding_length / base.head_count if base.block_count == LAYERS_27B.get(name) else base.head_dim
        return replace(
            base,
            windows=layers,
            ropes=ropes,
            causal=name != "gemma-embedding",
            whole_media="all" if name == "gemma3" else "",
            activation="gelu",
            embedding_scale=base.embedding_length**0.5,
            attention_scale=number(header, "attention.scale", width**-0.5),
            attention_soft_cap=optional_number(header, "attn_logit_softcapping"),
            final_soft_cap=optional_number(header, "final_logit_softcapping"),
        )


build = decoder.build
output = decoder.output
