"""Logits processors in WGSL: the form of their text, their values, and the lists that run them."""

import struct

import pytest

from py_engine.errors import WispError
from py_engine.plan.adapted_lists import AdaptedSequences
from py_engine.plan.draft import draft_step, names_of
from py_engine.plan.lists import BATCH_FORWARD, DECODE, each, verify
from py_engine.plan.plan import DraftPlan, Plan
from py_engine.plan.processors import MAX_VALUES, Processor, processor
from py_engine.plan.sampling import Sampling, samplers, step

PLAIN = processor("fn process(token: u32, logit: f32) -> f32 { return logit; }")
VALUED = processor("""// fn process(wrong: f32) -> u32
fn helper(x: f32) -> f32 { return 2.0 * x; }
fn process(token: u32, logit: f32, by: f32, /* of the answer */ least: u32, turn: i32,) -> f32 { return helper(logit); }
""")
WRONG = [
    "",
    "fn other(token: u32, logit: f32) -> f32 { return logit; }",
    "// fn process(token: u32, logit: f32) -> f32 { return logit; }",
    "fn process(logit: f32) -> f32 { return logit; }",
    "fn process(logit: f32, token: u32) -> f32 { return logit; }",
    "fn process(token: u32, logit: f32) -> u32 { return token; }",
    "fn process(token: u32, logit: f32, x: vec2f) -> f32 { return logit; }",
    "fn process(token: u32, logit: f32, x: array<f32, 2>) -> f32 { return logit; }",
    f"fn process(token: u32, logit: f32{''.join(f', v{i}: f32' for i in range(MAX_VALUES + 1))}) -> f32 {{}}",
    "x" * 100_000,
    "fn process(token: u32, logit: f32) -> f32 { return f32(wisp_tokens[0]); }",
    "@ /**/ group(0) @binding(1) var<storage> a: array<u32>; fn process(token: u32, logit: f32) -> f32 { return 0; }",
]


@pytest.mark.parametrize("source", WRONG)
def test_texts_of_another_form(source: str) -> None:
    with pytest.raises(WispError) as caught:
        processor(source)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "logits_processor")


def test_values_by_name() -> None:
    used = VALUED.with_values({"turn": -3, "by": 0.5, "least": 7})
    assert used.values == struct.pack("<fIi", 0.5, 7, -3)
    assert (
        "process(token, logit, bitcast<f32>(wisp_value(0u)), wisp_value(1u), bitcast<i32>(wisp_value(2u)))" in used.code
    )
    assert used.list == VALUED.list != PLAIN.list  # one kernel for all values
    assert struct.unpack_from("<II", used.record(5)) == (used.number, 5)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"by": 1, "least": -1, "turn": 0},
        {"by": "x", "least": 1, "turn": 0},
        {"by": 1, "least": 2.7, "turn": 0},
        {"by": 1, "least": 1, "turn": float("nan")},
        {"by": 1, "least": 1, "up": 0},
    ],
)
def test_values_that_do_not_fit(values: dict[str, float]) -> None:
    with pytest.raises(WispError, match=r"value|parameter"):
        VALUED.with_values(values)


def test_the_lists_of_a_step() -> None:
    """Each processor runs once, before the sampler; also before a draft is verified."""

    def sampling(used: Processor | None = None) -> Sampling:
        return Sampling(temperature=0, processor=used)

    plain, valued = PLAIN.list, VALUED.list
    assert step([sampling(PLAIN)]) == ([DECODE], [plain, "greedy"])
    several = [sampling(PLAIN), sampling(), sampling(VALUED), sampling(PLAIN)]
    assert samplers(several, batch=True) == [each(plain), each(valued), each("greedy")]
    model = AdaptedSequences(Plan(1, 1, 1))
    verifying = [*BATCH_FORWARD, each(plain), verify("greedy")]
    assert names_of(draft_step({0: sampling(PLAIN)}, model, [0])) == verifying
    for computed_by_model in (False, True):
        model.plan.draft = DraftPlan(1, 0.1, 7, 4, computed_by_model)
        drafted = names_of(draft_step({0: sampling(PLAIN)}, model, [0], n_model_draft=2))
        assert drafted[-len(verifying) :] == verifying
        assert drafted.count(plain) == drafted.count("greedy") == 2
    assert samplers([sampling()]) == ["greedy"]
