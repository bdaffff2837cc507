"""Lowering of what comes behind the logits: choosing a token, and its log-probabilities."""

from __future__ import annotations

from py_engine.plan.ops import FEW, Ops
from py_engine.plan.plan import Buffer, PerToken
from py_engine.plan.sampling import FIELDS, MOST_LOGPROBS

SHARE = 1024  # logits of one workgroup of sample_best
SAMPLER_THREADS = 256
LEAST_ALIKE = 3  # tokens that must have come before in that order for a guess to be worth its price
LOGPROB_ROWS = 512  # positions whose log-probabilities are kept until they are read: more than are submitted ahead


def _given(ops: Ops) -> dict[str, Buffer]:
    """The parameters, the sequence and where it ends."""
    sampling = ops.buffer("sampling", (FEW, len(FIELDS)), "u32", "state")
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
        ops.add("sample_shape", tile | _room(ops), size, _given(ops) | history | outputs, shares)
    else:
        ops.add("sample_best", tile, size | _spread(ops), {"logits": logits, "best": best}, shares)
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
        {"SHARE": SHARE, "WG": SAMPLER_THREADS, "SHAPED": int(shaped), "MASKED": int(masked)} | _room(ops) | ops.each,
        {"vocab": ops.plan.n_vocab} | _spread(ops),
        _given(ops) | found | mask,
        1,
    )


def choose(ops: Ops, logits: Buffer, drafts: int = 0) -> None:
    """Choose a token from each row of logits (FEW, stride), and move the states on (advance.wgsl): three dispatches.

    `drafts`: the rows are of one sequence, whose next tokens are guessed, that many at most.
    """
    shares = -(-ops.plan.n_vocab // SHARE)
    best, chosen = ops.buffer("choose.best", (FEW, shares, 2), "u32"), ops.buffer("chosen", (FEW,), "u32")
    tile = {"SHARE": SHARE, "WG": SAMPLER_THREADS}
    size = {"vocab": ops.plan.n_vocab, "stride": logits.shape[1], "shares": shares}
    ops.add("sample_best", tile, size, {"logits": logits, "best": best}, shares, PerToken())
    given = _given(ops)
    tokens = given.pop("tokens")
    ops.add(
        "sample",
        tile | {"SHAPED": 0, "MASKED": 0} | _room(ops) | ops.each,
        size,
        given | {"logits": logits, "best": best, "chosen": chosen},
        1,
        1,
        PerToken(),
    )
    drafting = {"drafting": ops.buffer("drafting", (4,), "u32", "state")} if drafts else {}
    ops.add(
        "advance",
        {"DRAFTS": drafts, "WG": 256 if drafts else FEW} | _room(ops),
        {"least": LEAST_ALIKE},
        {"state": ops.state, "chosen": chosen, "tokens": tokens} | drafting,
        1,
    )


def _room(ops: Ops) -> dict[str, int]:
    return {"TOKENS": ops.tokens.shape[1]}


def _spread(ops: Ops) -> dict[str, int]:
    """The one row of logits."""
    return {"stride": ops.plan.n_vocab, "shares": -(-ops.plan.n_vocab // SHARE)}


def _bits(ops: Ops) -> tuple[int]:
    return (-(-ops.plan.n_vocab // 32),)


def logprobs(ops: Ops, logits: Buffer) -> None:
    """The log-probabilities of the chosen token and of the likeliest, into the row of its position."""
    rows = ops.buffer("logprobs", (LOGPROB_ROWS, 1 + MOST_LOGPROBS, 2), "u32", "state")
    ops.add(
        "logprobs",
        {"ROWS": LOGPROB_ROWS, "MOST": MOST_LOGPROBS, "WG": SAMPLER_THREADS} | _room(ops),
        {"vocab": ops.plan.n_vocab},
        _given(ops) | {"logits": logits, "rows": rows},
        1,
    )
