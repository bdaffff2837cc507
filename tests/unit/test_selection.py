"""Selections of combinations: what each keeps, and that WISP_ALL=1 runs all."""

import itertools

import pytest

from tests.support.pairs import pairs
from tools import selection, shaders

AXES = ("abc", (0, 1), (True, False))


@pytest.fixture
def selecting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(selection.ALL, raising=False)


@pytest.fixture
def every(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(selection.ALL, "1")


@pytest.mark.usefixtures("selecting")
def test_each_pair_of_values_is_in_a_row() -> None:
    rows = pairs(*AXES)
    assert len(rows) == len(set(rows)) < 12
    for (i, first), (j, second) in itertools.combinations(enumerate(AXES), 2):
        assert {(row[i], row[j]) for row in rows} == set(itertools.product(first, second))


@pytest.mark.usefixtures("selecting")
def test_cases_take_turns() -> None:
    assert selection.fewer(range(9), 2) == range(2)
    assert [selection.in_turn(at, "xyz") for at in range(4)] == [["x"], ["y"], ["z"], ["x"]]
    assert selection.in_turn(1, "xyz", also="z") == ["y", "z"]


@pytest.mark.usefixtures("selecting")
def test_each_model_is_planned_for_the_quick_devices_and_one_more() -> None:
    models: list[shaders.Model] = [object() for _ in range(12)]  # type: ignore[misc]
    parts = [shaders.planned_for(setup, models) for setup in shaders.IN_TURN]
    assert sorted(map(id, itertools.chain(*parts))) == sorted(map(id, models))
    assert all(parts)
    for setup in shaders.QUICK_SETUPS:
        assert shaders.planned_for(setup, models) == models


@pytest.mark.usefixtures("every")
def test_all_combinations_run_on_request() -> None:
    assert pairs(*AXES) == list(itertools.product(*AXES))
    assert selection.fewer(range(9), 2) == range(9)
    assert selection.in_turn(0, "xyz") == ["x", "y", "z"]
    models: list[shaders.Model] = [object()] * 12  # type: ignore[list-item]
    assert all(shaders.planned_for(setup, models) == models for setup in shaders.SETUPS)
