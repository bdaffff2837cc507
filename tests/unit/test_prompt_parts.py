"""Which lists compute a part of a prompt, and whether a seeded text may continue from it."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from bench import shapes
from py_engine import planner
from py_engine.generate.answer import Answer
from py_engine.generate.prompt_parts import prompt_part
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE, PREFILL_END
from py_engine.plan.plan import Plan
from py_engine.plan.sampling import Sampling
from py_engine.runners import Rounding

GPU = Device(f16=True, subgroup=32, matrix=16, max_workgroup_storage=49152, max_threads=1024, dot8=True)
SAMPLED, GREEDY, SEEDED = Sampling(temperature=0.4), Sampling(temperature=0), Sampling(temperature=0.4, seed=1)


@dataclass
class FakeRunner:
    plan: Plan
    on_gpu: bool = True

    def prepared(self, lists: Any, sequences: Any) -> bool:
        return True


@dataclass
class FakeCache:
    tokens: list[int]
    number: int = 0
    checkpoint: int = 0
    recorded: list[Any] = field(default_factory=list)

    def reserve(self, end: int) -> int:
        return end


@pytest.fixture(scope="module")
def runner() -> FakeRunner:
    header = shapes.header(shapes.SHAPES["qwen3-0.6b"], "Q4_K_M")
    return FakeRunner(planner.make_plan(header, GPU, planner.PlanOptions(4096, 2048, "f16")))


@pytest.mark.parametrize(
    ("sampling", "cached", "tokens", "splits"),
    [
        (SAMPLED, 2000, 100, True),
        (SAMPLED, 0, 100, False),  # early in a context
        (SAMPLED, 2000, 300, False),  # these occupy a GPU as they are
        (GREEDY, 2000, 100, False),
        (SEEDED, 2000, 100, False),
    ],
)
def test_attention_is_split_where_the_text_may_round_otherwise(
    runner: FakeRunner, sampling: Sampling, cached: int, tokens: int, splits: bool
) -> None:
    answer = Answer([1] * (cached + tokens), sampling, 10, frozenset(), exact=sampling.seed is not None)
    part = prompt_part(answer, FakeCache([1] * cached), runner, 2048)  # type: ignore[arg-type]
    assert (part.at, len(part.ids), part.last) == (cached, tokens, True)
    assert part.lists == PREFILL_END
    assert part.rounding == (Rounding.ANY if splits else Rounding.SAME)
    assert part.exact != splits


def test_a_token_that_was_decoded_is_decoded_again(runner: FakeRunner) -> None:
    answer = Answer([1] * 2001, SAMPLED, 10, frozenset())
    answer.prompted = 2000
    part = prompt_part(answer, FakeCache([1] * 2000), runner, 2048)  # type: ignore[arg-type]
    assert (part.lists, part.rounding, part.exact) == ((DECODE,), Rounding.SAME, False)
