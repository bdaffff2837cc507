"""Ops after the logits: sample tokens, verify drafts, compute log-probabilities."""

from __future__ import annotations

from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, PerToken
from py_engine.plan.sampling import FIELDS
from py_engine.plan.shared import LOGPROB_ROWS, MAX_LOGPROBS, MAX_SEQUENCES, MAX_SMALL_BATCH

PARTITION = 1024  # logits per workgroup of sample_best
SAMPLER_THREADS = 256
MIN_MATCH = 3  # tokens of a repeated sequence, at least, for drafting its continuation to pay


def _inputs(ops: Ops) -> dict[str, Buffer]:
    """The sampler parameters, the sequence and its position."""
    sampling = ops.buffer("sampling", (MAX_SEQUENCES, len(FIELDS)), "u32", "state")
    return {"sampling": sampling, "state": ops.state, "tokens": ops.tokens}


def sample(ops: Ops, logits: Buffer, shaped: bool = False) -> None:
    """Sample a token from the logits, append it to `tokens`, advance the state: two dispatches.

    `shaped`: with every sampler parameter; else with temperature, top_k, top_p and min_p only.
    """
    partitions = _partitions(ops)
    tile, size = {"PARTITION": PARTITION, "WG": SAMPLER_THREADS}, {"vocab": ops.plan.n_vocab}
    best = ops.buffer("best", (partitions, 2), "u32")
    if shaped:
        bias = ops.buffer("bias", (ops.plan.n_vocab,), "f32", "state")
        breakers = ops.buffer("breakers", _bit_mask_shape(ops), "u32", "state")
        history = {"logits": logits, "bias": bias, "breakers": breakers}
        outputs = {"shaped": ops.buffer("shaped", (ops.plan.n_vocab,)), "best": best}
        ops.add("sample_shape", tile | _token_capacity(ops), size, _inputs(ops) | history | outputs, partitions)
    else:
        ops.add("sample_best", tile, size | _single_row(ops), {"logits": logits, "best": best}, partitions)
    _sample(ops, logits, shaped, masked=False)


def resample(ops: Ops, logits: Buffer, shaped: bool = False) -> None:
    """Sample again if `mask` forbids the token that sample() has just sampled: one dispatch."""
    _sample(ops, logits, shaped, masked=True)


def _sample(ops: Ops, logits: Buffer, shaped: bool, masked: bool) -> None:
    logits = ops.buffer("shaped", (ops.plan.n_vocab,)) if shaped else logits
    candidates = {"logits": logits, "best": ops.buffer("best", (_partitions(ops), 2), "u32")}
    mask = {"mask": ops.buffer("mask", _bit_mask_shape(ops), "u32", "state")} if masked else {}
    ops.add(
        "sample",
        {"PARTITION": PARTITION, "WG": SAMPLER_THREADS, "SHAPED": int(shaped), "MASKED": int(masked)}
        | _token_capacity(ops)
        | ops.state_params,
        {"vocab": ops.plan.n_vocab} | _single_row(ops),
        _inputs(ops) | candidates | mask,
        1,
    )


def sample_each(ops: Ops, logits: Buffer, max_draft: int = 0) -> None:
    """Sample a token from each row of logits (MAX_SMALL_BATCH, stride) and advance the states: three dispatches.

    `max_draft`: the rows are a token and a draft of one sequence. Accept the draft up to the first token
    that differs from its sample, and draft up to `max_draft` next tokens.
    """
    partitions = _partitions(ops)
    best, chosen = (
        ops.buffer("choose.best", (MAX_SMALL_BATCH, partitions, 2), "u32"),
        ops.buffer("chosen", (MAX_SMALL_BATCH,), "u32"),
    )
    tile = {"PARTITION": PARTITION, "WG": SAMPLER_THREADS}
    size = {"vocab": ops.plan.n_vocab, "stride": logits.shape[1], "partitions": partitions}
    ops.add("sample_best", tile, size, {"logits": logits, "best": best}, partitions, PerToken())
    inputs = _inputs(ops)
    tokens = inputs.pop("tokens")
    ops.add(
        "sample",
        tile | {"SHAPED": 0, "MASKED": 0} | _token_capacity(ops) | ops.state_params,
        size,
        inputs | {"logits": logits, "best": best, "chosen": chosen},
        1,
        1,
        PerToken(),
    )
    drafting = {"drafting": ops.buffer("drafting", (4,), "u32", "state")} if max_draft else {}
    ops.add(
        "advance",
        {"DRAFTS": max_draft, "WG": 256 if max_draft else MAX_SMALL_BATCH} | _token_capacity(ops),
        {"min_match": MIN_MATCH},
        {"state": ops.state, "chosen": chosen, "tokens": tokens} | drafting,
        1,
    )


def logprobs(ops: Ops, logits: Buffer) -> None:
    """Write the log-probabilities of the sampled token and of the most probable ones, into its position's row."""
    rows = ops.buffer("logprobs", (LOGPROB_ROWS, 1 + MAX_LOGPROBS, 2), "u32", "state")
    ops.add(
        "logprobs",
        {"LOGPROB_ROWS": LOGPROB_ROWS, "MAX_LOGPROBS": MAX_LOGPROBS, "WG": SAMPLER_THREADS} | _token_capacity(ops),
        {"vocab": ops.plan.n_vocab},
        _inputs(ops) | {"logits": logits, "rows": rows},
        1,
    )


def _partitions(ops: Ops) -> int:
    return -(-ops.plan.n_vocab // PARTITION)


def _token_capacity(ops: Ops) -> dict[str, int]:
    """Tokens per sequence in `tokens`."""
    return {"TOKENS": ops.tokens.shape[1]}


def _single_row(ops: Ops) -> dict[str, int]:
    """The layout of one row of logits."""
    return {"stride": ops.plan.n_vocab, "partitions": _partitions(ops)}


def _bit_mask_shape(ops: Ops) -> tuple[int]:
    """Words of a bit mask over the vocabulary."""
    return (-(-ops.plan.n_vocab // 32),)
