"""Lowering of what comes behind the logits: choosing a token, and its log-probabilities."""

from __future__ import annotations

from py_engine.ops import Ops
from py_engine.plan import Buffer
from py_engine.sampling import FIELDS, MOST_LOGPROBS

SHARE = 1024  # logits of one workgroup of sample_best
SAMPLER_THREADS = 256
LOGPROB_ROWS = 512  # positions whose log-probabilities are kept until they are read: more than are submitted ahead


def _given(ops: Ops) -> dict[str, Buffer]:
    """The parameters, the sequence and where it ends."""
    sampling = ops.buffer("sampling", (len(FIELDS),), "u32", "state")
    return {"sampling": sampling, "state": ops.state, "tokens": ops.tokens}


def sample(ops: Ops, logits: Buffer, shaped: bool = False) -> None:
    """Choose a token from the logits, append it to `tokens`, advance the state: two dispatches.

    `shaped`: with all that a request can ask for; else temperature, top_k, top_p and min_p.
    """
    shares = -(-ops.plan.n_vocab // SHARE)
    tile, size = {"SHARE": SHARE, "WG": SAMPLER_THREADS}, {"vocab": ops.plan.n_vocab}
    best = ops.buffer("best", (shares, 2), "u32")
    if shaped:
        bias = ops.buffer("bias", (ops.plan.n_vocab,), "f32", "state")
        breakers = ops.buffer("breakers", _bits(ops), "u32", "state")
        history = {"logits": logits, "bias": bias, "breakers": breakers}
        outputs = {"shaped": ops.buffer("shaped", (ops.plan.n_vocab,)), "best": best}
        ops.add("sample_shape", tile, size, _given(ops) | history | outputs, shares)
    else:
        ops.add("sample_best", tile, size, {"logits": logits, "best": best}, shares)
    _choose(ops, logits, shaped, masked=False)


def resample(ops: Ops, logits: Buffer, shaped: bool = False) -> None:
    """Choose again, where `mask` forbids the token that sample() has chosen just before: one dispatch."""
    _choose(ops, logits, shaped, masked=True)


def _choose(ops: Ops, logits: Buffer, shaped: bool, masked: bool) -> None:
    shares = -(-ops.plan.n_vocab // SHARE)
    logits = ops.buffer("shaped", (ops.plan.n_vocab,)) if shaped else logits
    found = {"logits": logits, "best": ops.buffer("best", (shares, 2), "u32")}
    mask = {"mask": ops.buffer("mask", _bits(ops), "u32", "state")} if masked else {}
    ops.add(
        "sample",
        {"SHARE": SHARE, "WG": SAMPLER_THREADS, "SHAPED": int(shaped), "MASKED": int(masked)},
        {"vocab": ops.plan.n_vocab, "shares": shares},
        _given(ops) | found | mask,
        1,
    )


def _bits(ops: Ops) -> tuple[int]:
    return (-(-ops.plan.n_vocab // 32),)


def logprobs(ops: Ops, logits: Buffer) -> None:
    """The log-probabilities of the chosen token and of the likeliest, into the row of its position."""
    rows = ops.buffer("logprobs", (LOGPROB_ROWS, 1 + MOST_LOGPROBS, 2), "u32", "state")
    ops.add(
        "logprobs",
        {"ROWS": LOGPROB_ROWS, "MOST": MOST_LOGPROBS, "WG": SAMPLER_THREADS},
        {"vocab": ops.plan.n_vocab},
        _given(ops) | {"logits": logits, "rows": rows},
        1,
    )
