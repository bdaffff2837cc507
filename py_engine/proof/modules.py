"""The modules that only a proof needs: numpy, and what uses it. They take longer to import than the proof to run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

LoadPackage = Callable[[str], Awaitable[Any]]
MODULES = ("numpy", "gguf.quants", "py_engine.proof.cases", "py_engine.proof.device_run", "py_engine.proof.comparison")


async def import_modules(load_package: LoadPackage | None) -> None:
    """Import them one by one; what is due in between runs then."""
    if load_package is not None:
        await load_package("numpy")
    for name in MODULES:
        import_module(name)
        await asyncio.sleep(0)
