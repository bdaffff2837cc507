"""The goldens that run on WebGPU cover every pair of kernel switches that occurs in any golden."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import computed_once, golden_ops

PLANS: dict[str, list[dict[str, Any]]] = {  # name -> the params of each op
    "all off": [{"A": 0, "B": 0, "C": 0, "QUANT_W": "q4_0"}],
    "a with b": [{"A": 1, "B": 1, "C": 0, "QUANT_W": "q4_0"}],
    "a with c": [{"A": 1, "B": 0, "C": 1, "QUANT_W": "q4_0"}],
    "b with c": [{"A": 0, "B": 1, "C": 1, "QUANT_W": "q4_0"}],
    "another size": [{"A": 1, "B": 1, "C": 96, "QUANT_W": "q4_0"}, {"A": 1, "B": 1, "C": 128, "QUANT_W": "q4_0"}],
    "three at once": [{"A": 1, "B": 1, "C": 1, "QUANT_W": "q4_0"}],
    "another type": [{"A": 0, "B": 0, "C": 0, "QUANT_W": "q8_0"}],
}


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Path, ...]:
    """Files whose plans are PLANS."""

    def plan(name: str, *_: object) -> SimpleNamespace:
        return SimpleNamespace(lists={"decode": [SimpleNamespace(kernel="k", params=params) for params in PLANS[name]]})

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(golden_ops, "parse", lambda data, _: data.decode())
    monkeypatch.setattr(golden_ops, "make_plan", plan)
    for name in PLANS:
        (tmp_path / name).write_text(name)
    return tuple(tmp_path / name for name in PLANS)


def names_of(paths: frozenset[Path]) -> set[str]:
    return {path.name for path in paths}


def test_every_two_switches_that_meet_are_in_a_chosen_golden(plans: tuple[Path, ...]) -> None:
    chosen = names_of(golden_ops.representatives(plans))
    assert chosen == {*PLANS} - {"three at once", "another type"}


def test_tensor_types_may_count_as_switches(plans: tuple[Path, ...]) -> None:
    chosen = names_of(golden_ops.representatives(plans, types=True))
    assert chosen == {*PLANS} - {"three at once"}


def test_single_switches_need_fewer_goldens(plans: tuple[Path, ...]) -> None:
    chosen = names_of(golden_ops.representatives(plans, strength=1))
    assert chosen == {"all off", "another size", "a with c"}


def test_goldens_are_added_until_nothing_is_missing() -> None:
    one, two, three, four, five = (("k", (("A", value),)) for value in range(5))
    assert golden_ops.covering({"a": {one, two}, "b": {two, three, four}, "c": {four}, "d": {one, five}}) == ["b", "d"]


def test_another_process_reads_what_one_has_computed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Until a file has other contents, or another thing is asked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file, times = tmp_path / "file", iter(range(9))

    def ask(what: str) -> int:
        computed_once._of_file.cache_clear()  # as in another process
        return computed_once.computed_once(what, [file], lambda: next(times))

    file.write_text("a")
    assert [ask("x"), ask("x"), ask("y")] == [0, 0, 1]
    file.write_text("b")
    assert [ask("x"), ask("x")] == [2, 2]
