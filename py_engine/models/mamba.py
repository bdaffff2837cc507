"""Mamba (Gu and Dao 2023) and Mamba-2 (Dao and Gu 2024): recurrent layers only, no feed-forward networks.

FalconMamba normalises dt, B and C without weights. Source: llama.cpp's architectures `mamba` and `mamba2`.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import block_count, count, dimension, number, vocabulary
from py_engine.models.recurrent import StateSpace

NEOX = False


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters. Those of attention have no meaning."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        blocks = block_count(header)
        if not all(f"blk.{i}.ssm_in.weight" in header.tensors for i in range(blocks)):
            raise WispError("A Mamba model has no other layers than recurrent ones.", "unsupported_architecture")
        return cls(
            block_count=blocks,
            context_length=count(header, "context_length"),
            embedding_length=dimension(header, "embedding_length"),
            feed_forward_length=0,
            head_count=1,
            head_count_kv=1,
            head_dim=4,
            eps=number(header, "attention.layer_norm_rms_epsilon"),
            vocab=vocabulary(header),
            ropes=(config.NO_ROPE,) * blocks,
            windows=(0,) * blocks,
            attention_scale=1.0,
            attending=(False,) * blocks,
            recurrent=(True,) * blocks,
            state_space=StateSpace.from_gguf(header),
        )


build = decoder.build
output = decoder.output
