"""T5 (Raffel et al. 2020): relative positions in buckets, scores that are not divided.

The encoder alone makes embeddings. With the decoder, it reads the prompt, and the decoder writes the answer
(plan/encoder_decoder.py); FLAN-T5, MADLAD-400 and CodeT5 are such models. Source: llama.cpp's `t5encoder` and `t5`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import MAX_BLOCKS, dimension, natural
from py_engine.models.decoder import Layer, normed
from py_engine.plan.cache import Cache, make_encoder_cache
from py_engine.plan.encoder_decoder import part_of
from py_engine.plan.ops import AttentionOptions, Ops, Projection
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights

NEOX = False
LEAST_BUCKETS = 4  # for each direction, one of near keys and one of others
BOS = "tokenizer.ggml.bos_token_id"


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters of the encoder, or of a decoder and its `encoder`."""

    encoder: Config | None = None

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base, buckets = super().from_gguf(header), dimension(header, "attention.relative_buckets_count")
        if buckets < LEAST_BUCKETS or buckets % 2:
            raise WispError(f"Wisp cannot run relative positions in {buckets} buckets.", "corrupt_header")
        encoder = replace(
            base,
            causal=False,
            attention_scale=1.0,
            relative_buckets=buckets,
            ropes=(config.NO_ROPE,) * base.block_count,
            activation=_activation(header, "enc"),
            output_norm="enc.output_norm",
        )
        if header.architecture == "t5encoder":
            return encoder
        blocks = natural(header, "decoder_block_count", base.block_count)
        if not 0 < blocks <= MAX_BLOCKS or any(f"dec.blk.{blocks}." in tensor for tensor in header.tensors):
            raise WispError(
                f"{header.architecture}.decoder_block_count is {blocks}, which is not the number of the decoder's "
                "layers in the file.",
                "corrupt_header",
            )
        return replace(
            encoder,
            block_count=blocks,
            # of a prompt and an answer, each as long as the model was trained for
            context_length=2 * base.context_length,
            causal=True,
            ropes=(config.NO_ROPE,) * blocks,
            windows=(0,) * blocks,
            activation=_activation(header, "dec"),
            output_norm="dec.output_norm",
            decoder_start=_start(header, base.vocab),
            encoder=encoder,
        )


def _activation(header: Header, part: str) -> str:
    return "gelu" if f"{part}.blk.0.ffn_gate.weight" in header.tensors else "relu"


def _start(header: Header, vocab: int) -> int:
    """The token that an answer begins with: the metadata's, else BOS."""
    token = header.arch("decoder_start_token_id", header.metadata.get(BOS))
    if token is None:
        raise WispError(
            f"The metadata has neither {header.architecture}.decoder_start_token_id nor {BOS}: it does not say which "
            "token an answer begins with.",
            "missing_metadata",
        )
    if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab:
        raise WispError(
            f"{header.architecture}.decoder_start_token_id is {token!r:.100}; it must be a token.", "corrupt_header"
        )
    return token


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd).

    Of an encoder-decoder model, those of the decoder for small batches; else those of the encoder, and what the decoder
    reads of its results.
    """
    if cfg.encoder is None:
        return _encode(cfg, w, ops, ropes[0], caches)
    if ops.small_batch:
        return _decode(cfg, w, ops, ropes[0], caches)
    own = make_encoder_cache(ops.plan, ops.name, cfg.head_count_kv * cfg.head_dim)
    x = _encode(cfg.encoder, w, ops, ropes[0], [own] * cfg.encoder.block_count)
    _store_results(cfg, w, ops, x, ropes[0], caches)
    return x


def output(cfg: Config, w: Weights, ops: Ops, x: Buffer, all_tokens: bool = False) -> Buffer:
    """Append the decoder's head; return its logits."""
    return decoder.output(cfg, w, ops, x, all_tokens=all_tokens)


def _encode(cfg: Config, w: Weights, ops: Ops, rope: Rope, caches: list[Cache]) -> Buffer:
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, cfg.embedding_length))
    ops.precise = True  # the residual stream of trained models grows beyond f16's range
    _check_norms(cfg, w, cfg.output_norm)
    for i in range(cfg.block_count):
        layer = Layer(cfg, w, ops, f"enc.blk.{i}.", rope, 0)
        _check_norms(cfg, w, layer.b + "attn_norm", layer.b + "ffn_norm")
        _add_attention(layer, layer.attention(x, caches[i]), "attn_o", x)
        layer.add_feed_forward(layer.feed_forward(x), x)
        ops.end_layer(x)
    return x


def _check_norms(cfg: Config, w: Weights, *names: str) -> None:
    """Raise WispError missing_tensor for a norm that is not in the file: layers of other families may lack some."""
    for name in names:
        w.vector((name + ".weight", cfg.embedding_length))


def _store_results(cfg: Config, w: Weights, ops: Ops, x: Buffer, rope: Rope, caches: list[Cache]) -> None:
    """Store the keys and values that each of the decoder's layers reads of the encoder's results."""
    n, (_, n_head_kv, head_dim) = cfg.embedding_length, cfg.heads
    rows = n_head_kv * head_dim
    encoded = ops.normed_input(x, w.vector(("enc.output_norm.weight", n)), cfg.eps)
    for i, cache in enumerate(caches):
        b = f"dec.blk.{i}.cross_attn_"
        stack = w.stack([(b + "k.weight", rows), (b + "v.weight", rows)], n)
        stacked = ops.normed_stack("cross", encoded, Projection(stack))
        ops.split_qkv(stacked, cache, (0, n_head_kv, head_dim), rope, None, cfg.eps)
        ops.quantize_cache(cache, rows)


def _decode(cfg: Config, w: Weights, ops: Ops, rope: Rope, caches: list[Cache]) -> Buffer:
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, cfg.embedding_length))
    _check_norms(cfg, w, cfg.output_norm)
    for i, cache in enumerate(caches):
        layer = Layer(cfg, w, ops, f"dec.blk.{i}.", rope, 0)
        _check_norms(cfg, w, *(layer.b + name for name in ("attn_norm", "cross_attn_norm", "ffn_norm")))
        _add_attention(layer, layer.attention(x, cache), "attn_o", x)
        _add_attention(layer, _cross_attention(layer, x, cache), "cross_attn_o", x)
        layer.add_feed_forward(layer.feed_forward(x), x)
        ops.end_layer(x)
    return x


def _cross_attention(layer: Layer, x: Buffer, cache: Cache) -> Buffer:
    """Attend to the encoder's results, which have no positions."""
    cfg, w, ops = layer.cfg, layer.w, layer.ops
    h, norm = normed(cfg, w, ops, x, layer.b + "cross_attn_norm")
    matrix = w.matrix(layer.b + "cross_attn_q.weight", cfg.attention_cols, cfg.embedding_length)
    q = ops.normed_stack("cross_q", h, Projection([matrix], None, norm, cfg.eps))
    part = part_of(ops.plan, "encoder")
    return ops.attention(q, cache, cfg.heads, AttentionOptions(cfg.attention_scale, part=part))


def _add_attention(layer: Layer, attended: Buffer, name: str, x: Buffer) -> None:
    cfg = layer.cfg
    matrix = layer.w.matrix(f"{layer.b}{name}.weight", cfg.embedding_length, cfg.attention_cols)
    layer.ops.linear(attended, matrix, None, x)
