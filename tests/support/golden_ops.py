"""Which goldens have kernels or switches that no other one has, so that some of them run every one of all."""

from functools import cache
from pathlib import Path

from py_engine.files.gguf_header import parse
from py_engine.plan.kernels import Device
from py_engine.planner import PlanOptions, make_plan

LAVAPIPE = Device(f16=True, subgroup=4, software=True)
OPTIONS = PlanOptions(256, 16, "f16")

Switch = tuple[str, str, int | float | str]  # kernel, parameter, value


def switches_of(path: Path) -> set[Switch]:
    """The kernels of a golden's plan, and each value of each of their switches.

    Sizes are not told apart, and neither are tensor types: tests/kernels has many of the former and all of the latter,
    and switches together.
    """
    data = path.read_bytes()
    plan = make_plan(parse(data, len(data)), LAVAPIPE, OPTIONS)
    ops = [op for found in plan.lists.values() for op in found]
    switches = {
        (op.kernel, name, _switch(value)) for op in ops for name, value in op.params.items() if "QUANT" not in name
    }
    return switches | {(op.kernel, "", 0) for op in ops}


def _switch(value: int | float | str) -> int | float | str:
    return value if isinstance(value, str) or value in (0, 1) else "a size"


@cache
def representatives(paths: tuple[Path, ...]) -> frozenset[Path]:
    """Some of the goldens, with all switches of all: the one with most that are missing comes first, then the next."""
    switches = {path: switches_of(path) for path in paths}
    missing = set().union(*switches.values())
    chosen = set()
    while missing:
        best = max(paths, key=lambda path: len(switches[path] & missing))
        chosen.add(best)
        missing -= switches[best]
    return frozenset(chosen)
