"""Choose a few goldens that cover every kernel switch, or every pair of them, that occurs in any golden."""

import itertools
import re
from collections.abc import Iterable, Mapping, Set
from functools import cache
from pathlib import Path
from typing import TypeVar

from py_engine.files.convolutions import flattened
from py_engine.files.gguf_header import parse
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Plan
from py_engine.planner import PlanOptions, make_plan
from tests.support.computed_once import computed_once
from tools.paths import ROOT

LAVAPIPE = Device(f16=True, subgroup=4, software=True)
OPTIONS = PlanOptions(256, 16, "f16")

MODE = re.compile(r"^#(?:el)?if .*?\b([A-Z][A-Z_]*) [=!]= (?:[2-9]|\d\d)", re.MULTILINE)

Name = TypeVar("Name")
Switch = tuple[str, int | float | str]  # a param and its value
Op = tuple[str, tuple[Switch, ...]]  # a kernel and one switch of an op, or two


def ops_of(path: Path, *, types: bool = False, strength: int = 2) -> set[Op]:
    """Each kernel of a golden's plan with each pair of its switches; with `types`, tensor types are switches, too.

    `strength`: 1 for single switches instead of pairs.

    Sizes are not told apart: tests/kernels has many, and all types. Numbers that a kernel compares are (MODE). Three
    switches that meet in no chosen golden are run by tests/unit alone, on the CPU.
    """
    return {op for op in _met(_of_golden(path), types=types) if len(op[1]) <= strength}


@cache
def _of_golden(path: Path) -> frozenset[Op]:
    data = path.read_bytes()
    return _ops(make_plan(parse(data, len(data)), LAVAPIPE, OPTIONS))


def _ops(plan: Plan) -> frozenset[Op]:
    """Each kernel of a plan with all switches of an op."""
    found = {(op.kernel, tuple(op.params.items())) for ops in plan.lists.values() for op in ops}
    return frozenset((kernel, tuple(sorted((n, _switch(n, at)) for n, at in params))) for kernel, params in found)


def _met(ops: Iterable[Op], *, types: bool) -> set[Op]:
    """Each kernel with each pair of its switches; with `types`, tensor types are switches, too."""
    found = {(kernel, tuple(s for s in switches if types or "QUANT" not in s[0])) for kernel, switches in ops}
    return set[Op]().union(*(_pairs(op) for op in found))


@cache
def _pairs(op: Op) -> frozenset[Op]:
    kernel, switches = op
    met = [(), *((one,) for one in switches), *itertools.combinations(switches, 2)]
    return frozenset((kernel, some) for some in met)


def _switch(name: str, value: int | float | str) -> int | float | str:
    return value if isinstance(value, str) or value in (0, 1) or name in _modes() else "a size"


@cache
def _modes() -> frozenset[str]:
    """Params that select code, not sizes: kernels compare them with a number above 1."""
    return frozenset(name for path in (ROOT / "wgsl").rglob("*.wgsl") for name in MODE.findall(path.read_text("utf-8")))


@cache
def representatives(paths: tuple[Path, ...], *, types: bool = False, strength: int = 2) -> frozenset[Path]:
    """A selection of the goldens that covers all that ops_of() finds in any."""

    def choose() -> list[int]:
        ops = {path: ops_of(path, types=types, strength=strength) for path in paths}
        return [paths.index(path) for path in covering(ops)]

    return frozenset(paths[i] for i in computed_once(f"representatives, {types=}, {strength=}", paths, choose))


def encoder_representatives(projectors: Mapping[str, Path]) -> set[str]:
    """The names of some projectors, which cover all that encoder_ops_of() finds in any."""

    def choose() -> list[str]:
        return covering({name: encoder_ops_of(path) for name, path in projectors.items()})

    return set(computed_once(f"encoders {[*projectors]}", projectors.values(), choose))


def encoder_ops_of(path: Path) -> set[Op]:
    """Each kernel of a projector's plan with each pair of its switches and tensor types."""
    data = path.read_bytes()
    return _met(_ops(make_plan(flattened(parse(data, len(data))), LAVAPIPE, OPTIONS)), types=True)


def covering(ops: Mapping[Name, Set[Op]]) -> list[Name]:
    """A selection of the names that covers what all have. Greedy: the one that adds most comes next."""
    bits: dict[Op, int] = {}  # sets of ops as numbers with a bit for each: thousands of intersections are counted
    sets = {name: sum(1 << bits.setdefault(op, len(bits)) for op in own) for name, own in ops.items()}
    missing = (1 << len(bits)) - 1
    chosen = []
    while missing:
        best = max(sets, key=lambda name: (sets[name] & missing).bit_count())
        chosen.append(best)
        missing &= ~sets[best]
    return chosen
