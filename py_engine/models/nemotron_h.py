"""Nemotron-H: each layer is Mamba-2, attention without rotation, or a feed-forward network or experts, with one norm.

The metadata has each layer's key/value heads and the length of its feed-forward network; a layer with neither is
recurrent. Source: llama.cpp's architectures `nemotron_h` and `nemotron_h_moe`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import (
    block_count,
    count,
    dimension,
    head_count_kv,
    natural,
    number,
    per_layer,
    switch,
    vocabulary,
    without_attention,
)
from py_engine.models.recurrent import StateSpace

NEOX = False


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters. Where layers differ: the largest; `mixture`: the first one."""

    lengths: tuple[int, ...] = ()  # of every layer: feed_forward_length, or 0
    mixtures: tuple[config.Mixture | None, ...] = ()  # of every layer

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        blocks = block_count(header) - natural(header, "nextn_predict_layers")  # multi-token prediction is not used
        n_embd, n_head = dimension(header, "embedding_length"), dimension(header, "attention.head_count")
        n_head_kv = head_count_kv(header, blocks, n_head)
        head_dim = dimension(header, "attention.key_length", max(1, n_embd // n_head), n_head)
        if (
            blocks < 1
            or n_head % n_head_kv
            or head_dim % 2
            or header.arch("attention.value_length", head_dim) != head_dim
        ):
            raise WispError("Wisp cannot run attention with the heads that the metadata describes.", "corrupt_header")
        mixtures = _mixtures(header, blocks)
        idle = without_attention(header, blocks)
        lengths = _feed_forward_lengths(header, blocks)
        return cls(
            block_count=blocks,
            context_length=count(header, "context_length"),
            embedding_length=n_embd,
            feed_forward_length=max(lengths),
            lengths=tuple(lengths),
            head_count=n_head,
            head_count_kv=n_head_kv,
            head_dim=head_dim,
            eps=number(header, "attention.layer_norm_rms_epsilon"),
            vocab=vocabulary(header),
            ropes=(config.NO_ROPE,) * blocks,
            windows=(0,) * blocks,
            attention_scale=head_dim**-0.5,
            attending=tuple(not none for none in idle),
            recurrent=tuple(none and not n for none, n in zip(idle, lengths, strict=True)),
            state_space=StateSpace.from_gguf(header),
            causal=switch(header, "attention.causal", True),
            mixture=next(filter(None, mixtures), None),
            mixtures=mixtures,
            activation="relu2",
            ffn_norm="attn_norm",
        )

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        return replace(self, feed_forward_length=self.lengths[i], mixture=self.mixtures[i])


OF_EXPERTS = ("expert_used_count", "expert_feed_forward_length")  # may be lists of layers


def _mixtures(header: Header, blocks: int) -> tuple[config.Mixture | None, ...]:
    """The mixture of each layer. None: the layer has no experts."""
    lists = {key: per_layer(header, key, blocks, 0) for key in OF_EXPERTS if isinstance(header.arch(key, 0), list)}
    names = {key: f"{header.architecture}.{key}" for key in lists}

    def of_layer(i: int) -> config.Mixture | None:
        if f"blk.{i}.ffn_gate_inp.weight" not in header.tensors:
            return None
        own = {names[key]: numbers[i] for key, numbers in lists.items()}
        return config.Mixture.from_gguf(replace(header, metadata=header.metadata | own))

    return tuple(of_layer(i) for i in range(blocks))


def _feed_forward_lengths(header: Header, blocks: int) -> list[int]:
    """The lengths of the layers' feed-forward networks; 0: the layer has none."""
    found, most = header.arch("feed_forward_length"), header.largest_dimension
    if not isinstance(found, list) or len(found) < blocks or not all(type(n) is int and 0 <= n <= most for n in found):
        raise WispError("feed_forward_length must have a whole number for each layer.", "corrupt_header")
    return found[:blocks]


build = decoder.build
output = decoder.output
