"""The input of a multi-token prediction layer (MTP; DeepSeek-V3, section 2.2), an assistant or an EAGLE-3 head, and the
hidden states that it needs.

Such layers predict the token after the next one: from the hidden state of a token, and the embedding of the token
that follows it. So its input at a position needs the hidden state before that position, which may be of the batch
before. A ring of each sequence's last hidden states has it. It has as many as a small batch has tokens, because a
rejected draft goes back so far.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.rows import norm_threads
from py_engine.plan.shared_constants import MAX_SEQUENCES, SHORT_BATCH, THREADS

RING = SHORT_BATCH  # hidden states of a sequence's ring
NO_ROW = 0xFFFFFFFF  # of a token that a draft model does not know


@dataclass(frozen=True)
class InputNorms:
    """The RMS norms of a token's embedding and of the hidden state before it. `weight`: (2, cols)."""

    weight: Weight
    eps: float


@dataclass(frozen=True)
class Residual:
    """What the layer adds to: x (n, cols), which gets the hidden states before the batch's tokens.

    `normed`: as the layer's input has them. With mtp_input()'s `from_layer`, x is where they are before.
    """

    x: Buffer
    normed: bool


def mtp_input(
    ops: OpList, e: Buffer, hidden: Buffer | None, cols: int, norms: InputNorms | None = None,
    *, from_layer: bool = False, residual: Residual | None = None,
) -> Buffer:  # fmt: skip
    """The embeddings of the batch's tokens `e`, beside the hidden states before them: (n, 2 * cols).

    `hidden`: the batch's hidden states; the last ones are written to the ring. None: the batch is a token of each of
    some sequences, and the states before are in the ring. `from_layer`: `hidden` is what the layer has computed of the
    tokens before. `norms`: of both parts; None: they are not normalised. `residual`: what gets these hidden states,
    too.
    """
    assert hidden is not None or not from_layer, "a layer that goes on has its own states"
    assert norms is not None or residual is None, "mtp_input.wgsl writes x where it normalises"
    assert not (from_layer and residual) or hidden is residual.x, "the hidden states are read where x is written"
    source = "own" if from_layer else "ring" if hidden is None else "batch"
    y = ops.rows("mtp_input", 2 * cols, ops.input_dtype)
    ops.add(
        "mtp_input",
        {"COLS": cols, "HIDDEN": source, "RING": RING, "WG": norm_threads(ops.device, cols)}
        | {"Y16": int(y.dtype == "f16")}
        | ({} if norms else {"PLAIN": 1})
        | ({"RESIDUAL": "normed" if residual.normed else "raw"} if residual else {})
        | ops.state_params,
        {"x_stride": e.shape[1], "y_stride": y.shape[1]} | ({"eps": norms.eps} if norms else {}),
        {"state": ops.state, "e": e, "y": y}
        | ({"norm": norms.weight} if norms else {})
        | ({} if from_layer else {"ring": _ring(ops, cols)})
        | ({"hidden": hidden} if hidden and not (from_layer and residual) else {})
        | ({"x": residual.x} if residual else {}),
        PerToken(),
    )
    return y


def store_hidden(ops: OpList, x: Buffer, norm: Weight, eps: float) -> None:
    """Write the normalised hidden states of the batch's last tokens to the ring. `x` (n, cols)."""
    cols = norm.cols
    ops.add(
        "store_hidden",
        {"COLS": cols, "RING": RING, "WG": norm_threads(ops.device, cols)} | ops.state_params,
        {"x_stride": x.shape[1], "eps": eps},
        {"state": ops.state, "x": x, "norm": norm, "ring": _ring(ops, cols)},
        PerToken(),
    )


def token_rows(ops: OpList, name: str, tokens: Sequence[int]) -> Buffer:
    """A constant buffer (vocab,): the row of each of the model's tokens in a draft model's logits.

    `tokens`: the token of each row.
    """
    rows = array("I", [NO_ROW]) * ops.plan.n_vocab
    for row, token in enumerate(tokens):
        rows[token] = row
    ops.plan.constants[name] = rows.tobytes()
    return ops.buffer(name, (ops.plan.n_vocab,), "u32", "state")


def map_logits(ops: OpList, x: Buffer, count: int, rows: Buffer, logits: Buffer) -> None:
    """Write a draft model's logits `x` (n, count) to those of the model's tokens. `rows`: of token_rows()."""
    cols = ops.plan.n_vocab
    ops.add(
        "map_logits",
        {"COLS": cols, "ROWS": count},
        {"x_stride": x.shape[-1], "y_stride": logits.shape[-1]},
        {"state": ops.state, "x": x, "rows": rows, "y": logits},
        -(-cols // THREADS),
        PerToken(),
    )


def _ring(ops: OpList, cols: int) -> Buffer:
    return ops.buffer("mtp.ring", (MAX_SEQUENCES, RING, cols), "f32", "state")
