"""Which goldens have ops that no other one has, so that some of them run every op of all."""

from collections.abc import Mapping, Set
from functools import cache
from pathlib import Path
from typing import TypeVar

from py_engine.files.convolutions import flattened
from py_engine.files.gguf_header import parse
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Plan
from py_engine.planner import PlanOptions, make_plan

LAVAPIPE = Device(f16=True, subgroup=4, software=True)
OPTIONS = PlanOptions(256, 16, "f16")

Name = TypeVar("Name")
Op = tuple[str, frozenset[tuple[str, int | float | str]]]


def ops_of(path: Path) -> set[Op]:
    """The kernels of a golden's plan with their switches.

    Sizes are not told apart, and neither are tensor types: tests/kernels has many of the former and all of the latter.
    """
    data = path.read_bytes()
    return _ops(make_plan(parse(data, len(data)), LAVAPIPE, OPTIONS), types=False)


def _ops(plan: Plan, *, types: bool) -> set[Op]:
    """The kernels of a plan with their switches, and the tensor types that they read if `types`."""
    return {
        (op.kernel, frozenset((name, _switch(at)) for name, at in op.params.items() if types or "QUANT" not in name))
        for ops in plan.lists.values()
        for op in ops
    }


def _switch(value: int | float | str) -> int | float | str:
    return value if isinstance(value, str) or value in (0, 1) else "a size"


@cache
def representatives(paths: tuple[Path, ...]) -> frozenset[Path]:
    """Some of the goldens, with all ops of all."""
    return frozenset(covering({path: ops_of(path) for path in paths}))


def encoder_ops_of(path: Path) -> set[Op]:
    """The kernels of a projector's plan with their switches and tensor types."""
    data = path.read_bytes()
    return _ops(make_plan(flattened(parse(data, len(data))), LAVAPIPE, OPTIONS), types=True)


def covering(ops: Mapping[Name, Set[Op]]) -> list[Name]:
    """Some of the names, with all ops of all: the one with the most that are missing comes first, then the next."""
    missing = set[Op]().union(*ops.values())
    chosen = []
    while missing:
        best = max(ops, key=lambda name: len(ops[name] & missing))
        chosen.append(best)
        missing -= ops[best]
    return chosen
