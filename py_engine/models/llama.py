"""Llama: RMS norm, grouped-query attention with rotary embedding, SwiGLU. Source: llama.cpp's `llama` architecture."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.gguf_header import Header
from py_engine.models.common import count, number, rope_linear
from py_engine.ops import Ops
from py_engine.plan import Buffer, Weight
from py_engine.rope import Rope
from py_engine.weights import Weights

NEOX = False  # GGUF's llama converter interleaves the rotated pairs


@dataclass(frozen=True)
class Config:
    """The hyperparameters, named as GGUF names them."""

    block_count: int
    context_length: int
    embedding_length: int
    feed_forward_length: int
    head_count: int
    head_count_kv: int
    head_dim: int
    rope_dim: int
    rope_freq_base: float
    rope_linear: float
    eps: float
    vocab: int

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata; WispError missing_metadata, corrupt_header or unsupported_architecture."""
        n_embd, n_head = count(header, "embedding_length"), count(header, "attention.head_count")
        head_dim = count(header, "attention.key_length", n_embd // n_head)
        if header.arch("expert_count", 0):
            raise WispError("Mixture-of-experts models of the llama family do not run yet.", "unsupported_architecture")
        config = cls(
            block_count=count(header, "block_count"),
            context_length=count(header, "context_length"),
            embedding_length=n_embd,
            feed_forward_length=count(header, "feed_forward_length"),
            head_count=n_head,
            head_count_kv=count(header, "attention.head_count_kv", n_head),
            head_dim=head_dim,
            rope_dim=count(header, "rope.dimension_count", head_dim),
            rope_freq_base=number(header, "rope.freq_base", 10000.0),
            rope_linear=rope_linear(header),
            eps=number(header, "attention.layer_norm_rms_epsilon"),
            vocab=_vocab(header),
        )
        if n_head % config.head_count_kv or head_dim % 4 or config.rope_dim % 4 or config.rope_dim > head_dim:
            raise WispError(
                f"{n_head} heads over {config.head_count_kv} key/value heads of {head_dim} dimensions, "
                f"{config.rope_dim} of them rotated, make no attention that Wisp can run.",
                "corrupt_header",
            )
        return config

    @property
    def heads(self) -> tuple[int, int, int]:
        """(n_head, n_head_kv, head_dim)."""
        return self.head_count, self.head_count_kv, self.head_dim


def _vocab(header: Header) -> int:
    info = header.tensors.get("token_embd.weight")
    return info.shape[-1] if info else count(header, "vocab_size")


def build(cfg: Config, w: Weights, ops: Ops, rope: Rope, caches: list[tuple[Buffer, Buffer]]) -> Buffer:
    """The layers, from the batch's tokens to the last hidden state (n, n_embd)."""
    n_embd, n_ff = cfg.embedding_length, cfg.feed_forward_length
    q_rows, kv_rows = cfg.head_count * cfg.head_dim, cfg.head_count_kv * cfg.head_dim
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n_embd))
    for i, cache in enumerate(caches):
        b = f"blk.{i}."
        rows = [(b + "attn_q", q_rows), (b + "attn_k", kv_rows), (b + "attn_v", kv_rows)]
        q = ops.qkv(
            x,
            w.vector((b + "attn_norm.weight", n_embd)),
            w.stack([(t + ".weight", n) for t, n in rows], n_embd),
            w.vector_if_there(*((t + ".bias", n) for t, n in rows)),
            cache,
            cfg.heads,
            rope,
            cfg.eps,
        )
        attn = ops.attention(q, cache, cfg.heads, cfg.head_dim**-0.5)
        output_bias = w.vector_if_there((b + "attn_output.bias", n_embd))
        ops.linear(attn, w.matrix(b + "attn_output.weight", n_embd, q_rows), output_bias, x)
        gate_up = w.stack([(b + "ffn_gate.weight", n_ff), (b + "ffn_up.weight", n_ff)], n_embd)
        gate_up_bias = w.vector_if_there((b + "ffn_gate.bias", n_ff), (b + "ffn_up.bias", n_ff))
        hidden = ops.gated(x, w.vector((b + "ffn_norm.weight", n_embd)), gate_up, gate_up_bias, cfg.eps)
        down_bias = w.vector_if_there((b + "ffn_down.bias", n_embd))
        ops.linear(hidden, w.matrix(b + "ffn_down.weight", n_embd, n_ff), down_bias, x)
    return x


def output(cfg: Config, w: Weights) -> tuple[Weight, Weight]:
    """(final norm, output matrix); the embedding table serves where there is no output.weight."""
    tensor = "output.weight" if "output.weight" in w else "token_embd.weight"
    return w.vector(("output_norm.weight", cfg.embedding_length)), w.matrix(tensor, cfg.vocab, cfg.embedding_length)
