"""Lowering of what comes behind the logits: choosing a token, and its log-probabilities."""

from __future__ import annotations

from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, PerToken
from py_engine.plan.sampling import FIELDS
from py_engine.plan.shared import LOGPROB_ROWS, MAX_SMALL_BATCH, MOST_LOGPROBS

PARTITION = 1024  # logits of one workgroup of sample_best
SAMPLER_THREADS = 256
MIN_MATCH = 3  # tokens that must have come before in that order for a guess to be worth its price


def _given(ops: Ops) -> dict[str, Buffer]:
    """The parameters, the sequence and where it ends."""
    sampling = ops.buffer("sampling", (MAX_SMALL_BATCH, len(FIELDS)), "u32", "state")
    return {"sampling": sampling, "state": ops.state, "tokens": ops.tokens}


def sample(ops: Ops, logits: Buffer, shaped: bool = False) -> None:
    """Choose a token from the logits, append it to `tokens`, advance the state: two dispatches.

    `shaped`: with all that a request can ask for; else temperature, top_k, top_p and min_p.
    """
    partitions = -(-ops.plan.n_vocab // PARTITION)
    tile, size = {"PARTITION": PARTITION, "WG": SAMPLER_THREADS}, {"vocab": ops.plan.n_vocab}
    best = ops.buffer("best", (partitions, 2), "u32")
    if shaped:
        bias = ops.buffer("bias", (ops.plan.n_vocab,), "f32", "state")
        breakers = ops.buffer("breakers", _bits(ops), "u32", "state")
        history = {"logits": logits, "bias": bias, "breakers": breakers}
        outputs = {"shaped": ops.buffer("shaped", (ops.plan.n_vocab,)), "best": best}
        ops.add("sample_shape", tile | _room(ops), size, _given(ops) | history | outputs, partitions)
    else:
        ops.add("sample_best", tile, size | _spread(ops), {"logits": logits, "best": best}, partitions)
    _choose(ops, logits, shaped, masked=False)


def resample(ops: Ops, logits: Buffer, shaped: bool = False) -> None:
    """Choose again, where `mask` forbids the token that sample() has chosen just before: one dispatch."""
    _choose(ops, logits, shaped, masked=True)


def _choose(ops: Ops, logits: Buffer, shaped: bool, masked: bool) -> None:
    partitions = -(-ops.plan.n_vocab // PARTITION)
    logits = ops.buffer("shaped", (ops.plan.n_vocab,)) if shaped else logits
    found = {"logits": logits, "best": ops.buffer("best", (partitions, 2), "u32")}
    mask = {"mask": ops.buffer("mask", _bits(ops), "u32", "state")} if masked else {}
    ops.add(
        "sample",
        {"PARTITION": PARTITION, "WG": SAMPLER_THREADS, "SHAPED": int(shaped), "MASKED": int(masked)}
        | _room(ops)
        | ops.state_params,
        {"vocab": ops.plan.n_vocab} | _spread(ops),
        _given(ops) | found | mask,
        1,
    )


def choose(ops: Ops, logits: Buffer, drafts: int = 0) -> None:
    """Sample a token from each row of logits (MAX_SMALL_BATCH, stride) and advance the states: three dispatches.

    `drafts`: the rows are of one sequence, whose next tokens are guessed, that many at most.
    """
    partitions = -(-ops.plan.n_vocab // PARTITION)
    best, chosen = (
        ops.buffer("choose.best", (MAX_SMALL_BATCH, partitions, 2), "u32"),
        ops.buffer("chosen", (MAX_SMALL_BATCH,), "u32"),
    )
    tile = {"PARTITION": PARTITION, "WG": SAMPLER_THREADS}
    size = {"vocab": ops.plan.n_vocab, "stride": logits.shape[1], "partitions": partitions}
    ops.add("sample_best", tile, size, {"logits": logits, "best": best}, partitions, PerToken())
    given = _given(ops)
    tokens = given.pop("tokens")
    ops.add(
        "sample",
        tile | {"SHAPED": 0, "MASKED": 0} | _room(ops) | ops.state_params,
        size,
        given | {"logits": logits, "best": best, "chosen": chosen},
        1,
        1,
        PerToken(),
    )
    drafting = {"drafting": ops.buffer("drafting", (4,), "u32", "state")} if drafts else {}
    ops.add(
        "advance",
        {"DRAFTS": drafts, "WG": 256 if drafts else MAX_SMALL_BATCH} | _room(ops),
        {"min_match": MIN_MATCH},
        {"state": ops.state, "chosen": chosen, "tokens": tokens} | drafting,
        1,
    )


def _room(ops: Ops) -> dict[str, int]:
    return {"TOKENS": ops.tokens.shape[1]}


def _spread(ops: Ops) -> dict[str, int]:
    """The one row of logits."""
    return {"stride": ops.plan.n_vocab, "partitions": -(-ops.plan.n_vocab // PARTITION)}


def _bits(ops: Ops) -> tuple[int]:
    return (-(-ops.plan.n_vocab // 32),)


def logprobs(ops: Ops, logits: Buffer) -> None:
    """The log-probabilities of the chosen token and of the likeliest, into the row of its position."""
    rows = ops.buffer("logprobs", (LOGPROB_ROWS, 1 + MOST_LOGPROBS, 2), "u32", "state")
    ops.add(
        "logprobs",
        {"LOGPROB_ROWS": LOGPROB_ROWS, "MAX_LOGPROBS": MOST_LOGPROBS, "WG": SAMPLER_THREADS} | _room(ops),
        {"vocab": ops.plan.n_vocab},
        _given(ops) | {"logits": logits, "rows": rows},
        1,
    )
