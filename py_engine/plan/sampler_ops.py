"""Ops after the logits: sample tokens, verify drafts, compute log-probabilities.

Every kernel works on rows of logits: one, or one per token of a small batch, each with its own sequence and parameters.
A row's result does not depend on the other rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.plan.kernels import Device, struct_fields
from py_engine.plan.lists import (
    DRAW,
    GREEDY,
    LOGPROBS,
    MASKED_DRAW,
    MASKED_GREEDY,
    MASKED_SAMPLE,
    SAMPLE,
    SHAPED_DRAW,
    SHAPED_GREEDY,
    SHAPED_SAMPLE,
    each,
    verify,
)
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, PerToken, Plan
from py_engine.plan.sampling import FIELDS, Filters
from py_engine.plan.shared_constants import (
    BUCKETS,
    LOGPROB_ROWS,
    MAX_BIASES,
    MAX_LOGPROBS,
    MAX_SEQUENCES,
    MAX_SMALL_BATCH,
    SHORT_BATCH,
)

PARTITION = 1024  # logits per workgroup
BLOCK = 2048  # logits per workgroup of the kernels that count logits in the workgroup's memory first
SAMPLER_THREADS = 256
MIN_MATCH = 3  # tokens of a repeated sequence, at least, for drafting its continuation to pay
TILE = {"PARTITION": PARTITION, "WG": SAMPLER_THREADS}
BLOCK_TILE = {"PARTITION": BLOCK, "WG": SAMPLER_THREADS}
ONE_GROUP = {"WG": SAMPLER_THREADS}
DRAFTING = list(struct_fields("lib/drafting.wgsl", "Drafting"))


@dataclass(frozen=True)
class Sampler:
    """What a list samples with."""

    filters: Filters = Filters.ALL
    shaped: bool = False  # with bias, penalties and DRY
    masked: bool = False  # again, if `mask` forbids the token that has just been sampled; includes shaped
    max_draft: int = 0  # the rows are tokens and drafts of sequences: verify these, and draft up to so many tokens


SAMPLERS = {
    GREEDY: Sampler(Filters.NONE),
    DRAW: Sampler(Filters.MIN_P),
    SAMPLE: Sampler(),
    SHAPED_GREEDY: Sampler(Filters.NONE, shaped=True),
    SHAPED_DRAW: Sampler(Filters.MIN_P, shaped=True),
    SHAPED_SAMPLE: Sampler(shaped=True),
    MASKED_GREEDY: Sampler(Filters.NONE, masked=True),
    MASKED_DRAW: Sampler(Filters.MIN_P, masked=True),
    MASKED_SAMPLE: Sampler(masked=True),
}


def add_lists(plan: Plan, device: Device, logits: Buffer) -> None:
    """Add the lists that sample a token of one sequence. Those that requests rarely need are lazy."""
    for name, sampler in SAMPLERS.items():
        sample(OpList(plan, name, 1, device), logits, sampler)
    logprobs(OpList(plan, LOGPROBS, 1, device), logits)
    plan.lazy |= {*SAMPLERS, LOGPROBS} - {GREEDY, DRAW, SAMPLE}


def add_batch_lists(plan: Plan, device: Device, logits: Buffer) -> None:
    """Add the lists that sample from each row of logits of a small batch, and that verify drafts. All are lazy."""

    def ops(name: str) -> OpList:
        plan.lazy.add(name)
        return OpList(plan, name, plan.max_small_batch, device, state_per_token=True)

    for name, sampler in SAMPLERS.items():
        sample(ops(each(name)), logits, sampler)
        if not sampler.masked:
            sample(ops(verify(name)), logits, replace(sampler, max_draft=SHORT_BATCH - 1))
    logprobs(ops(each(LOGPROBS)), logits)


class _Rows:
    """The rows of logits that a list works on, and the buffers of its kernels."""

    def __init__(self, ops: OpList, logits: Buffer) -> None:
        self.ops, self.logits = ops, logits
        self.many = bool(ops.state_params["STATE_PER_TOKEN"])
        self.partitions, self.blocks = -(-ops.plan.n_vocab // PARTITION), -(-ops.plan.n_vocab // BLOCK)
        self.sizes = {"vocab": ops.plan.n_vocab, "partitions": self.partitions}
        self.row_size = {"vocab": ops.plan.n_vocab, "stride": logits.shape[-1]}
        self.layout = self.row_size | self.sizes
        self.block_count = {"blocks": self.blocks}
        self.grid: int | PerToken = PerToken() if self.many else 1
        self.token_capacity = {"TOKENS": ops.tokens.shape[1]}

    def buffer(self, name: str, *shape: int, dtype: str = "u32", pool: str = "activations") -> Buffer:
        """A buffer with a part per row. Lists of one row share theirs, lists of many rows too."""
        rows, prefix = (self.ops.plan.max_small_batch, "each.") if self.many else (1, "")
        return self.ops.buffer(prefix + name, (rows, *shape), dtype, pool)

    def per_partition(self, name: str, width: int = 2, dtype: str = "u32") -> Buffer:
        """A record for each partition of each row."""
        return self.buffer(name, self.partitions, width, dtype=dtype)


def sample(ops: OpList, logits: Buffer, sampler: Sampler) -> None:
    """Sample a token from each row of logits, append it to its sequence, and advance its state."""
    rows = _Rows(ops, logits)
    parameters = ops.buffer("sampling", (MAX_SEQUENCES, len(FIELDS)), "u32", "state")
    first = {"rows": ops.buffer("rows", (MAX_SMALL_BATCH, 4), "u32"), "best": rows.per_partition("best")}
    if sampler.shaped or sampler.masked:
        shaped = rows.buffer("shaped", logits.shape[-1], dtype="f32")
        layout = Rules(ops.plan.n_vocab)
        rules = ops.buffer("rules", (MAX_SEQUENCES, layout.words), "u32", "state")
        history = {"sampling": parameters, "tokens": ops.tokens, "rules": rules, "logits": logits}
        ops.add(
            "sample_shape",
            TILE
            | rows.token_capacity
            | ops.state_params
            | {
                "BIT_WORDS": layout.bit_words,
                "MAX_BIASES": layout.max_biases,
                "MASKED": int(sampler.masked),
            },
            rows.layout,
            {"state": ops.state, "shaped": shaped} | history | first,
            rows.partitions,
            rows.grid,
        )
        rows.logits = shaped
    else:
        inputs = {"state": ops.state, "logits": logits}
        ops.add("sample_best", TILE | ops.state_params, rows.layout, inputs | first, rows.partitions, rows.grid)
    greedy = sampler.filters is Filters.NONE
    drawn = {} if greedy else {"sampling": parameters, "drawn": _draw(rows, parameters, first, sampler.filters)}
    _append(rows, first | drawn, sampler)


def _draw(rows: _Rows, parameters: Buffer, first: dict[str, Buffer], filters: Filters) -> Buffer:
    """Draw a token of each partition among those that pass the filters."""
    ops, ranked = rows.ops, filters is Filters.ALL
    inputs = {"sampling": parameters, "rows": first["rows"]}
    logits, best, drawn = {"logits": rows.logits}, {"best": first["best"]}, rows.per_partition("drawn")
    outputs = {"drawn": drawn}
    if ranked:
        histogram = {"histogram": rows.buffer("histogram", BUCKETS, 4, pool="state")}
        spread = {"spread": rows.buffer("spread", rows.blocks, 4, dtype="f32")}
        ordered = {"sorted": rows.buffer("sorted", ops.plan.n_vocab, dtype="f32")}
        bounds = {"bounds": ops.buffer("bounds", (MAX_SMALL_BATCH, 4), "u32")}
        counted, on_blocks = inputs | logits | histogram | bounds, (rows.blocks, rows.grid)
        ops.add("sample_histogram", BLOCK_TILE, rows.layout | rows.block_count, counted | best | spread, *on_blocks)
        ops.add("sample_sort", BLOCK_TILE, rows.row_size, counted | ordered, *on_blocks)
        sizes, found = {"vocab": ops.plan.n_vocab} | rows.block_count, spread | ordered | histogram | bounds
        ops.add("sample_bounds", ONE_GROUP, sizes, inputs | found, 1, rows.grid)
        outputs |= bounds | histogram
    tile = TILE | {"RANKED": int(ranked)}
    ops.add("sample_draw", tile, rows.layout, inputs | logits | best | outputs, rows.partitions, rows.grid)
    return drawn


def _append(rows: _Rows, found: dict[str, Buffer], sampler: Sampler) -> None:
    """Append each row's token and advance its state; for a draft, verify it."""
    ops = rows.ops
    chosen = {"chosen": ops.buffer("chosen", (MAX_SMALL_BATCH,), "u32")} if sampler.max_draft else {}
    target = chosen or {"tokens": ops.tokens, "state": ops.state}
    ops.add(
        "sample",
        ONE_GROUP
        | ({} if chosen else rows.token_capacity | ops.state_params)
        | {"GREEDY": int("drawn" not in found), "CHOSEN": int(bool(chosen))},
        rows.sizes,
        found | target,
        1,
        rows.grid,
    )
    if chosen:
        states = {"state": ops.state, "drafting": drafting(ops)}
        ops.add(
            "advance",
            {"DRAFTS": sampler.max_draft} | ONE_GROUP | rows.token_capacity,
            {"min_match": MIN_MATCH},
            states | {"tokens": ops.tokens} | chosen,
            1,
            rows.grid,
        )
        draft_rows(ops)


def draft_rows(ops: OpList) -> None:
    """Make the sequences' newest tokens and their drafts the next small batch."""
    ops.add("draft_rows", {}, {}, {"state": ops.state, "drafting": drafting(ops)}, 1)


def drafting(ops: OpList) -> Buffer:
    """The buffer with a Drafting for each sequence (wgsl/lib/drafting.wgsl)."""
    return ops.buffer("drafting", (MAX_SEQUENCES, len(DRAFTING)), "u32", "state")


def logprobs(ops: OpList, logits: Buffer) -> None:
    """Write the log-probabilities of each row's sampled token and of the likeliest ones, into its position's row."""
    rows = _Rows(ops, logits)
    partial = {"partial": rows.per_partition("logprobs.partial", 4)}
    ops.add("logprobs_partitions", TILE, rows.layout, {"logits": logits} | partial, rows.partitions, rows.grid)
    parameters = ops.buffer("sampling", (MAX_SEQUENCES, len(FIELDS)), "u32", "state")
    shape = (MAX_SEQUENCES, LOGPROB_ROWS, 1 + MAX_LOGPROBS, 2)
    found = {"logprobs": ops.buffer("logprobs", shape, "u32", "state")}
    ops.add(
        "logprobs",
        TILE | {"LOGPROB_ROWS": LOGPROB_ROWS, "MAX_LOGPROBS": MAX_LOGPROBS} | rows.token_capacity | ops.state_params,
        rows.layout,
        {"sampling": parameters, "state": ops.state, "tokens": ops.tokens, "logits": logits} | partial | found,
        1,
        rows.grid,
    )


class Rules:
    """The layout of the buffer `rules`, what requests say of single tokens. sample_shape.wgsl describes it."""

    def __init__(self, vocab: int) -> None:
        self.bit_words = -(-vocab // 32)  # u32 of a bit per token
        self.max_biases = min(vocab, MAX_BIASES)
        self.words = 2 * self.bit_words + 2 * self.max_biases  # u32 of a sequence

    def mask(self, seq: int) -> int:
        """The byte where a sequence's mask begins."""
        return 4 * seq * self.words

    def breakers(self, seq: int) -> int:
        """The byte where the bits of its sequence breakers begin."""
        return self.mask(seq) + 4 * self.bit_words

    def biases(self, seq: int) -> int:
        """The byte where its biases begin."""
        return self.breakers(seq) + 4 * self.bit_words
