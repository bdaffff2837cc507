"""What drafts in a plan: the model's own MTP layer (models/mtp.py), Gemma 4's assistant (models/gemma4_assistant.py),
an EAGLE-3 head (models/eagle.py), a DFlash model (models/dflash.py), or a draft model with weights, caches and lists.

A draft model's lists share the tokens, the State and the logits of the plan, so that they run between the plan's own
lists, and the plan's samplers sample from the draft model's logits. Everything else has names of its own, which begin
with DRAFT.
Its caches are in the page group of the plan's own layers with full attention, so a sequence's pages serve both models.
A round of a draft model drafts k tokens of each sequence and verifies them:
    DRAFT_BEGIN                       the newest two tokens of each become a small batch
    SMALL_BATCH ... and a sampler     the draft model computes both and samples the token after them
    DECODE and a sampler, k - 1 times
    DRAFT_END                         the newest tokens and their drafts become a small batch
    SMALL_BATCH ... and verify()      the plan's own model verifies the drafts
Of several sequences, DRAFT_NEWEST leaves the newest tokens alone before the first sampler, and SMALL_BATCH replaces
DECODE. In a round of an MTP layer, an assistant or a head, the steps between DRAFT_BEGIN and DRAFT_END are MTP and
MTP_NEXT, each with a sampler: for one sequence, or as each(MTP) ... for several. A DFlash model's round has one step,
which drafts all tokens:
    begin_block(k)                    the newest token of each sequence, and k masked ones after it
    DRAFT_BLOCK                       the DFlash model's layers
    DRAFT_BLOCK_MASKED                the masked tokens are left
    DRAFT_BLOCK_LOGITS ...            with each(a sampler), the tokens that they stand for
    DRAFT_END ...                     as above
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from py_engine.files.draft_header import DRAFT, check_size
from py_engine.plan.adapted_lists import AdaptedSequences
from py_engine.plan.kernels import Device
from py_engine.plan.lists import (
    BATCH_FORWARD,
    DECODE,
    DRAFT_BEGIN,
    DRAFT_BLOCK,
    DRAFT_BLOCK_LOGITS,
    DRAFT_BLOCK_MASKED,
    DRAFT_END,
    DRAFT_NEWEST,
    MTP,
    MTP_NEXT,
    PREFILL,
    SMALL_BATCH,
    SMALL_BATCH_LAST_LOGITS,
    SMALL_BATCH_LOGITS,
    begin_block,
    each,
    verify,
)
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import ZEROS, Buffer, DraftPlan, Op, Plan, Weight
from py_engine.plan.sampler_ops import draft_rows, drafting
from py_engine.plan.sampling import Sampling, samplers
from py_engine.plan.shared_constants import SHORT_BATCH
from py_engine.plan.traffic import decode_bytes, of_step

MAX_DRAFT = SHORT_BATCH - 1  # tokens of a draft
# Buffers that both models use. Logits of tokens that only the plan's own model has stay as they are: such a token in a
# draft is rejected.
SHARED = ("tokens", "state", "logits", f"{SMALL_BATCH_LOGITS}.logits")
LISTS = (PREFILL, DECODE, SMALL_BATCH, SMALL_BATCH_LAST_LOGITS, SMALL_BATCH_LOGITS)  # that a draft model needs
SEQUENCES = SHORT_BATCH // 2  # that draft at a time: each has its newest token and one more in a batch
DRAFT_PREFILL = DRAFT + PREFILL

Step = tuple[list[str], int]  # lists, and the tokens of their batch


def add_draft(plan: Plan, draft: Plan, device: Device, n_ctx: int) -> None:
    """Add a draft model's plan to a plan with the same context, batch and page.

    `n_ctx`: positions that the draft model was trained for. WispError draft_mismatch.
    """
    check_size(plan.n_vocab, draft.n_vocab)
    cost = decode_bytes(draft, device, 0) / decode_bytes(plan, device, 0)
    for name in LISTS:
        plan.lists[DRAFT + name] = [_renamed(op, plan) for op in draft.lists[name]]
        plan.lazy.add(DRAFT + name)
    for name, data in draft.constants.items():
        if DRAFT + name in plan.buffers:
            plan.constants[DRAFT + name] = data
    for group in draft.page_groups:
        plan.page_groups[group.index].caches += [DRAFT + name for name in group.caches]
    # A short convolution reads neighbouring rows of a batch, which are of other sequences there.
    alone = any(op.kernel == "shortconv" for op in draft.lists[DECODE])
    plan.draft = DraftPlan(min(n_ctx, plan.n_ctx), cost, MAX_DRAFT, 1 if alone else SEQUENCES)
    _add_states(plan, device, "pairs")


def add_mtp(plan: Plan, device: Device, n_ctx: int, anchor: int = 0) -> None:
    """Make the lists MTP and MTP_NEXT what drafts in a plan.

    `n_ctx`: positions that what drafts was trained for. `anchor`: as in Rope, if a draft has one.

    The states of recurrent layers are those after a batch's last two tokens (states.py). So they are there after the
    newest token, too, if the draft is one token that is rejected.
    """
    moved = sum(part.bytes for _, part in of_step(plan, [MTP], device, 1, 0))
    cost = moved / decode_bytes(plan, device, 0)
    most = 1 if plan.recurrent else MAX_DRAFT
    plan.draft = DraftPlan(min(n_ctx, plan.n_ctx), cost, most, SEQUENCES, computed_by_model=True)
    plan.lazy |= {MTP, MTP_NEXT, each(MTP), each(MTP_NEXT)}
    _add_states(plan, device, "begin", anchor)


def add_block(plan: Plan, device: Device, n_ctx: int, most: int, mask: int) -> None:
    """Make the lists DRAFT_BLOCK and DRAFT_BLOCK_LOGITS what drafts in a plan.

    `n_ctx`: positions that what drafts was trained for; `most`: tokens of its drafts; `mask`: the token that stands for
    one that is to be drafted. Of a recurrent model, a draft has one token, as in add_mtp().
    """
    moved = sum(part.bytes for _, part in of_step(plan, [DRAFT_BLOCK, DRAFT_BLOCK_LOGITS], device, 1, 0))
    cost, most = moved / decode_bytes(plan, device, 0), 1 if plan.recurrent else min(most, MAX_DRAFT)
    plan.draft = DraftPlan(min(n_ctx, plan.n_ctx), cost, most, SEQUENCES, computed_by_model=True, at_once=True)
    for tokens in range(1, most + 1):
        ops = OpList(plan, begin_block(tokens), 1, device)
        bindings = {"state": ops.state, "tokens": ops.tokens, "drafting": drafting(ops)}
        params: dict[str, int | str] = {"STAGE": "block", "TOKENS": ops.tokens.shape[1], "MASK": mask}
        ops.add("draft_states", params, {"drafts": tokens}, bindings, 1)
        plan.lazy.add(ops.name)
    plan.lazy |= {DRAFT_BLOCK, DRAFT_BLOCK_LOGITS}
    _add_stages(plan, device, {DRAFT_BLOCK_MASKED: "masked", DRAFT_END: "end"})


def _add_states(plan: Plan, device: Device, begin: str, anchor: int = 0) -> None:
    """Add the lists that set the States. `begin`: before a draft's first step."""
    stages = {DRAFT_BEGIN: begin, DRAFT_END: "end"} | ({DRAFT_NEWEST: "newest"} if begin == "pairs" else {})
    _add_stages(plan, device, stages, anchor)


def _add_stages(plan: Plan, device: Device, stages: Mapping[str, str], anchor: int = 0) -> None:
    """Add lists that set the States at a stage each."""
    for name, stage in stages.items():
        set_states(OpList(plan, name, 1, device), stage, anchor if stage == "begin" else 0)
        plan.lazy.add(name)


def set_states(ops: OpList, stage: str, anchor: int = 0) -> None:
    """Append what sets the States at a stage of drafts (draft_states.wgsl), and the anchors there if `anchor`."""
    bindings = {"state": ops.state} | ({"drafting": drafting(ops)} if stage != "newest" else {})
    ops.add("draft_states", {"STAGE": stage} | ({"ANCHOR": anchor} if anchor else {}), {}, bindings, 1)
    if stage == "end":
        draft_rows(ops)


def _renamed(op: Op, plan: Plan) -> Op:
    """An op of the draft model on buffers and weights of the plan."""
    return replace(op, bindings={name: _bound(bound, plan) for name, bound in op.bindings.items()})


def _bound(bound: Buffer | Weight, plan: Plan) -> Buffer | Weight:
    """A buffer or a weight of the draft model, added to the plan with its own name."""
    if bound.name in SHARED:
        return plan.buffers[bound.name]
    if isinstance(bound, Weight):
        sources = tuple(
            (tensor if tensor == ZEROS else DRAFT + tensor, first, rows) for tensor, first, rows in bound.sources
        )
        return plan.weights.setdefault(DRAFT + bound.name, replace(bound, name=DRAFT + bound.name, sources=sources))
    return plan.buffers.setdefault(DRAFT + bound.name, replace(bound, name=DRAFT + bound.name))


def draft_step(
    samplings: Mapping[int, Sampling], adapted: AdaptedSequences, sequences: Sequence[int], n_model_draft: int = 0
) -> list[Step]:
    """The lists of a step with a draft of each of some sequences. `samplings`: of all sequences, by number.

    `n_model_draft`: tokens that a draft model or an MTP layer drafts of each; 0: the drafts are prompt lookup's.
    """
    *processors, sampler = samplers([replace(samplings[seq], logprobs=-1) for seq in sequences])
    verifying = [*adapted.lists(BATCH_FORWARD, sequences), *map(each, processors), verify(sampler)]
    if not n_model_draft:
        return [(verifying, SHORT_BATCH)]
    draft, count = adapted.plan.draft, len(sequences)
    assert draft is not None
    sampling = [*processors, sampler]
    if draft.at_once:
        drafting_steps = _block_draft(sampling, count, n_model_draft)
    else:
        first, more = (_mtp_draft if draft.computed_by_model else _model_draft)(sampling, count)
        drafting_steps = [([DRAFT_BEGIN], 1), *first, *[more] * (n_model_draft - 1)]
    return [*drafting_steps, ([DRAFT_END], 1), (verifying, count * (1 + n_model_draft))]


def _model_draft(sampling: list[str], count: int) -> tuple[list[Step], Step]:
    """The steps in which a draft model drafts the first token of `count` sequences each, and the one of each more."""
    forward, logits = DRAFT + SMALL_BATCH, DRAFT + SMALL_BATCH_LOGITS
    if count == 1:
        both = [forward, DRAFT + SMALL_BATCH_LAST_LOGITS]
        return [(both, 2), (sampling, 1)], ([DRAFT + DECODE, *sampling], 1)
    last = [logits, *map(each, sampling)]
    return [([forward], 2 * count), ([DRAFT_NEWEST], 1), (last, count)], ([forward, *last], count)


def _mtp_draft(sampling: list[str], count: int) -> tuple[list[Step], Step]:
    """The step in which an MTP layer drafts the first token of each of `count` sequences, and the one of each more."""
    of = each if count > 1 else str
    return [([of(MTP), *map(of, sampling)], count)], ([of(MTP_NEXT), *map(of, sampling)], count)


def _block_draft(sampling: list[str], count: int, tokens: int) -> list[Step]:
    """The steps in which a DFlash model drafts some tokens of each of `count` sequences."""
    return [
        ([begin_block(tokens)], 1),
        ([DRAFT_BLOCK], count * (1 + tokens)),
        ([DRAFT_BLOCK_MASKED], 1),
        ([DRAFT_BLOCK_LOGITS, *map(each, sampling)], count * tokens),
    ]


def names_of(steps: Sequence[Step]) -> list[str]:
    """The lists of steps, in order."""
    return [name for names, _ in steps for name in names]
