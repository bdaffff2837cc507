"""Which lists compute a part of a prompt, and whether a seeded text may continue from it."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from bench import shapes
from py_engine import planner
from py_engine.generate.answer import Answer
from py_engine.generate.prompt_parts import prompt_part
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE, PREFILL_END, SMALL_BATCH_END
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


def runner_of(shape: str) -> FakeRunner:
    header = shapes.header(shapes.SHAPES[shape], "Q4_K_M")
    return FakeRunner(planner.make_plan(header, GPU, planner.PlanOptions(4096, 2048, "f16")))


@pytest.fixture(scope="module")
def runner() -> FakeRunner:
    return runner_of("qwen3-0.6b")


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
    assert part.options.rounding == (Rounding.ANY if splits else Rounding.SAME)
    assert part.exact != splits


def test_a_token_that_was_decoded_is_decoded_again(runner: FakeRunner) -> None:
    answer = Answer([1] * 2001, SAMPLED, 10, frozenset())
    answer.prompted = 2000
    part = prompt_part(answer, FakeCache([1] * 2000), runner, 2048)  # type: ignore[arg-type]
    assert (part.lists, part.options.rounding, part.exact) == ((DECODE,), Rounding.SAME, False)


@pytest.mark.parametrize(
    ("shape", "tokens", "read", "small"),
    [
        ("qwen3-0.6b", 8, 8, True),
        ("qwen3-0.6b", 9, 9, False),
        ("smollm2-135m", 16, 8, True),
        ("smollm2-135m", 17, 17, False),
    ],
)
def test_short_prompts_are_read_in_small_batches_where_that_is_faster(
    shape: str, tokens: int, read: int, *, small: bool
) -> None:
    """Models with narrow layers read up to two of them."""
    answer = Answer([1] * tokens, SAMPLED, 10, frozenset())
    part = prompt_part(answer, FakeCache([]), runner_of(shape), 2048)  # type: ignore[arg-type]
    assert len(part.ids) == read
    assert part.lists == ((SMALL_BATCH_END if read == tokens else SMALL_BATCH_END[:1]) if small else PREFILL_END)
