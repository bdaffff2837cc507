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

# `calls` has what reaches the device and the constraint; `changed` says which tokens the mask changes, `lost` which
# result fails. Sampled are 100, 101, ...
RUN = """(async () => {
  const { changed = [], lost = -1, refused = -1, stays = 100, options = {}, stopAt = -1, unmasked = -1 } = a[0];
  const calls = [];
  let read = 0;
  const writeBuffer = (buffer, offset, mask) => calls.push(["mask", buffer, offset, [...mask]]);
  const replay = {
    device: { queue: { writeBuffer } },
    decode: ({ sequences, positions, lists }) => calls.push(["sample", sequences[0], positions[0], lists[0]]),
    forward: ({ position }) => calls.push(["forward", position]),
    async result() {
      if (read === lost) throw new Error("lost");
      if (read === stopAt) masking.end().then(() => calls.push(["ended"]));
      return { ids: [100 + read], resampled: changed[read++] ?? true, ms: 2 };
    },
  };
  const masking = new m.Masking(replay);
  const source = {
    mask: async () => (read === unmasked ? Promise.reject(new Error("no mask")) : Int32Array.of(read, 7, 9)),
    accept: (token) => (calls.push(["accept", token]), token !== refused),
    canSample: () => read < stays,
  };
  const place = { buffer: "rules", offset: 64, words: 2 };
  const usual = { newest: { seq: 3, position: 40 }, left: 10, most: 4, unchanged: 2, ms: 1e6 };
  const lists = { first: ["first"], sample: ["sample"], forward: ["forward"], place };
  const found = await masking.sample(source, { ...usual, ...lists, ...options }).catch(String);
  await masking.end();
  return { found, calls };
})()"""


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("masked"), ["py_engine/gpu/masked.js"])


def test_each_token_is_sampled_with_the_mask_after_the_one_before(evaluate: Evaluate) -> None:
    """While the host waits for a token, the device computes its logits; those of the answer's last one it does not."""
    seen = evaluate(RUN, {"options": {"left": 2}, "stays": 2})
    assert seen["found"] == {"ids": [100, 101], "changed": [True, True], "ms": 4, "error": ""}
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
    assert evaluate(RUN, case)["found"]["ids"] == list(range(100, 100 + tokens))


def test_a_lost_device_loses_no_token_that_the_constraint_has_accepted(evaluate: Evaluate) -> None:
    assert evaluate(RUN, {"lost": 2})["found"]["ids"] == [100, 101]
    assert evaluate(RUN, {"lost": 0})["found"] == "Error: lost"


def test_a_mask_that_fails_loses_no_token_before_it(evaluate: Evaluate) -> None:
    found = evaluate(RUN, {"unmasked": 2})["found"]
    assert (found["ids"], found["error"]) == ([100, 101], "Error: no mask")


def test_a_token_that_the_constraint_rejects_is_an_error(evaluate: Evaluate) -> None:
    found = evaluate(RUN, {"refused": 101})["found"]
    assert (found["ids"], found["error"]) == ([100], "it rejects token 101")


def test_the_end_is_awaited(evaluate: Evaluate) -> None:
    calls = evaluate(RUN, {"stopAt": 0})["calls"]
    assert calls.index(["accept", 100]) < calls.index(["ended"])


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
        while not ids or (len(ids) < most and any(changed[-unchanged:]) and await source.can_sample()):
            self.mask(await source.mask(), self._seq)
            self.step(1, eager=True)
            batch, resampled = await self.take()
            await source.accept(batch.ids[0])
            ids += batch.ids
            changed.append(resampled)
        return MaskedTokens(Batch(ids), changed)


class Source(RandomConstraint):
    """A random constraint whose tokens may be sampled in turn."""

    @property
    def source(self) -> "Source":
        return self

    async def can_sample(self) -> bool:
        return not self.finished() and not await self.forced()


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
    constraint = Source(fraction)
    assert await collect(used, PROMPT, sampling, 60, constraint=constraint) == want == constraint.accepted
    assert 0 < runner.turns < 50, "some yield several tokens"
    assert await collect(used, PROMPT, WARM, 9) == await collect(make(), PROMPT, WARM, 9), "nothing is left behind"


@pytest.mark.parametrize("options", [{"end": 20}, {"end": 20, "jumps": False}])
async def test_an_answer_in_turn_ends_with_its_constraint(options: dict[str, Any]) -> None:
    make_constraint: Callable[..., RandomConstraint] = RandomConstraint
    want = await collect(make(), PROMPT, WARM, 30, constraint=make_constraint(0.3, **options))
    used, _ = in_turn(1)
    assert await collect(used, PROMPT, WARM, 30, constraint=Source(0.3, **options)) == want
    assert len(want) == 20


async def test_log_probabilities_are_read_token_by_token() -> None:
    used, runner = in_turn(1)
    scored = Sampling(temperature=1.5, seed=3, logprobs=2)
    want = await collect(make(), PROMPT, scored, 20, constraint=RandomConstraint(0.3))
    assert await collect(used, PROMPT, scored, 20, constraint=Source(0.3)) == want
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


class StrictLater(Source):
    """A constraint that rejects most tokens after the first thirty."""

    def _allowed(self) -> np.ndarray:
        return super()._allowed() if len(self.accepted) >= 30 else np.ones(VOCAB, bool)


@pytest.mark.parametrize("prompt", [PROMPT, [*PROMPT, 3, 5, 7], [7, 3]])
async def test_tokens_in_turn_after_a_rejected_one_have_pages(prompt: list[int]) -> None:
    """The runner asserts that it decodes no position whose page the sequence has not been given."""
    used, runner = in_turn(7, page=16)
    constraint = StrictLater(0.3, jumps=False)
    assert await collect(used, prompt, WARM, 100, constraint=constraint) == constraint.accepted
    assert len(constraint.accepted) == 100
    assert runner.turns
