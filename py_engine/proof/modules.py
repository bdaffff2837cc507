"""The modules that only a proof needs: numpy, and what uses it. They take longer to import than the proof to run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

LoadPackage = Callable[[str], Awaitable[Any]]
SEEDS = 1, 2  # a sampler must be wrong with both: a single token may hang on a rounding
TURN_S = 0.004  # a case takes less than half a millisecond, or ten
YIELDS = 8  # to the event loop after a turn: a download needs several of its turns for each part
MODULES = ("cases", "device_run", "comparison")  # of this package


async def import_modules(load_package: LoadPackage | None) -> None:
    """Import them one by one; downloads and uploads go on in between."""
    if load_package is not None:
        await load_package("numpy")
    import_module("numpy")
    await let_others_run()
    # a statement, because the Python package has this module under another name
    from gguf import quants  # noqa: F401

    await let_others_run()
    for name in MODULES:
        import_module(f"{__package__}.{name}")
        await let_others_run()
    from py_engine.proof.random_data import pool_of

    pool_of(SEEDS[0])


class Turn:
    """The time for which the proof has computed without a pause."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()

    async def end(self) -> None:
        """Let downloads and uploads run, if that was long."""
        if time.perf_counter() - self._begun > TURN_S:
            await let_others_run()
            self._begun = time.perf_counter()


async def let_others_run() -> None:
    """Yield to downloads and uploads. Each of their steps may make the next one due."""
    for _ in range(YIELDS):
        await asyncio.sleep(0)
