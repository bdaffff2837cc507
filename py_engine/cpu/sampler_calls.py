"""Samplers."""

from __future__ import annotations

from typing import Any

from py_engine.cpu.call_layouts import STAGES
from py_engine.cpu.calls import Calls, batch_fields, state_of, stride_of
from py_engine.plan.plan import Buffer, Op


def _row(m: Calls, op: Op) -> dict[str, Any]:
    best = op.bindings["best"]
    assert isinstance(best, Buffer)
    return {"rows": m.address(op, "rows"), "rows_most": best.shape[0], "best": m.address(op, "best")}


def _logits(m: Calls, op: Op) -> dict[str, Any]:
    return {"vocab": op.consts["vocab"], "stride": op.consts["stride"], "logits": m.address(op, "logits")}


def sample_best(m: Calls, op: Op) -> None:
    m.add("sample_best", **batch_fields(m, op), **_row(m, op), **_logits(m, op))


def sample_shape(m: Calls, op: Op) -> None:
    m.add(
        "sample_shape", **batch_fields(m, op), **_row(m, op), **_logits(m, op), shaped=m.address(op, "shaped"),
        sampling=m.address(op, "sampling"), tokens=m.address(op, "tokens"), tokens_stride=stride_of(op, "tokens"),
        rules=m.address(op, "rules"), rules_words=stride_of(op, "rules"), bit_words=op.params["BIT_WORDS"],
        masked=op.params["MASKED"],
    )  # fmt: skip


def sample_draw(m: Calls, op: Op) -> None:
    m.add(
        "sample_draw", state=state_of(m, op), **_row(m, op), **_logits(m, op), drawn=m.address(op, "drawn"),
        sampling=m.address(op, "sampling"),
    )  # fmt: skip


def sample(m: Calls, op: Op) -> None:
    chosen = bool(op.params["CHOSEN"])
    m.add(
        "sample", state=state_of(m, op), per_token=int(op.params.get("STATE_PER_TOKEN", 0)), **_row(m, op),
        drawn=m.address(op, "drawn"), sampling=m.address(op, "sampling"), chosen=m.address(op, "chosen"),
        tokens=0 if chosen else m.address(op, "tokens"), tokens_stride=0 if chosen else stride_of(op, "tokens"),
    )  # fmt: skip


def advance(m: Calls, op: Op) -> None:
    m.add(
        "advance", state=state_of(m, op), chosen=m.address(op, "chosen"), tokens=m.address(op, "tokens"),
        tokens_stride=stride_of(op, "tokens"), drafting=m.address(op, "drafting"), drafts=op.params["DRAFTS"],
        min_match=op.consts["min_match"],
    )  # fmt: skip


def draft_rows(m: Calls, op: Op) -> None:
    m.add("draft_rows", state=state_of(m, op), drafting=m.address(op, "drafting"))


def draft_states(m: Calls, op: Op) -> None:
    stage = str(op.params["STAGE"])
    drafting = m.address(op, "drafting") if stage != "newest" else 0
    block = stage == "block"
    m.add(
        "draft_states", state=state_of(m, op), drafting=drafting, stage=STAGES[stage],
        anchor=op.params.get("ANCHOR", 0), drafts=op.consts["drafts"] if block else 0,
        mask=op.params["MASK"] if block else 0, tokens=m.address(op, "tokens") if block else 0,
        tokens_stride=stride_of(op, "tokens") if block else 0,
    )  # fmt: skip


def logprobs(m: Calls, op: Op) -> None:
    partial = op.bindings["partial"]
    assert isinstance(partial, Buffer)
    m.add(
        "logprobs", state=state_of(m, op), rows_most=partial.shape[0], **_logits(m, op),
        sampling=m.address(op, "sampling"), tokens=m.address(op, "tokens"), tokens_stride=stride_of(op, "tokens"),
        logprobs=m.address(op, "logprobs"),
    )  # fmt: skip


CALLS = (sample_best, sample_shape, sample_draw, sample, advance, draft_rows, draft_states, logprobs)
