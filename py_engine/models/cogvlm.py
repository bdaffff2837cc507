"""CogVLM: llama with a second set of matrices in each layer, for the tokens of pictures (visual experts).

A batch with pictures is multiplied by both, and each token keeps the results of its own. Rotation has llama.cpp's base,
whatever the metadata says. Source: llama.cpp's `cogvlm` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.plan.cache import Cache
from py_engine.plan.media import keep_of_media
from py_engine.plan.ops import AttentionOptions, Ops, Projection
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Factors, Rope, RopeSpec
from py_engine.plan.weights import Weights

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        if base.head_count_kv != base.head_count or base.head_count * base.head_dim != base.embedding_length:
            raise WispError(
                "Wisp needs a CogVLM whose heads fill its width, each with keys of its own; this file's do not.",
                "unsupported_architecture",
            )
        rope = RopeSpec(base.head_dim, factors=Factors.NONE)
        return replace(base, ropes=(rope,) * base.block_count, visual_experts=True)


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state."""
    if not ops.reads_media:
        return decoder.build(cfg, w, ops, ropes, caches)
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, cfg.embedding_length))
    for i in range(cfg.block_count):
        _Layer(cfg, w, ops, f"blk.{i}.").add(x, ropes[i], caches[i])
        ops.end_layer(x)
    return x


output = decoder.output


@dataclass(frozen=True)
class _Layer:
    """A layer of a batch with pictures. `b`: the prefix of its tensors' names."""

    cfg: Config
    w: Weights
    ops: Ops
    b: str

    def add(self, x: Buffer, rope: Rope, cache: Cache) -> None:
        """x += attention; x += feed-forward network."""
        cfg, ops, n, ff = self.cfg, self.ops, self.cfg.embedding_length, self.cfg.feed_forward_length
        qkv = self._product("qkv", self._normed(x, "attn_norm"), [("attn_qkv", 3 * n)], ["vis_attn_qkv"], n)
        q = ops.split_qkv(qkv, cache, cfg.heads, rope, None, cfg.eps)
        ops.quantize_cache(cache, n)
        options = AttentionOptions(cfg.attention_scale, whole_media=cfg.sees_whole_media(0))
        attended = ops.attention(q, cache, cfg.heads, options)
        ops.add_scaled(self._product("out", attended, [("attn_output", n)], ["vis_attn_output"], n), 1.0, x)
        normed = self._normed(x, "ffn_norm")
        y = self._product("gate_up", normed, [("ffn_gate", ff), ("ffn_up", ff)], ["vis_gate", "vis_up"], n)
        hidden = ops.activate(y, ops.rows("hidden", ff, ops.input_dtype), ff, "silu", gated=True)
        ops.add_scaled(self._product("out", hidden, [("ffn_down", n)], ["vis_down"], ff), 1.0, x)

    def _normed(self, x: Buffer, name: str) -> Buffer:
        norm = self.w.vector((f"{self.b}{name}.weight", self.cfg.embedding_length))
        return self.ops.normed_input(x, norm, self.cfg.eps)

    def _product(self, name: str, x: Buffer, of_text: list[tuple[str, int]], of_media: list[str], cols: int) -> Buffer:
        """Of each token, the product with its own matrices. `of_text`: names and rows; `of_media` has as many rows."""
        rows = [size for _, size in of_text]
        text, media = (
            self.w.stack([(f"{self.b}{tensor}.weight", size) for tensor, size in zip(names, rows, strict=True)], cols)
            for names in ([tensor for tensor, _ in of_text], of_media)
        )
        y = self.ops.normed_stack(name, x, Projection(text))
        keep_of_media(self.ops, y, self.ops.normed_stack("media_" + name, x, Projection(media)), sum(rows))
        return y
