"""Chameleon (Meta 2024): text, and pictures as tokens of the same vocabulary. As in llama.cpp, answers are text only.

Queries and keys have layer norms with weights for each head. The norms of larger models come after the blocks
(`swin_norm`); as llama.cpp has it, their feed-forward networks then read what attention adds to the residual stream,
not the stream. Source: llama.cpp's `chameleon` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import switch
from py_engine.models.decoder import Layer
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights

NEOX = False
FIRST_OF_PICTURES, END_OF_PICTURES = 4, 8196  # the tokens of pictures
HEAD_NORM_EPS = 1e-5  # whatever that of the other norms is


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    norms_after: bool = False  # norms follow the blocks (swin_norm)

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        if base.vocab < END_OF_PICTURES:
            raise WispError(f"A vocabulary of {base.vocab} lacks Chameleon's tokens of pictures.", "corrupt_header")
        after = switch(header, "swin_norm", False)
        return replace(
            base,
            head_layer_norm_eps=HEAD_NORM_EPS,
            banned=(FIRST_OF_PICTURES, END_OF_PICTURES - FIRST_OF_PICTURES),
            norms_after=after,
            attn_norm="" if after else "attn_norm",
            ffn_norm="" if after else "ffn_norm",
        )


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    if not cfg.norms_after:
        return decoder.build(cfg, w, ops, ropes, caches)
    n = cfg.embedding_length
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n))
    for i in range(cfg.block_count):
        layer = Layer(cfg, w, ops, f"blk.{i}.", ropes[i], 0)
        attention_norm, network_norm = (w.vector((f"{layer.b}{name}.weight", n)) for name in ("attn_norm", "ffn_norm"))
        attended = layer.project_attention(layer.attention(x, caches[i]))
        added = ops.rms_norm("attended", attended, attention_norm, cfg.eps)
        ops.add_scaled(added, 1.0, x)
        ops.add_norm(layer.project_feed_forward(layer.feed_forward(added)), network_norm, x, cfg.eps)
        ops.end_layer(x)
    return x


output = decoder.output
