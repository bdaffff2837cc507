"""The input of a multi-token prediction layer (MTP; DeepSeek-V3, section 2.2) or of an assistant, and the hidden states
that it needs.

Such layers predict the token after the next one: from the hidden state of a token, and the embedding of the token
that follows it. So its input at a position needs the hidden state before that position, which may be of the batch
before. A ring of each sequence's last hidden states has it. It has as many as a small batch has tokens, because a
rejected draft goes back so far.
"""

from __future__ import annotations

from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.rows import norm_threads
from py_engine.plan.shared import MAX_SEQUENCES, SHORT_BATCH

RING = SHORT_BATCH  # hidden states of a sequence's ring


def mtp_input(
    ops: OpList, e: Buffer, hidden: Buffer | None, cols: int, norms: Weight | None = None, eps: float = 0.0,
    *, own: bool = False,
) -> Buffer:  # fmt: skip
    """The embeddings of the batch's tokens `e`, beside the hidden states before them: (n, 2 * cols).

    `hidden`: the batch's hidden states; the last ones are written to the ring. None: the batch is a token of each of
    some sequences, and the states before are in the ring. `own`: `hidden` is the layer's own of the tokens before.
    `norms` (2, cols): of both parts; None: they are not normalised.
    """
    source = "own" if own else "ring" if hidden is None else "batch"
    y = ops.rows("mtp_input", 2 * cols, ops.input_dtype)
    ops.add(
        "mtp_input",
        {"COLS": cols, "HIDDEN": source, "RING": RING, "WG": norm_threads(ops.device, cols)}
        | {"Y16": int(y.dtype == "f16")}
        | ({} if norms else {"PLAIN": 1})
        | ops.state_params,
        {"x_stride": e.shape[1], "y_stride": y.shape[1]} | ({"eps": eps} if norms else {}),
        {"state": ops.state, "e": e, "y": y}
        | ({"norm": norms} if norms else {})
        | ({} if own else {"ring": _ring(ops, cols)})
        | ({"hidden": hidden} if hidden else {}),
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


def _ring(ops: OpList, cols: int) -> Buffer:
    return ops.buffer("mtp.ring", (MAX_SEQUENCES, RING, cols), "f32", "state")
