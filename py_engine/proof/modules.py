"""The modules that only a proof needs: numpy, and what uses it. They take longer to import than the proof to run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

LoadPackage = Callable[[str], Awaitable[Any]]
YIELDS = 8  # to the event loop between two cases: a download needs several of its turns for each part
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


async def let_others_run() -> None:
    """Yield to downloads and uploads. Each of their steps may make the next one due."""
    for _ in range(YIELDS):
        await asyncio.sleep(0)
