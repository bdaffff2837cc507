"""Nanbeige 4.2: a llama whose layers run several times, each time with a cache of their own.

Between two loops, the norm of the output applies, if the metadata does not say otherwise. Source: llama.cpp's
`nanbeige` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import MAX_BLOCKS, count, switch
from py_engine.models.decoder import Layer
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.rows import Parts, copy_columns
from py_engine.plan.weights import Weights

NEOX = False


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters. `block_count`: of the layers of all loops."""

    own_blocks: int = 0  # layers in the file
    loop_norm: bool = True  # the norm of the output applies between two loops

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base, loops = super().from_gguf(header), count(header, "num_loops", 1)
        if loops * base.block_count > MAX_BLOCKS:
            raise WispError(f"{loops} loops of {base.block_count} layers are too many.", "corrupt_header")
        return replace(
            base,
            block_count=loops * base.block_count,
            ropes=loops * base.ropes,
            windows=loops * base.windows,
            own_blocks=base.block_count,
            loop_norm=not switch(header, "skip_loop_final_norm", False),
        )


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    n = cfg.embedding_length
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n))
    for i in range(cfg.block_count):
        if i and i % cfg.own_blocks == 0 and cfg.loop_norm:
            normed = ops.rms_norm("loop", x, w.vector((cfg.output_norm + ".weight", n)), cfg.eps)
            copy_columns(ops, Parts(normed), Parts(x), n)
        layer = Layer(cfg, w, ops, f"blk.{i % cfg.own_blocks}.", ropes[i], 0)
        layer.add_attention(layer.attention(x, caches[i]), x)
        layer.add_feed_forward(layer.feed_forward(x), x)
        ops.end_layer(x)
    return x


output = decoder.output
