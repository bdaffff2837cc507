"""Tokens that are sampled with masks in turn, without Python between them: masked.js, in Node, and its caller."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from py_engine.engine import Engine
from py_engine.plan.sampling import Batch, Sampling
from py_engine.runners import MaskedTokens, SampleMasked
from tests.support.cpu_engines import GREEDY, PROMPT, SHAPED, VOCAB, WARM, RandomConstraint, Runner, collect, make
from tests.support.js_modules import Evaluate, evaluator

# Samples tokens of rows, of one if `rows` has no others. `calls` has what reaches the device and the constraints;
# `changed` says which tokens the masks change, `lost` which result fails. Row i samples 100 (i + 1), and so on. Of a
# row, `forced` has what is known, and `forces` what the constraint forces where it cannot sample: null at its end;
# `known` is what the source itself knows of that.
RUN = """(async () => {
  const { changed = [], lost = -1, refused = -1, stays = 100, options = {}, stopAt = -1, unmasked = -1 } = a[0];
  const { rows = [{}], broken = -1 } = a[0];
  const calls = [];
  let read = 0;
  const writeBuffer = (buffer, offset, mask) => calls.push(["mask", buffer, offset, [...mask]]);
  const replay = {
    device: { queue: { writeBuffer } },
    decode: ({ sequences, positions, lists }) => calls.push(["sample", ...sequences, ...positions, lists[0]]),
    encodeForward: (places) => ({ places }),
    flush: () => {},
    forward(places, _lists, encoded) {
      const at = places.map(({ position }) => position);
      calls.push(["forward", ...at]);
      if (encoded?.places.some(({ position }, i) => position !== at[i])) calls.push("encoded for others");
    },
    feed: (seq, position, ids, lists, read, rows) => calls.push(["feed", seq, position, ...ids, lists[0], read, rows]),
    async result() {
      if (read === lost) throw new Error("lost");
      if (read === stopAt) masking.end().then(() => calls.push(["ended"]));
      const each = (what) => rows.map((_, i) => what(i));
      return { ids: each((i) => 100 * (i + 1) + read), resampled: each(() => changed[read] ?? true), ms: (read++, 2) };
    },
  };
  const masking = new m.Masking(replay);
  const source = {
    mask: async () => (read === unmasked ? Promise.reject(new Error("no mask")) : Int32Array.of(read, 7, 9)),
    accept(token) {
      if (token === broken) throw new Error("no state");
      calls.push(["accept", token]);
      return token !== refused;
    },
    canSample: () => read < stays,
  };
  const sourceOf = ({ free, cannotSampleAt: at, known }) => {
    if (free || at === undefined) return free ? undefined : source;
    const left = known && [...known]; // of the forced tokens
    const accept = (token) => (left?.[0] === token && left.shift(), source.accept(token));
    return { ...source, accept, canSample: () => read !== at || left?.length === 0, forcedIds: known && (() => left) };
  };
  const row = ({ forced, forces, ...more }, i) => ({
    seq: 3 + i, position: 40 + 10 * i, offset: 64 * (i + 1), forced, source: sourceOf(more),
    fetchForced: forces === undefined ? undefined : async () => (calls.push(["fetch"]), forces ?? undefined),
  });
  const usual = { rows: rows.map(row), left: 10, most: 4, unchanged: 2, ms: 1e6, eager: true };
  const lists = { first: ["first"], sample: ["sample"], forward: ["forward"], buffer: "rules", words: 2 };
  const found = await masking.sample({ ...usual, ...lists, ...options }).catch(String);
  await masking.end();
  return { found, calls };
})()"""


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("masked"), ["py_engine/gpu/masked.js"])


def one(seen: dict[str, Any]) -> dict[str, Any]:
    """What was sampled of the only row."""
    (row,) = seen["found"]["rows"]
    assert isinstance(row, dict)
    return row


def test_each_token_is_sampled_with_the_mask_after_the_one_before(evaluate: Evaluate) -> None:
    """While the host waits for a token, the device computes its logits; those of the answer's last one it does not."""
    seen = evaluate(RUN, {"options": {"left": 2}, "stays": 2})
    row = {"ids": [100, 101], "changed": [True, True], "forced": [], "ended": False, "error": ""}
    took = one(seen).pop("maskMs")
    assert took >= 0
    assert seen["found"] == {"rows": [row], "ms": 4}
    assert seen["calls"] == [
        ["mask", "rules", 64, [0, 7]],
        ["sample", 3, 40, "first"],
        ["forward", 41],
        ["accept", 100],
        ["mask", "rules", 64, [1, 7]],
        ["sample", 3, 41, "sample"],
        ["accept", 101],
    ]


@pytest.mark.parametrize(
    ("case", "tokens"),
    [
        ({}, 4),
        ({"options": {"ms": 0}}, 1),
        ({"stays": 3}, 3),
        ({"changed": [True, False, False]}, 3),
        ({"changed": [False, True, False, True]}, 4),
        ({"changed": [False], "options": {"unchanged": 1}}, 1),
        ({"stopAt": 1}, 2),
    ],
)
def test_where_it_ends(evaluate: Evaluate, case: dict[str, Any], tokens: int) -> None:
    assert one(evaluate(RUN, case))["ids"] == list(range(100, 100 + tokens))


def test_a_lost_device_loses_no_token_that_the_constraint_has_accepted(evaluate: Evaluate) -> None:
    assert one(evaluate(RUN, {"lost": 2}))["ids"] == [100, 101]
    assert evaluate(RUN, {"lost": 0})["found"] == "Error: lost"


def test_a_mask_that_fails_loses_no_token_before_it(evaluate: Evaluate) -> None:
    found = one(evaluate(RUN, {"unmasked": 2}))
    assert (found["ids"], found["error"]) == ([100, 101], "Error: no mask")


def test_a_token_that_the_constraint_rejects_is_an_error(evaluate: Evaluate) -> None:
    found = one(evaluate(RUN, {"refused": 101}))
    assert (found["ids"], found["error"]) == ([100], "it rejects token 101")


def test_a_constraint_that_breaks_loses_no_token_before_it(evaluate: Evaluate) -> None:
    found = one(evaluate(RUN, {"broken": 101}))
    assert (found["ids"], found["error"]) == ([100], "Error: no state")


def test_the_end_is_awaited(evaluate: Evaluate) -> None:
    calls = evaluate(RUN, {"stopAt": 0})["calls"]
    assert calls.index(["accept", 100]) < calls.index(["ended"])


FEED = {"feed": {"one": ["one token"], "batch": ["tokens"], "most": 3}, "most": 8}


@pytest.mark.parametrize(("lists", "known"), [("one token", [7]), ("tokens", [7, 8, 9])])
def test_known_forced_tokens_of_a_single_row_are_fed(evaluate: Evaluate, lists: str, known: list[int]) -> None:
    """The logits after the newest token were computed; those after the forced ones follow in one go."""
    seen = evaluate(RUN, {"rows": [{"cannotSampleAt": 2, "known": known}], "options": FEED | {"most": 3 + len(known)}})
    assert one(seen)["ids"] == [100, 101, *known, 102]
    assert one(seen)["changed"] == [True, True, True]
    at, after = seen["calls"].index(["feed", 3, 43, *known, lists, False, False]), 42 + len(known)
    assert seen["calls"][at - 1 - len(known)] == ["accept", 101]
    assert seen["calls"][at + 1 : at + 4] == [
        ["mask", "rules", 64, [2, 7]],
        ["sample", 3, after, "sample"],
        ["forward", after + 1],
    ]


def test_forced_text_of_one_token_is_sampled(evaluate: Evaluate) -> None:
    """The last token of a forced text may merge with what follows, so nothing of such a text is fed."""
    seen = evaluate(RUN, {"rows": [{"cannotSampleAt": 2, "known": []}], "options": FEED | {"most": 4}})
    assert one(seen)["ids"] == [100, 101, 102, 103]


@pytest.mark.parametrize(
    "case",
    [
        {"known": [7, 8, 9, 10]},  # more than a batch
        {"known": [7, 8], "options": FEED | {"most": 4}},  # none could be sampled after them
        {"known": [7, 8], "options": FEED | {"left": 4}},
        {"known": None},
    ],
)
def test_other_forced_tokens_end_the_steps_before_them(evaluate: Evaluate, case: dict[str, Any]) -> None:
    row = {"cannotSampleAt": 2} | ({"known": case["known"]} if case["known"] else {})
    seen = evaluate(RUN, {"rows": [row], "options": case.get("options", FEED)})
    assert one(seen)["ids"] == [100, 101]
    assert not [call for call in seen["calls"] if call[0] == "feed" or call == ["accept", 7]]


def test_a_forced_token_that_the_constraint_rejects_is_an_error(evaluate: Evaluate) -> None:
    seen = evaluate(RUN, {"rows": [{"cannotSampleAt": 2, "known": [7, 8]}], "options": FEED, "refused": 8})
    assert (one(seen)["ids"], one(seen)["error"]) == ([100, 101, 7], "it rejects token 8")
    assert not [call for call in seen["calls"] if call[0] == "feed"]


# A batch: nothing is computed after the last token, which the next call may begin with.
BATCH = {"most": 3, "left": 3, "eager": False}


def test_free_and_constrained_rows_share_steps(evaluate: Evaluate) -> None:
    seen = evaluate(RUN, {"rows": [{"forces": []}, {"free": True}], "options": BATCH | {"most": 2}})
    assert seen["calls"] == [
        ["mask", "rules", 64, [0, 7]],
        ["sample", 3, 4, 40, 50, "first"],
        ["forward", 41, 51],
        ["accept", 100],
        ["mask", "rules", 64, [1, 7]],
        ["sample", 3, 4, 41, 51, "sample"],
        ["accept", 101],
    ]
    assert [row["ids"] for row in seen["found"]["rows"]] == [[100, 101], [200, 201]]
    assert not any(row["ended"] for row in seen["found"]["rows"])


def test_forced_tokens_are_masked_in_turn_and_do_not_count_as_changed(evaluate: Evaluate) -> None:
    rows = [{"forced": [33], "forces": []}, {"forces": [5, 40, 2], "cannotSampleAt": 1}]
    seen = evaluate(RUN, {"rows": rows, "options": BATCH})
    masks = [(offset, mask) for kind, *rest in seen["calls"] if kind == "mask" for _, offset, mask in [rest]]
    assert masks == [(64, [0, 2]), (128, [0, 7]), (64, [1, 7]), (128, [32, 0]), (64, [2, 7]), (128, [0, 256])]
    assert [row["forced"] for row in seen["found"]["rows"]] == [[], [2]]
    assert [row["changed"] for row in seen["found"]["rows"]] == [[True, True], [True]]
    assert seen["calls"].count(["fetch"]) == 1


def test_a_row_that_ends_ends_the_steps(evaluate: Evaluate) -> None:
    rows = [{"forces": []}, {"forces": None, "cannotSampleAt": 1}]
    found = evaluate(RUN, {"rows": rows, "options": BATCH})["found"]
    assert [(row["ids"], row["ended"]) for row in found["rows"]] == [([100], False), ([200], True)]


def test_a_row_that_fails_ends_the_steps_and_no_other_row(evaluate: Evaluate) -> None:
    seen = evaluate(RUN, {"rows": [{"forces": []}, {"forces": []}], "options": BATCH, "refused": 201})
    assert [row["ids"] for row in seen["found"]["rows"]] == [[100, 101], [200]]
    assert [row["error"] for row in seen["found"]["rows"]] == ["", "it rejects token 201"]


class InTurn(Runner):
    """A CPU runner that samples with masks in turn, as a GPU's does."""

    turns = 0
    sample_masked: SampleMasked | None

    def begin(self, position: int, count: int, seq: int = 0) -> None:
        self._seq = seq
        super().begin(position, count, seq)

    async def _in_turn(self, source: Any, most: int, unchanged: int) -> MaskedTokens:
        ids, changed = list[int](), list[bool]()
        self.turns += 1
        while not ids or (len(ids) < most and any(changed[-unchanged:]) and source.canSample()):
            self.mask(await source.mask(), self._seq)
            self.step(1, eager=True)
            batch, resampled = await self.take()
            source.accept(batch.ids[0])
            ids += batch.ids
            changed.append(resampled)
        return MaskedTokens(Batch(ids), changed)


def in_turn(ahead: int, page: int = 64) -> tuple[Engine, InTurn]:
    plain = make(ahead=ahead, page=page)
    runner = InTurn(plain.plan)
    runner._cpu, runner.ahead = plain.runner._cpu, ahead  # type: ignore[attr-defined]
    runner.sample_masked = runner._in_turn
    return Engine(plain.plan, runner, "cpu", 4), runner


@pytest.mark.parametrize("sampling", [GREEDY, WARM, SHAPED], ids=["greedy", "plain", "shaped"])
@pytest.mark.parametrize("fraction", [0.3, 0.9])
@pytest.mark.parametrize("ahead", [1, 7])
async def test_tokens_sampled_in_turn_are_those_sampled_one_by_one(
    fraction: float, ahead: int, sampling: Sampling
) -> None:
    want = await collect(make(), PROMPT, sampling, 60, constraint=RandomConstraint(fraction))
    used, runner = in_turn(ahead, page=16)
    constraint = RandomConstraint(fraction, has_source=True)
    assert await collect(used, PROMPT, sampling, 60, constraint=constraint) == want == constraint.accepted
    assert 0 < runner.turns < 50, "some yield several tokens"
    assert await collect(used, PROMPT, WARM, 9) == await collect(make(), PROMPT, WARM, 9), "nothing is left behind"


@pytest.mark.parametrize("options", [{"end": 20}, {"end": 20, "jumps": False}])
async def test_an_answer_in_turn_ends_with_its_constraint(options: dict[str, Any]) -> None:
    make_constraint: Callable[..., RandomConstraint] = RandomConstraint
    want = await collect(make(), PROMPT, WARM, 30, constraint=make_constraint(0.3, **options))
    used, _ = in_turn(1)
    assert await collect(used, PROMPT, WARM, 30, constraint=RandomConstraint(0.3, has_source=True, **options)) == want
    assert len(want) == 20


async def test_log_probabilities_are_read_token_by_token() -> None:
    used, runner = in_turn(1)
    scored = Sampling(temperature=1.5, seed=3, logprobs=2)
    want = await collect(make(), PROMPT, scored, 20, constraint=RandomConstraint(0.3))
    assert await collect(used, PROMPT, scored, 20, constraint=RandomConstraint(0.3, has_source=True)) == want
    assert not runner.turns


@pytest.mark.parametrize(("ms", "reads"), [(0.0, 3), (1.0, 0), (20.0, 1)])
async def test_the_parts_of_a_constrained_prompt_are_submitted_ahead(ms: float, reads: int) -> None:
    """A result is awaited where their time is not known, or too much of it is on the device already."""
    prompt = [7 * i % 250 for i in range(40)]
    want = await collect(make(), prompt, WARM, 5, constraint=RandomConstraint(0.3))
    used, awaited = make(batch=16), list[None]()
    runner, result = used.runner, used.runner.result

    async def counted() -> list[Batch]:
        awaited.append(None)
        return await result()

    runner.result, runner.prompt_ms = counted, lambda n: ms  # type: ignore[method-assign]
    assert await collect(used, prompt, WARM, 5, constraint=RandomConstraint(0.3)) == want
    assert len(awaited) == reads


class StrictLater(RandomConstraint):
    """A constraint that rejects most tokens after the first thirty."""

    def _allowed(self) -> np.ndarray:
        return super()._allowed() if len(self.accepted) >= 30 else np.ones(VOCAB, bool)


@pytest.mark.parametrize("prompt", [PROMPT, [*PROMPT, 3, 5, 7], [7, 3]])
async def test_tokens_in_turn_after_a_rejected_one_have_pages(prompt: list[int]) -> None:
    """The runner asserts that it decodes no position whose page the sequence has not been given."""
    used, runner = in_turn(7, page=16)
    constraint = StrictLater(0.3, jumps=False, has_source=True)
    assert await collect(used, prompt, WARM, 100, constraint=constraint) == constraint.accepted
    assert len(constraint.accepted) == 100
    assert runner.turns
