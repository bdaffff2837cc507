"""Which goldens have ops that no other one has, so that some of them run every op of all."""

from functools import cache
from pathlib import Path

from py_engine.files.gguf_header import parse
from py_engine.plan.kernels import Device
from py_engine.planner import PlanOptions, make_plan

LAVAPIPE = Device(f16=True, subgroup=4, software=True)
OPTIONS = PlanOptions(256, 16, "f16")

Op = tuple[str, frozenset[tuple[str, int | float | str]]]


def ops_of(path: Path) -> set[Op]:
    """The kernels of a golden's plan with their switches.

    Sizes are not told apart, and neither are tensor types: tests/kernels has many of the former and all of the latter.
    """
    data = path.read_bytes()
    plan = make_plan(parse(data, len(data)), LAVAPIPE, OPTIONS)
    return {
        (op.kernel, frozenset((name, _switch(value)) for name, value in op.params.items() if "QUANT" not in name))
        for ops in plan.lists.values()
        for op in ops
    }


def _switch(value: int | float | str) -> int | float | str:
    return value if isinstance(value, str) or value in (0, 1) else "a size"


@cache
def representatives(paths: tuple[Path, ...]) -> frozenset[Path]:
    """Some of the goldens, with all ops of all: the one with the most that are missing comes first, then the next."""
    ops = {path: ops_of(path) for path in paths}
    missing = set().union(*ops.values())
    chosen = set()
    while missing:
        best = max(paths, key=lambda path: len(ops[path] & missing))
        chosen.add(best)
        missing -= ops[best]
    return frozenset(chosen)
