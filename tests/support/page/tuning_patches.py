"""Patches to the page's tuning for one load: context managers."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from py_engine.plan import small_batch_tiles, tiles
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Plan
from py_engine.tuning import cached_choices, candidates, tuner
from tests.support.page.patches import patched

SECONDS = 240.0  # compiling takes long on a busy CPU
TILES = [
    (0, 4, 16, 8),  # leaves rows out
    (0, 2048, 1, 4),  # more threads than a workgroup may have
]


@contextmanager
def one_matrix_and_bad_tiles() -> Iterator[None]:
    """Tune one matrix, without a time limit, with two candidates that must be rejected; and its small batches."""
    tune = tuner.tune

    async def slowly(plan: Plan, device: Device, bench: Any, forced: Iterable[str], seconds: float) -> Any:
        return await tune(plan, device, bench, forced, SECONDS)

    with (
        patched(candidates, MAX_MATRICES=1, MAX_SMALL_BATCHES=1),
        patched(tuner, tune=slowly),
        patched(tiles, alternatives=lambda device, weight, tile: list(TILES)),
        patched(
            small_batch_tiles,
            alternatives=lambda device, weight, tile, rounded: [(*tile[:2], tile[2] // 2, 2 * tile[3], 0, *tile[5:])],
        ),
    ):
        yield


@contextmanager
def other_kernels() -> Iterator[None]:
    """Pretend that the kernels changed since they were measured; the choice then takes no time."""

    async def at_once(plan: Plan, device: Device, bench: Any, forced: Iterable[str], seconds: float) -> Any:
        return device, []

    with patched(cached_choices, kernels_hash=lambda files=None: "of other kernels"), patched(tuner, tune=at_once):
        yield
