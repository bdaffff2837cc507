"""The kernel variants that the software GPUs support, and their combinations with a test's parameters."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.pairs import pairs
from tools.selection import everything

ADAPTERS, SUMS = ("swiftshader: f32", "lavapipe: f16"), (" subgroups", "")  # the first compile fastest
VARIANTS = [f"{adapter}{sums}" for adapter in ADAPTERS for sums in SUMS]
in_every_variant = pytest.mark.parametrize("bench", VARIANTS, indirect=True)

BOTH_ADAPTERS = ["lavapipe: f16 subgroups", "swiftshader: f32"]  # the fastest to compile with f16, and without both
SWIFTSHADER = [f"{ADAPTERS[0]}{sums}" for sums in SUMS]
# A kernel's text without f16 is the same on both adapters. SwiftShader compiles it in each run; what lavapipe
# has compiled is in Mesa's cache from the second run on.
CACHED = "lavapipe: f32"
IN_F32 = [f"{CACHED}{sums}" for sums in SUMS]

Axis = tuple[str, Sequence[Any]]  # a name and its values, or "two, names" and their pairs of values


def in_pairs(*axes: Axis, adapters: Sequence[str] = ADAPTERS) -> pytest.MarkDecorator:
    """Parametrize a test that has a `bench`, with every pair of values of two axes, the adapters and subgroups.

    The values of a single axis take turns in the variants: each of two meets both adapters, with and without subgroups.
    WISP_ALL=1 runs all combinations.
    Software GPUs take seconds to compile a pipeline, and most tests compile one for each combination.
    """
    if len(axes) == 1 and not everything():
        ((_, values),) = axes
        variants = [(name, sums) for at, name in enumerate(adapters) for sums in (SUMS if at % 2 == 0 else SUMS[::-1])]
        count = max(len(values), len(variants))
        chosen = [(*variants[i % len(variants)], values[i % len(values)]) for i in range(count)]
    else:
        chosen = pairs(adapters, SUMS, *(values for _, values in axes))
    return _parametrize(axes, [(f"{adapter}{sums}", *rest) for adapter, sums, *rest in chosen])


def in_turn(names: str, cases: Sequence[Any], variants: Sequence[str] = IN_F32) -> pytest.MarkDecorator:
    """Parametrize a test that has a `bench`: each case runs in one of the variants, which take turns."""
    rows = [(variants[at % len(variants)], case) for at, case in enumerate(cases)]
    return _parametrize([(names, cases)], rows)


def _parametrize(axes: Sequence[Axis], rows: Sequence[tuple[Any, ...]]) -> pytest.MarkDecorator:
    """`rows`: (variant, a value of each axis)."""
    groups = [names.split(", ") for names, _ in axes]
    flat = []
    for variant, *values in rows:
        several = [value if len(group) > 1 else (value,) for group, value in zip(groups, values, strict=True)]
        flat.append((variant, *itertools.chain(*several)))
    return pytest.mark.parametrize(("bench", *itertools.chain(*groups)), flat, indirect=["bench"])
