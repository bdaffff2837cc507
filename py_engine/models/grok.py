"""Grok 1 and 2: a mixture of experts with norms after its blocks; in Grok 2, a dense network beside the experts.

Source: llama.cpp's `grok` architecture, whose values stand in for those that the metadata lacks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import number, optional_number
from py_engine.models.decoder import Layer
from py_engine.models.mixture import ExpertLayer
from py_engine.plan import experts
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.rows import Parts, copy_columns
from py_engine.plan.weights import Weights

NEOX = True
POST_NORMS = ("layer_output_norm", "post_ffw_norm")  # names of the norm after the experts, in older and newer files


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        base.need_mixture("Grok")
        for key in ("yarn_attn_factor", "yarn_ext_factor"):
            if number(header, f"rope.scaling.{key}", 1.0) != 1.0:
                raise WispError(
                    f"Grok with a rope.scaling.{key} other than 1 is not supported.", "unsupported_architecture"
                )
        beta_fast = number(header, "rope.scaling.yarn_beta_fast", 8.0)
        return replace(
            base,
            ropes=tuple(replace(rope, beta_fast=beta_fast) for rope in base.ropes),
            activation="gelu",
            embedding_scale=number(header, "embedding_scale", 78.38367176906169),
            attention_scale=number(header, "attention.output_scale", 0.08838834764831845),
            attention_soft_cap=number(header, "attn_logit_softcapping", 30.0),
            logit_scale=number(header, "logit_scale", 0.5773502691896257),
            final_soft_cap=optional_number(header, "final_logit_softcapping"),
            post_norms=("attn_output_norm", ""),
        )


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    table = w.matrix("token_embd.weight", cfg.vocab, cfg.embedding_length)
    x = ops.embed(table, cfg.embedding_scale, media_row="scaled")
    for i in range(cfg.block_count):
        layer = Layer(cfg, w, ops, f"blk.{i}.", ropes[i], 0)
        layer.add_attention(layer.attention(x, caches[i]), x)
        _add_networks(cfg, layer, x)
        ops.end_layer(x)
    return x


def _add_networks(cfg: Config, layer: Layer, x: Buffer) -> None:
    """x += the norm of the experts' output, or of the mean of theirs and the dense network's."""
    w, ops, b, n, mixture = layer.w, layer.ops, layer.b, cfg.embedding_length, cfg.mixture
    assert mixture
    h = ops.rms_norm("experts_input", x, w.vector((b + "ffn_norm.weight", n)), cfg.eps, ops.input_dtype)
    hidden, down = ExpertLayer(cfg, mixture, w, ops, b).hidden(h, None)
    eps = cfg.eps
    if b + "ffn_up.weight" in w:
        matrix = w.matrix(b + "ffn_down.weight", n, cfg.feed_forward_length)
        out = ops.project("experts_out", layer.feed_forward(x), matrix, None)
        eps *= 2  # the sum is divided by sqrt(2); for a norm that only scales epsilon
    else:
        out = ops.rows("experts_out", n)
        copy_columns(ops, Parts(x), Parts(out), n, scale=0.0)  # the experts' outputs are added to zeros
    experts.combine(ops, hidden, down, out)
    old, new = (f"{b}{name}.weight" for name in POST_NORMS)
    ops.add_norm(out, w.vector((old if old in w else new, n)), x, eps)


output = decoder.output
