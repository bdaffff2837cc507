"""What unit tests have in place of a browser: the CPU engine's module runs in wasmtime."""

from typing import Any

import pytest

from py_engine.cpu.device import BrowserDevice


@pytest.fixture(autouse=True)
def cpu_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads on the CPU get a machine outside a browser."""

    async def open_machine(size: int = 0) -> Any:
        from tests.support.wasm_machine import Machine

        return Machine()

    monkeypatch.setattr(BrowserDevice, "open", open_machine)
