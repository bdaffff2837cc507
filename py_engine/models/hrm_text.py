"""HRM-Text (Wang et al. 2025): two stacks of layers that run in turn, several times, each with a stream of its own.

A stack reads the sum of both streams, and its result, normalised, replaces its own. All norms are without weights; each
run of a layer has a cache. As llama.cpp has it, prompts are causal, also where the metadata says `prefix_lm`. Source:
llama.cpp's `hrm_text` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config
from py_engine.models.common import MAX_BLOCKS, count, optional_number
from py_engine.models.decoder import Layer, copied, plain_norm
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.rows import Parts, copy_columns
from py_engine.plan.weights import Weights

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters. `block_count`: of the layers of all runs."""

    stack: int = 1  # layers of a stack; the file has the low one's, then the high one's
    low_runs: int = 1  # of the low stack before each run of the high one

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        stack, high, low = (count(header, f"hrm.{key}") for key in ("layers_per_stack", "h_cycles", "l_cycles"))
        runs = count(header, "block_count")
        if runs != stack * high * (low + 1) or runs > MAX_BLOCKS:
            raise WispError(f"Wisp cannot run {high} x ({low} + 1) x {stack} as {runs} layers.", "corrupt_header")
        own = {f"{header.architecture}.block_count": 2 * stack}
        base = super().from_gguf(replace(header, metadata=header.metadata | own))
        return replace(
            base,
            block_count=runs,
            ropes=base.ropes[:1] * runs,
            windows=(0,) * runs,
            plain_norms=True,
            embedding_scale=optional_number(header, "embedding_scale") or 1.0,
            stack=stack,
            low_runs=low,
        )


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the high stream, normalised (n, n_embd)."""
    n = cfg.embedding_length
    high = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n), cfg.embedding_scale, media_row="scaled")
    zeros = w.vector(optional=[("hrm.zeros", n)])  # weights, so that the low stream is at first the file's vector
    low = ops.biased_rms_norm("low", high, zeros, w.vector(("hrm.z_l_init", n)), cfg.eps)
    for run in range(cfg.block_count // cfg.stack):
        x = copied(cfg, ops, high, "sum")
        copy_columns(ops, Parts(low), Parts(x), n, add=True)
        is_high = (run + 1) % (cfg.low_runs + 1) == 0
        for i in range(cfg.stack):
            slot = run * cfg.stack + i
            layer = Layer(cfg, w, ops, f"blk.{i + is_high * cfg.stack}.", ropes[slot], 0)
            layer.add_attention(layer.attention(x, caches[slot]), x)
            layer.add_feed_forward(layer.feed_forward(x), x)
            ops.end_layer(x)
        result = plain_norm(cfg, ops, x, "high" if is_high else "low")
        low, high = (low, result) if is_high else (result, high)
    return high


def output(cfg: Config, w: Weights, ops: Ops, x: Buffer, all_tokens: bool = False) -> Buffer:
    """Append the head; return the logits of the last token, or of all. Without output.weight, embeddings are tied."""
    tensor = "output.weight" if "output.weight" in w else "token_embd.weight"
    return ops.head(x, Projection([w.matrix(tensor, cfg.vocab, cfg.embedding_length)], None, None, cfg.eps), all_tokens)
