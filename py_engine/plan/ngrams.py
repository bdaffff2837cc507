"""Ops of embeddings of n-grams, which one layer adds to all residual streams (Qwen 4's). Shapes as in ops.py.

Each head has rows of one table. A hash of a token and those before it chooses a row for each head.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from py_engine.plan import quants
from py_engine.plan.ops import EMBED_THREADS, Ops
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.rows import norm_threads
from py_engine.plan.ssm import Kernel, ssm_conv
from py_engine.plan.states import States, StateShape
from py_engine.plan.streams import Streams


@dataclass(frozen=True)
class Ngrams:
    """How rows are chosen. `factors`: of the token and of those before it, of 64 bits; `longest` of them."""

    factors: tuple[int, ...]
    firsts: tuple[int, ...]  # of every head: its first row
    sizes: tuple[int, ...]  # and its rows
    per_length: int  # heads of each length of n-grams, from two tokens on
    end: int  # the token that ends a text
    picture: int  # the token that counts in place of media
    taps: int  # inputs of the convolution, each `longest` tokens after the one before

    @property
    def longest(self) -> int:
        """Tokens of the longest n-gram."""
        return len(self.factors)

    @property
    def window(self) -> int:
        """Tokens before its own that the convolution reaches."""
        return (self.taps - 1) * self.longest


def embed(ops: Ops, table: Weight, ngrams: Ngrams) -> Buffer:
    """The rows of all heads, side by side: (n, heads * the table's columns)."""
    heads = len(ngrams.sizes)
    factors = [part for factor in ngrams.factors for part in (factor & 0xFFFFFFFF, factor >> 32)]
    words = factors + [part for pair in zip(ngrams.firsts, ngrams.sizes, strict=True) for part in pair]
    hashes = ops.buffer("ngram_hashes", (1, len(words)), "u32", "state")
    ops.plan.constants[hashes.name] = struct.pack(f"<{len(words)}I", *words)
    x = ops.rows("ngrams", heads * table.cols)
    for row0, part in table.split(ops.device.max_binding):
        ops.add(
            "embed_ngrams",
            {"QUANT": part.layout.fragment, "COLS": table.cols, "HEADS": heads, "PER_LENGTH": ngrams.per_length}
            | {"LONGEST": ngrams.longest, "END": ngrams.end, "PICTURE": ngrams.picture}
            | {"TOKENS": ops.tokens.shape[1], "WG": EMBED_THREADS}
            | ops.state_params,
            {"row0": row0, "rows": part.rows, "x_stride": x.shape[1]},
            {"state": ops.state, "tokens": ops.tokens, "hashes": hashes, "w": part, "x": x},
            -(-heads * quants.groups(table.cols) // EMBED_THREADS),
            PerToken(),
        )
    return x


@dataclass(frozen=True)
class Gated:
    """What is added to streams: `key` (n, streams * cols), `value` (n, cols), `norms` (3 * streams * cols)."""

    key: Buffer
    value: Buffer
    norms: Weight  # of keys, of streams, of what is added


def add(ops: Ops, streams: Streams, given: Gated, eps: float) -> Buffer:
    """streams += gates * value; return the norm of what was added: (n, streams * cols)."""
    y = ops.rows("normed_streams", streams.count * streams.cols)
    ops.add(
        "gate_ngrams",
        {"COLS": streams.cols, "WG": norm_threads(ops.device, streams.cols)},
        {"eps": eps, "key_stride": given.key.shape[1], "value_stride": given.value.shape[1]}
        | {"streams_stride": streams.rows.shape[1], "y_stride": y.shape[1]},
        {"norms": given.norms, "key": given.key, "value": given.value, "streams": streams.rows, "y": y},
        PerToken(),
        streams.count,
    )
    return y


def convolve(ops: Ops, x: Buffer, weights: Weight, streams: Streams, ngrams: Ngrams, states: States) -> None:
    """streams += silu of the causal convolution of x. `weights` (streams * cols, taps)."""
    assert states.more_windows is not None
    channels = streams.count * streams.cols
    own = States(states.matrices, states.more_windows, None, states.paging)
    shape = StateShape(0, 0, 0, channels, ngrams.window)
    ops.add_scaled(ssm_conv(ops, x, 0, Kernel(weights, apart=ngrams.longest), shape, own), 1.0, streams.rows)
