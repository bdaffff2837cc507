"""Drafts: what is accepted of them, and the States of the batch that verifies the next ones. GPU against numpy."""

import numpy as np
import pytest

from py_engine.plan import draft, sampler_ops
from py_engine.plan.pages import TABLES, shift_index
from py_engine.plan.sampler_ops import Sampler
from py_engine.plan.sampling import Filters, Sampling
from py_engine.plan.shared_constants import MAX_SEQUENCES, SHORT_BATCH
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import give


def drafting_of(known: dict[int, list[int]]) -> np.ndarray:
    """The buffer `drafting` with the Drafting of some sequences."""
    words = np.full((MAX_SEQUENCES, len(sampler_ops.DRAFTING)), 0xFFFFFF, np.uint32)
    for seq, values in known.items():
        words[seq] = values
    return words


@pytest.mark.parametrize("end", [63, 44, 0])
def test_drafts(bench_in_f32: Bench, end: int) -> None:
    """A draft is accepted up to the first mismatch; the next one comes from an earlier match."""
    seen = set()
    for seed in range(12):
        n = 1 + seed % 5
        ops = bench_in_f32.begin(
            Setup(batch=SHORT_BATCH, n=n, places=tuple((40 + i, 2) for i in range(n)), vocab=40, seed=seed)
        )
        logits = ops.rows("logits", 40)
        values = bench_in_f32.fill(logits)
        sampler_ops.sample(ops, logits, Sampler(Filters.NONE, max_draft=SHORT_BATCH - 1))
        give(bench_in_f32, 2, Sampling(temperature=0))
        words = bench_in_f32.random.integers(0, 3, 65).astype(np.uint32)
        words[:30] = bench_in_f32.random.permutation(40)[:30]
        words[36:41] = words[3:8]
        bench_in_f32.data["tokens"][2] = words
        for i in range(n - 1):  # the draft token at 41 + i is right in 80 % of the cases
            values[i, words[41 + i]] += 100 * (bench_in_f32.random.random() < 0.8)
        if seed % 3 == 0:
            values[0, words[8]] += 1000
        bench_in_f32.data["drafting"] = drafting_of({2: [end, 1 + seed % 4, 0, 0]})
        gpu, host = bench_in_f32.run(ops)
        for name in ("tokens", "state", "drafting"):
            assert (gpu[name] == host[name]).all(), (seed, name)
        states = bench_in_f32.states(gpu)
        last, count = int(states[0, 0]), int(states[0, 1])
        assert 41 <= last <= 40 + n
        assert count == 1 or last + count - 1 <= end
        assert [tuple(row) for row in states[:count, [0, 3]]] == [(last + i, 2) for i in range(count)]
        seen.add((last - 40, count > 1))
    assert len(seen) > (2 if end else 1)
    assert end == 0 or {True, False} == {drafted for _, drafted in seen}


@pytest.mark.parametrize("rows", [(3, 1, 2), (1, 1), (5, 3), (1, 2, 1, 1, 3), (1,) * 8], ids=str)
def test_drafts_of_several_sequences(bench_in_f32: Bench, rows: tuple[int, ...]) -> None:
    """Each is accepted as if it were alone. The next drafts get the batch's rows in turn."""
    numbers, full = [5, 0, 2, 31, 7, 1, 9, 3][: len(rows)], 0
    places = tuple((30 + 2 * seq % 9 + i, seq) for seq, n in zip(numbers, rows, strict=True) for i in range(n))
    for seed in range(8):
        ops = bench_in_f32.begin(Setup(batch=SHORT_BATCH, n=len(places), places=places, vocab=40, seed=seed))
        logits = ops.rows("logits", 40)
        values, dice = bench_in_f32.fill(logits), bench_in_f32.random
        sampler_ops.sample(ops, logits, Sampler(Filters.NONE, max_draft=SHORT_BATCH - 1))
        tokens = bench_in_f32.data["tokens"]
        for seq in numbers:
            give(bench_in_f32, seq, Sampling(temperature=0))
            tokens[seq] = dice.integers(0, 40, 5)[np.arange(65) % 5] if dice.random() < 0.7 else tokens[seq]
        for m, (pos, seq) in enumerate(places):  # the next token is the draft's in 80 % of the cases
            values[m, tokens[seq, pos + 1]] += 100 * (dice.random() < 0.8)
        known = {seq: [int(dice.integers(40, 64)), int(dice.integers(1, 8)), 0, 0] for seq in numbers}
        bench_in_f32.data["drafting"] = drafting_of(known)
        before = tokens.copy()
        gpu, host = bench_in_f32.run(ops)
        for name in ("tokens", "state", "drafting"):
            assert (gpu[name] == host[name]).all(), (seed, name)
        states, at = bench_in_f32.states(gpu), 0
        given, found = [], gpu["drafting"][numbers, 3].tolist()
        for i, seq in enumerate(numbers):
            chosen = values[sum(rows[:i]) : sum(rows[: i + 1]), :40].argmax(axis=1)
            first = next(pos for pos, s in places if s == seq) + 1
            draft = before[seq, first : first + rows[i] - 1]
            right = next((k for k, token in enumerate(draft) if token != chosen[k]), len(draft))
            assert gpu["tokens"][seq, first : first + right + 1].tolist() == chosen[: right + 1].tolist()
            assert gpu["drafting"][seq, 2] == first + right
            count = int((states[: states[0, 1], 3] == seq).sum())
            assert states[at : at + count, [0, 3]].tolist() == [[first + right + k, seq] for k in range(count)]
            given.append(count - 1)
            at += count
        assert at == states[0, 1] == min(SHORT_BATCH, len(rows) + sum(found))
        assert all(n <= most for n, most in zip(given, found, strict=True))
        assert all(a >= b - 1 or a == most for a, most in zip(given, found, strict=True) for b in given)
        full += sum(given) < sum(found)
    assert full, "rows were lacking"


@pytest.mark.parametrize(("pos", "drafts"), [(40, 1), (40, 5), (1, 7), (0, 3)])
def test_states_between_a_draft_model_and_the_model(bench_in_f32: Bench, pos: int, drafts: int) -> None:
    """The newest two tokens, or the only one, for the draft model; then the newest token and its draft."""
    ops = bench_in_f32.begin(Setup(batch=SHORT_BATCH, n=1, places=((pos, 2),)))
    bench_in_f32.data["drafting"] = drafting_of({2: [0, 2, 9, 5]})
    draft.set_states(ops, "pairs")
    gpu, host = bench_in_f32.run(ops)
    assert all((gpu[name] == host[name]).all() for name in ("state", "drafting"))
    first = max(0, pos - 1)
    count = pos + 1 - first
    assert bench_in_f32.states(gpu)[0, 1] == count
    assert bench_in_f32.states(gpu)[:count, [0, 3]].tolist() == [[first + i, 2] for i in range(count)]
    assert (gpu["drafting"] == drafting_of({2: [0, 2, pos, 5]})).all()
    ops = bench_in_f32.begin(Setup(batch=SHORT_BATCH, n=1, places=((pos + drafts, 2),)))
    bench_in_f32.data["drafting"] = gpu["drafting"]
    draft.set_states(ops, "end")
    gpu, host = bench_in_f32.run(ops)
    assert all((gpu[name] == host[name]).all() for name in ("state", "drafting"))
    states = bench_in_f32.states(gpu)
    assert states[0, 1] == drafts + 1
    assert states[: drafts + 1, [0, 3]].tolist() == [[pos + i, 2] for i in range(drafts + 1)]


@pytest.mark.parametrize("has_anchors", [False, True])
def test_states_between_an_mtp_layer_and_the_model(bench_in_f32: Bench, has_anchors: bool) -> None:
    """The newest token of each sequence for the layer; then these with their drafts, of two tokens each."""
    ops = bench_in_f32.begin(Setup(batch=SHORT_BATCH, n=2, places=((40, 2), (7, 0))))
    bench_in_f32.data["drafting"] = drafting_of({2: [0, 2, 9, 5], 0: [0, 2, 3, 1]})
    anchor = shift_index(ops.plan.n_ctx, ops.plan.page)
    draft.set_states(ops, "begin", anchor if has_anchors else 0)
    before = bench_in_f32.data["state"].copy()
    gpu, host = bench_in_f32.run(ops)
    words = TABLES // 4 + anchor + np.array([2, 0])
    assert (gpu["state"][words] == ([40, 7] if has_anchors else before[words])).all()
    assert all((gpu[name] == host[name]).all() for name in ("state", "drafting"))
    assert (gpu["drafting"] == drafting_of({2: [0, 2, 40, 5], 0: [0, 2, 7, 1]})).all()
    assert bench_in_f32.states(gpu)[:2, [0, 3]].tolist() == [[40, 2], [7, 0]]
    ops = bench_in_f32.begin(Setup(batch=SHORT_BATCH, n=2, places=((42, 2), (9, 0))))
    bench_in_f32.data["drafting"] = gpu["drafting"]
    draft.set_states(ops, "end")
    gpu, host = bench_in_f32.run(ops)
    assert all((gpu[name] == host[name]).all() for name in ("state", "drafting"))
    states = bench_in_f32.states(gpu)
    assert states[:6, [0, 3]].tolist() == [[40, 2], [41, 2], [42, 2], [7, 0], [8, 0], [9, 0]]
    assert states[0, 1] == 6


@pytest.mark.parametrize(
    "places", [((40, 2), (7, 0)), ((1, 9), (0, 3), (64, 1)), ((8, 5), (31, 4), (3, 6), (2, 7))], ids=str
)
def test_states_of_pairs_of_several_sequences(bench_in_f32: Bench, places: tuple[tuple[int, int], ...]) -> None:
    """The newest token of each, then the one before it, or the first one again; after the layers, the newest only."""
    n = len(places)
    ops = bench_in_f32.begin(Setup(batch=SHORT_BATCH, n=n, places=places))
    bench_in_f32.data["drafting"] = drafting_of({seq: [0, 2, 9, 5] for _, seq in places})
    draft.set_states(ops, "pairs")
    gpu, host = bench_in_f32.run(ops)
    assert all((gpu[name] == host[name]).all() for name in ("state", "drafting"))
    assert (gpu["drafting"] == drafting_of({seq: [0, 2, pos, 5] for pos, seq in places})).all()
    pairs = [*places, *((max(0, pos - 1), seq) for pos, seq in places)]
    states = bench_in_f32.states(gpu)
    assert states[0, 1] == 2 * n
    assert [tuple(row) for row in states[: 2 * n, [0, 3]]] == pairs
    ops = bench_in_f32.begin(Setup(batch=SHORT_BATCH, n=2 * n, places=tuple(pairs)))
    draft.set_states(ops, "newest")
    gpu, host = bench_in_f32.run(ops)
    assert (gpu["state"] == host["state"]).all()
    states = bench_in_f32.states(gpu)
    assert states[0, 1] == n
    assert [tuple(row) for row in states[:n, [0, 3]]] == list(places)
