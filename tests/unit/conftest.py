"""What unit tests have in place of a browser: the CPU engine's module runs in wasmtime."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from py_engine.cpu.device import BrowserDevice
from tests.support.virtual_time import run_ahead


@pytest.fixture(autouse=True)
def cpu_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads on the CPU get a machine outside a browser."""

    async def open_machine(size: int = 0) -> Any:
        from tests.support.wasm_machine import Machine

        return Machine()

    monkeypatch.setattr(BrowserDevice, "open", open_machine)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """The seconds of the test's event loop, which waits for no timer (tests/support/virtual_time.py)."""
    return run_ahead(asyncio.get_running_loop(), monkeypatch)
