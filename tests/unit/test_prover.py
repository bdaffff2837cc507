"""What the proof makes of the outcomes of its runs on a device."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from py_engine.proof.modules import SEEDS
from py_engine.proof.prover import Prover


class Outcomes(Prover):
    """A proof whose runs on the device have given outcomes: the labels of wrong kernels, by run."""

    def __init__(self, labels: list[str], *runs: list[str]) -> None:
        self.stats = {"checked": 0, "skipped": []}
        self._labels, self._runs, self.seeds, self.found = labels, iter(runs), list[int](), dict[str, str]()
        self._proven: Any = SimpleNamespace(add=lambda found: self.found.update({s.label: why for s, why in found}))

    async def _uploaded(self, names: list[str], seed: int) -> Any:
        self.seeds.append(seed)

    async def _run(self, run: Any) -> tuple[set[str], dict[str, str]]:
        wrong = next(self._runs)
        return set(self._labels) - set(wrong), dict.fromkeys(wrong, "off")

    async def find_out(self, shaders: list[Any]) -> None:
        """What the first cases, which were made during compilation, and others tell of kernels."""
        await self._find_out([], shaders, asyncio.ensure_future(self._uploaded([], SEEDS[0])))


@pytest.mark.parametrize(
    ("label", "again", "wrong"),
    [
        ("matvec", None, "off"),  # is not run again
        ("sample_draw", ["sample_draw"], "off"),
        ("sample_draw", [], ""),  # its single token hung on a rounding
    ],
)
async def test_a_sampler_is_wrong_if_it_is_so_with_other_data(label: str, again: list[str] | None, wrong: str) -> None:
    prover = Outcomes([label, "norm"], [label], *([] if again is None else [again]))
    shaders: list[Any] = [SimpleNamespace(label=name) for name in (label, "norm")]
    await prover.find_out(shaders)
    assert prover.seeds == ([1] if again is None else [1, 2])
    assert prover.found == {label: wrong, "norm": ""}
    assert prover.stats == {"checked": 2, "skipped": []}


async def test_right_kernels_run_once() -> None:
    prover = Outcomes(["matvec"], [])
    shaders: list[Any] = [SimpleNamespace(label="matvec")]
    await prover.find_out(shaders)
    assert (prover.seeds, prover.found) == ([1], {"matvec": ""})
