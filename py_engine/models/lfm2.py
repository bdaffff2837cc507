"""LFM2: short convolutions along the sequence in most layers, attention with q and k norms in the others.

The layers with 0 key/value heads in the metadata are convolutions. Source: llama.cpp's `lfm2` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import count, natural

NEOX = True
MAX_KERNEL = 64  # positions that a short convolution reads


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        heads = header.arch("attention.head_count_kv", base.head_count_kv)
        size = count(header, "shortconv.l_cache") if isinstance(heads, list) and 0 in heads else 0
        sizes = tuple(0 if n else size for n in heads[: base.block_count]) if size else ()
        if size > MAX_KERNEL:
            raise WispError(f"shortconv.l_cache is {size}; it must be at most {MAX_KERNEL}.", "corrupt_header")
        centred = size % 2 == 1  # of an encoder, whose convolutions reach as far to either side
        if base.embedding_length % 2 or not (base.causal or centred):
            raise WispError("This kind of LFM2 is not supported yet.", "unsupported_architecture")
        dense = header.architecture == "lfm2"
        if dense and not base.causal and natural(header, "attention.sliding_window"):
            what = "lfm2.attention.sliding_window in a model whose tokens attend to later ones"
            raise WispError(f"{what} is not supported.", "unsupported_architecture")
        return replace(
            base,
            conv_kernel_sizes=sizes or (0,) * base.block_count,
            windows=(natural(header, "attention.sliding_window") if dense else 0,) * base.block_count,
            output_norm="token_embd_norm",
        )


build = decoder.build
output = decoder.output
