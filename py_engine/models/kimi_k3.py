"""Kimi K3: Kimi Linear's layers, and attention over the residual stream as it was some layers ago.

Every few layers (`attn_res.block_size`) the stream is stored, and begins again with attention's output alone. A block
reads a mean of the stored streams and the present one. The activation bounds both of its factors, and the experts may
have inputs and outputs of their own width. Source: llama.cpp's `kimi-k3` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import decoder, deepseek2
from py_engine.models.bailing3 import decay_bound
from py_engine.models.common import dimension, natural, number, optional_number, without_attention
from py_engine.models.decoder import Layer, normed
from py_engine.models.mixture import ExpertLayer
from py_engine.models.recurrent import StateSpace
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope, RopeSpec
from py_engine.plan.rows import Parts, copy_columns, zero
from py_engine.plan.streams import attend
from py_engine.plan.weights import Weights

NEOX = False


@dataclass(frozen=True)
class Config(deepseek2.Config):
    """The hyperparameters."""

    stored_every: int = 0  # layers between those that store the residual stream; 0: none does

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        recurrent = without_attention(header, base.block_count)
        heads, size = base.head_count, dimension(header, "kda.head_dim", times=base.head_count)
        kernel, key = dimension(header, "ssm.conv_kernel"), "kda.gate_lower_bound"
        bound = 0.0 if header.arch(key, None) is None else decay_bound(header)
        states = StateSpace(kernel, heads * size, size, heads, heads, decay_bound=bound, negative_rates=True)
        gate, up = number(header, "activation.situ_beta"), optional_number(header, "activation.situ_linear_beta")
        return replace(
            base,
            recurrent=recurrent,
            attending=tuple(not state for state in recurrent),
            state_space=states.checked(),
            ropes=tuple(RopeSpec(rope.dim, rotates=False) for rope in base.ropes),
            activation=f"situ<{gate}<{up}",
            stored_every=natural(header, "attn_res.block_size"),
        )


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last mean of streams (n, n_embd)."""
    n, every, count = cfg.embedding_length, cfg.stored_every, 0
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n))
    stored = ops.rows("stored", n * -(-cfg.block_count // every)) if every else x

    def mean(tensor: str) -> Buffer:
        return attend(ops, stored, count, x, w.vector((tensor + ".weight", n)), cfg.eps) if count else x

    for i in range(cfg.block_count):
        layer = Layer(cfg, w, ops, f"blk.{i}.", ropes[i], 0)
        has_state, read = cfg.has_state(i), mean(layer.b + "attn_res_score")
        mixed = layer.recurrent(read, caches[i]) if has_state else layer.attention(read, caches[i])
        if every and i % every == 0:
            copy_columns(ops, Parts(x), Parts(stored, count * n), n)
            zero(ops, x, x, n)
            count += 1
        (layer.add_recurrent if has_state else layer.add_attention)(mixed, x)
        read = mean(layer.b + "ffn_res_score")
        if cfg.mixture and layer.b + "ffn_gate_inp.weight" in w:
            h, norm = normed(cfg, w, ops, read, layer.b + cfg.ffn_norm)
            ExpertLayer(cfg, cfg.mixture, w, ops, layer.b).add(x, h, norm)
        else:
            layer.add_feed_forward(layer.feed_forward(read), x)
        ops.end_layer(x)
    return mean("output_res_score")


output = decoder.output
