"""The browser's sandbox is on wherever it can run."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import browser

COMPLAINS = 'echo "FATAL: No usable sandbox!" >&2; exit 133'


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what earlier calls found; be an ordinary user on Linux."""
    browser.has_sandbox.cache_clear()
    monkeypatch.setattr(browser.sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    yield
    browser.has_sandbox.cache_clear()


def script(folder: Path, text: str) -> str:
    path = folder / "chromium"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("text", ["exit 0", "echo 'no display' >&2; exit 1"])
def test_it_is_on(tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str) -> None:
    assert browser.has_sandbox(script(tmp_path, text))
    assert capfd.readouterr().err == ""


def test_it_is_off_where_it_cannot_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert not browser.has_sandbox(script(tmp_path, COMPLAINS))
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_it_is_off_as_root(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    assert not browser.has_sandbox("/nowhere/chromium")
    assert "as root" in capfd.readouterr().err


def test_playwright_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Playwright would switch the sandbox off by itself."""
    monkeypatch.setenv("WISP_BROWSER", script(tmp_path, "exit 0"))
    options = browser.launch_options()
    assert options["chromium_sandbox"] is True
    assert not any("sandbox" in flag for flag in options["args"])
