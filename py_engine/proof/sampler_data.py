"""The data of a sampler's list: a small vocabulary, and parameters that use every filter and penalty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from py_engine.cpu.call import Array
from py_engine.plan.op_list import pad
from py_engine.plan.plan import Buffer, Op, Plan
from py_engine.plan.sampler_ops import BLOCK, PARTITION, Rules
from py_engine.plan.sampling import FIELDS, Sampling
from py_engine.plan.shared_constants import LOGPROB_ROWS, MAX_LOGPROBS, MAX_SEQUENCES, SHORT_BATCH
from py_engine.proof.batches import Batch
from py_engine.proof.random_data import RandomData, poison

Places = tuple[tuple[int, int], ...]  # (position, sequence) of rows
VOCAB = 2 * BLOCK + PARTITION + 37  # tokens, where the model has as many
SPREAD = 3.0  # standard deviation of the logits: some ten tokens have most of the probability
BEYOND = 50.0  # what follows a row of logits, which no kernel may take
FLAT = 0.2  # factor of the logits that typical_p filters: wrong sums of a bucket then move its bounds
MEAN = 6.0  # of the logits that top_n_sigma filters: wrong sums then change their deviation
CROWD = (BLOCK // 2 + 6, BLOCK // 2 + 490, BLOCK - 8, 3 * BLOCK // 2 + 28, 3 * BLOCK // 2 + 500, 2 * BLOCK - 96)
CROWD_STEP = 2.0**-11  # less than a bucket of logits is wide
BESIDE = (11, 29)  # tokens just below and above the bound of top_n_sigma
BESIDE_STEP = 2.0**-11  # twenty times what sums in f32 differ by
HISTORY = 128  # positions with tokens: more than any of PLACES
ALPHABET = 11  # tokens of the history, so that it repeats itself
PERIOD = 17  # tokens of a history that a draft continues
PLACES = ((62, 1), (7, 0), (101, 2), (3, 3), (20, 4))  # (position, sequence) of rows
DRAFT = tuple((62 + i, 1) for i in range(SHORT_BATCH))
DRAFTS = (*DRAFT[:4], (20, 4), (7, 0), (8, 0), (101, 2))  # of several sequences
PENALTIES: dict[str, Any] = {
    "presence_penalty": 0.5,
    "frequency_penalty": 0.3,
    "repeat_penalty": 1.3,
    "repeat_last_n": 40,
}
ALL_FILTERS = (
    Sampling(temperature=0.8, top_k=1, seed=11),
    Sampling(temperature=1.0, top_p=0.7, seed=12),
    Sampling(temperature=0.9, typical_p=0.6, seed=13),
    Sampling(temperature=1.3, top_n_sigma=2.0, min_p=0.05, seed=14),
    Sampling(temperature=1.1, xtc_probability=1.0, xtc_threshold=0.04, top_k=9, top_p=0.97, seed=15),
    Sampling(temperature=1.2, top_n_sigma=2.0, seed=19),  # many logits are near the bound
    Sampling(temperature=0.7, dynatemp_range=0.6, dynatemp_exponent=0.7, top_p=0.98, seed=21),
)
MIN_P = (Sampling(temperature=0.8, min_p=0.02, seed=16), Sampling(temperature=1.5, seed=17))
FIRST = Sampling(temperature=0.0, seed=18)  # the likeliest token is the first of the second partition
LATE = Sampling(temperature=0.0, seed=20)  # it is in the last partition
NO_FILTER = (FIRST, LATE)


@dataclass(frozen=True)
class Part:
    """A sampler's ops on a batch, and the contents of their buffers."""

    ops: list[Op]
    batch: Batch
    data: dict[str, Array]


def parts(chain: list[Op], plan: Plan, random: RandomData) -> Iterator[Part]:
    """The data of a list: all rows at once, or for a list of one row, one after the other."""
    vocab = min(VOCAB, plan.n_vocab)
    names = {op.kernel for op in chain}
    filters = ALL_FILTERS if "sample_bounds" in names else MIN_P if "sample_draw" in names else NO_FILTER
    if "draft_states" in names:
        for ops, places in _drafting(chain, plan):
            batch = Batch(tuple((min(pos, plan.n_ctx - SHORT_BATCH), seq) for pos, seq in places), True)
            yield _part(ops, plan, random, vocab, batch, [NO_FILTER[0]] * len(places))
        return
    if any(op.params.get("STATE_PER_TOKEN") or op.params.get("CHOSEN") for op in chain):
        for chosen in (DRAFT, DRAFTS) if "advance" in names else (PLACES,):
            places = tuple((min(pos, plan.n_ctx - 8 + i), seq) for i, (pos, seq) in enumerate(chosen))
            settings = [filters[i % len(filters)] for i in range(len(places))]
            ops = [_with_vocab(op, vocab) for op in chain]
            yield _part(ops, plan, random, vocab, Batch(places, True), settings)
        return
    for i, sampling in enumerate(filters):  # each with another rest of the last block
        ops = [_with_vocab(op, vocab - i) for op in chain]
        yield _part(ops, plan, random, vocab - i, Batch(((min(61, plan.n_ctx - 2), 1),), False), [sampling])


def _drafting(chain: list[Op], plan: Plan) -> Iterator[tuple[list[Op], Places]]:
    """The ops of a list that sets the States of drafts, and what it sets them for."""
    stage = chain[0].params["STAGE"]
    if stage == "block":
        for count in (1, 2):  # sequences, whose blocks fill a short batch
            tokens = SHORT_BATCH // count - 1
            yield [replace(chain[0], consts={"drafts": tokens}), *chain[1:]], PLACES[:count]
        return
    if stage == "masked":  # two sequences' masked tokens, then the newest ones
        newest = _newest(plan)
        masked = [(newest + 1 + i, seq) for seq in (1, 0) for i in range(SHORT_BATCH // 2 - 1)]
        yield chain, (*masked, (newest, 1), (newest, 0))
        return
    if stage != "newest":
        yield chain, PLACES[:1]
    yield chain, PLACES[: SHORT_BATCH // 2]


def _newest(plan: Plan) -> int:
    """The position of the newest token of each sequence that drafts."""
    return max(0, min(61, plan.n_ctx - 2) - 4)


def _with_vocab(op: Op, vocab: int) -> Op:
    """The op for fewer tokens."""
    consts, grid, blocks = dict(op.consts), op.grid, -(-vocab // BLOCK)
    consts |= {"vocab": vocab} if "vocab" in consts else {}
    consts |= {"stride": pad(vocab)} if "stride" in consts else {}
    consts |= {"partitions": -(-vocab // PARTITION)} if "partitions" in consts else {}
    consts |= {"blocks": blocks} if "blocks" in consts else {}
    if op.grid[0] != 1 and isinstance(op.grid[0], int):
        grid = (-(-vocab // int(op.params["PARTITION"])), *op.grid[1:])
    return replace(op, consts=consts, grid=grid)


def _part(ops: list[Op], plan: Plan, random: RandomData, vocab: int, batch: Batch, given: list[Sampling]) -> Part:
    numbers = random.numbers
    kernels = {op.kernel for op in ops}
    shaped = any(op.kernel == "sample_shape" for op in ops)
    masked = any(op.params.get("MASKED") for op in ops)
    rules = Rules(plan.n_vocab)
    data: dict[str, Array] = {"state": random.state(batch)[0]}
    buffers = {b.name: (name, b) for op in ops for name, b in op.bindings.items() if isinstance(b, Buffer)}
    partitions, blocks = -(-vocab // PARTITION), -(-vocab // BLOCK)
    widths: dict[str, tuple[int, ...]] = dict.fromkeys(("best", "drawn"), (partitions, 2))
    widths |= {"partial": (partitions, 4), "spread": (blocks, 4), "sorted": (vocab,)}
    sequences = {seq: sampling for (_, seq), sampling in zip(batch.places, given, strict=True)}
    for name, (binding, b) in buffers.items():
        match binding:
            case "state":
                continue
            case "logits" if name not in ("shaped", "each.shaped"):
                shape = (b.shape[0] if len(b.shape) > 1 else 1, pad(vocab))
                data[name] = random.normal(shape) * np.float32(SPREAD)
                data[name][:, vocab:] = BEYOND
            case "logits" | "shaped":
                data[name] = poison((b.shape[0], pad(vocab)), "f32")
            case "tokens":
                data[name] = _histories(random, (batch.sequences, b.shape[1]), min(VOCAB, plan.n_vocab))
            case "sampling":
                data[name] = np.zeros((MAX_SEQUENCES, len(FIELDS)), np.uint32)
            case "rules":
                data[name] = np.zeros((batch.sequences, rules.words), np.uint32)
            case "histogram":
                data[name] = np.zeros(b.shape, np.uint32)
            case "drafting":
                data[name] = np.tile(np.array([plan.n_ctx, 5, _newest(plan), 0], np.uint32), (MAX_SEQUENCES, 1))
            case "logprobs":
                data[name] = np.full((batch.sequences, LOGPROB_ROWS, 1 + MAX_LOGPROBS, 2), 0xFFFFFFFF, np.uint32)
            case _:
                data[name] = poison((b.shape[0], *widths.get(binding, b.shape[1:])), b.dtype)
    for seq, sampling in sequences.items():
        full = replace(sampling, logprobs=MAX_LOGPROBS)
        if shaped:
            biases = [
                (int(i), float(v))
                for i, v in zip(numbers.integers(0, vocab, 60), numbers.uniform(-9, 9, 60), strict=True)
            ]
            used = [int(t) for t in data["tokens"][seq, :2]]
            full = replace(full, **PENALTIES, logit_bias=(*biases, (vocab // 2, -100.0)), dry_breakers=tuple(used[:1]))
            allowed = np.zeros(rules.bit_words, np.uint32)
            allowed[:] = random.words(allowed.shape) if masked else 0
            if masked:
                position = next(pos for pos, s in batch.places if s == seq)
                token = int(data["tokens"][seq, position])
                allowed[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)
            words = data["rules"].reshape(-1)
            for at, content in (
                (rules.mask(seq), allowed.tobytes()),
                (rules.breakers(seq), full.breaker_bits(plan.n_vocab)),
                (rules.biases(seq), full.biases()),
            ):
                values = np.frombuffer(content, np.uint32)
                words[at // 4 : at // 4 + len(values)] = values
        if "sampling" in data:
            position = next(pos for pos, s in batch.places if s == seq)
            data["sampling"][seq] = np.frombuffer(full.pack(position // 2, 5, masked), np.uint32)
    if any("logits" in op.bindings for op in ops):  # drafting lists may begin without
        _decide(_logits(data, ops), given, vocab)
    if kernels >= {"sample_best", "advance"}:
        _accept(data, ops, batch, vocab)
    return Part(ops, batch, data)


def _histories(random: RandomData, shape: tuple[int, int], vocab: int) -> Array:
    """Tokens of sequences that repeat themselves. Cases share them."""
    if shape not in random.repetitive:
        found, step = random.histories(shape, ALPHABET, HISTORY), max(1, vocab // ALPHABET)
        found[:, :HISTORY] = found[:, :HISTORY] * np.uint32(step) + np.uint32(step // 2)  # 0 would hide wrong factors
        random.repetitive[shape] = found
    return random.repetitive[shape]


def _logits(data: dict[str, Array], ops: list[Op]) -> Array:
    return next(data[b.name] for op in ops for n, b in op.bindings.items() if n == "logits" and isinstance(b, Buffer))


def _decide(logits: Array, given: Sequence[Sampling], vocab: int) -> None:
    """Let each row's sampler depend on what a wrong kernel gets wrong.

    For top_p, the likeliest tokens share a bucket, with the bound among them. They are in the second halves of two
    blocks: sample_sort.wgsl reserves places for both.
    """
    for row, sampling in zip(logits, given, strict=False):
        top = np.ceil(row[:vocab].max()) + 1
        if sampling.top_p < 1 and not sampling.top_k and vocab > max(CROWD):
            most = max(top, np.log(np.exp(row[:vocab]).sum()))  # then all others have a seventh of the probability
            row[list(CROWD)] = most - CROWD_STEP * np.arange(len(CROWD), dtype=np.float32)
        if sampling in (FIRST, LATE):
            row[min(PARTITION, vocab - 1) if sampling == FIRST else vocab - 2] = top
        if sampling.top_n_sigma:
            row[:vocab] += np.float32(MEAN)
        if sampling.top_n_sigma > 0:
            for _ in range(2):  # the logits near the bound move it
                bound = row[:vocab].max() - sampling.top_n_sigma * row[:vocab].std(dtype=np.float64)
                row[list(BESIDE)] = bound - BESIDE_STEP, bound + BESIDE_STEP
        if sampling.typical_p < 1:
            row[:] *= np.float32(FLAT)
        if sampling.min_p:  # the last partition has the likeliest: a join may lack it
            best, late = int(row[:vocab].argmax()), vocab - 2
            row[best], row[late] = row[late], row[best]


def _accept(data: dict[str, Array], ops: list[Op], batch: Batch, vocab: int) -> None:
    """Make histories repeat a pattern, and the likeliest tokens continue it: a draft's first two are accepted."""
    logits, data["tokens"] = _logits(data, ops), data["tokens"].copy()
    for seq in {seq for _, seq in batch.places}:
        rows = [m for m, (_, s) in enumerate(batch.places) if s == seq]
        first, tokens = batch.places[rows[0]][0], data["tokens"][seq]
        tokens[: first + 1] = tokens[np.arange(first + 1) % PERIOD]
        for m, row in enumerate(rows[:3]):
            token = tokens[(first + 1 + m) % PERIOD]
            logits[row, token] = logits[row, :vocab].max() + 9
            tokens[first + 1 + m] = token if m < 2 else (token + 1) % vocab
    # an earlier place of the first sequence that equals the end but for its last token
    (first, seq), tokens = batch.places[0], data["tokens"][batch.places[0][1]]
    last, decoy = first + 3, first - 6
    tokens[decoy - 7 : decoy] = tokens[last - 7 : last]
    tokens[decoy] = (tokens[(first + 3) % PERIOD] + 1) % vocab
    _match_least(data["tokens"], logits, batch, ops)


def _match_least(histories: Array, logits: Array, batch: Batch, ops: list[Op]) -> None:
    """Let the longest match of a sequence with one row have just as many tokens as a draft needs."""
    least = next(int(op.consts["min_match"]) for op in ops if op.kernel == "advance")
    for row, (first, seq) in enumerate(batch.places):
        if sum(s == seq for _, s in batch.places) == 1 and first > 2 * least + 2:
            tokens, sampled, place = histories[seq], first + 2, least + 2
            tokens[: first + 1] = range(1, first + 2)  # nothing repeats itself
            logits[row, sampled] = logits[row].max() + 9
            tokens[place - least + 1 : place + 1] = [*tokens[first - least + 2 : first + 1], sampled]
            return


assert len(PLACES) <= SHORT_BATCH
