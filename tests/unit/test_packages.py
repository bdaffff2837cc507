"""Packages for hooks, wisp/packages.py, with a stand-in for micropip, which Pyodide alone has."""

import asyncio
from typing import Any

import pytest

import wisp
from wisp import packages


class Layer:
    """micropip's own way to fetch."""


class Micropip:
    compat_layer = Layer

    async def install(self, names: list[str], **_: Any) -> None:
        await asyncio.sleep(0.01 * len(names))


@pytest.fixture
def micropip(monkeypatch: pytest.MonkeyPatch) -> Micropip:
    made = Micropip()

    async def found() -> Micropip:
        return made

    monkeypatch.setattr(packages, "IN_BROWSER", True)
    monkeypatch.setattr(packages, "_micropip", found)
    return made


async def test_installs_at_once_leave_micropip_as_it_was(micropip: Micropip) -> None:
    await asyncio.gather(wisp.install("one"), wisp.install("two", "three"))
    assert micropip.compat_layer is Layer


@pytest.mark.usefixtures("micropip")
async def test_pypi_beside_other_indexes_is_refused() -> None:
    with pytest.raises(wisp.WispError, match="pypi=True or index_urls"):
        await wisp.install("one", pypi=True, index_urls=["https://example.org/simple"])
