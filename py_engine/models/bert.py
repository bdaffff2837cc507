"""BERT and its descendants: encoders with a norm after each block.

BERT adds position embeddings. Nomic BERT uses RoPE and gated networks, or mixtures of experts in some layers. Jina BERT
uses ALiBi and gated GELU networks; its version 3 uses RoPE. Every token is of type 0.
Source: llama.cpp's `bert`, `nomic-bert`, `nomic-bert-moe`, `jina-bert-v2` and `jina-bert-v3` architectures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config
from py_engine.models.decoder import Layer
from py_engine.models.mixture import ExpertLayer
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights

NEOX = True
ALIBI_MAX_BIAS = 8.0  # Jina's first slope is 2^(-8 / heads), its last 2^-8


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base, name = super().from_gguf(header), header.architecture
        return replace(
            base,
            causal=False,
            activation="silu" if name == "nomic-bert" else "gelu",
            ropes=base.ropes
            if name in ("nomic-bert", "nomic-bert-moe", "jina-bert-v3")
            else (config.NO_ROPE,) * base.block_count,
            alibi_max_bias=ALIBI_MAX_BIAS if name == "jina-bert-v2" else 0.0,
        )


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    n = cfg.embedding_length
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n))
    if types := w.rows("token_types.weight"):
        ops.embed(w.matrix("token_types.weight", types, n), row="first")
    if "position_embd.weight" in w:
        ops.embed(w.matrix("position_embd.weight", cfg.context_length, n), row="position")
    x = _norm(cfg, w, ops, "token_embd_norm", x, "stream")
    for i in range(cfg.block_count):
        layer = Layer(cfg, w, ops, f"blk.{i}.", ropes[i], cfg.windows[i])
        out = layer.project_attention(layer.attention(x, caches[i]))
        ops.add_scaled(x, 1.0, out)
        mid = _norm(cfg, w, ops, layer.b + "attn_output_norm", out, "mid")
        if layer.b + "attn_norm_2.weight" in w:  # some Jina models add the layer's input a second time
            ops.add_scaled(x, 1.0, mid)
            mid = _norm(cfg, w, ops, layer.b + "attn_norm_2", mid, "mid2")
        if cfg.mixture and layer.b + "ffn_gate_inp.weight" in w:
            ExpertLayer(cfg, cfg.mixture, w, ops, layer.b).add(mid, mid, None)
        else:
            layer.add_feed_forward(layer.feed_forward(mid), mid)
        x = _norm(cfg, w, ops, layer.b + "layer_output_norm", mid, "stream")
    return x


def _norm(cfg: Config, w: Weights, ops: Ops, name: str, x: Buffer, to: str) -> Buffer:
    n = cfg.embedding_length
    return ops.layer_norm(to, x, w.vector((name + ".weight", n)), w.optional_vector((name + ".bias", n)), cfg.eps)
