"""Compiles ahead of a whole run: where lavapipe's kernels are not in Mesa's cache, a second process runs the tests that
need them, last ones first, on what the run itself leaves of the machine. Its results count for nothing; it only fills
the cache, so that those tests, which come late, find it full. (A driver compiles one kernel at a time.)
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import browser
from tools.paths import ROOT

STAMP = "WISP_SHADER_WARMUP"  # set in the second process: the file to write at its end
PARENT = os.getppid()
MANY = 200  # tests on lavapipe from which on it pays


def on_lavapipe(item: pytest.Item) -> bool:
    """Whether a test of kernels or of the engine compiles for lavapipe."""
    if item.path.parent.name not in ("engine", "kernels"):
        return False
    return "lavapipe" in item.nodeid or item.get_closest_marker("lavapipe") is not None


def running() -> bool:
    """Whether this is the second process."""
    return STAMP in os.environ


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the second process: what is to be compiled, the last test first, so that the two meet halfway."""
    if running():
        items[:] = [item for item in reversed(items) if on_lavapipe(item)]


class Warmup:
    """The second process."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Starts it before the first test."""
        if session.config.option.collectonly or sum(map(on_lavapipe, session.items)) < MANY:
            return
        browser.lavapipe_icd()  # not by both at once
        done = browser.shader_cache() / f"wisp-{kernels_hash()}"
        if done.exists():
            return
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/engine", "tests/kernels"],
            cwd=ROOT,
            env={**os.environ, STAMP: str(done)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # Niceness would not do: Chromium, run by root, takes it off its GPU process.
        os.sched_setscheduler(self.process.pid, os.SCHED_IDLE, os.sched_param(0))

    def pytest_sessionfinish(self) -> None:
        """Ends it, and with it Playwright and the browser."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)


def pytest_configure(config: pytest.Config) -> None:
    """This module is a plugin that pyproject.toml names."""
    if not running() and sys.platform == "linux":
        config.pluginmanager.register(Warmup())


def pytest_runtest_setup() -> None:
    """End the second process when the first one has ended."""
    if running() and os.getppid() != PARENT:
        pytest.exit("the run is over")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In the second process: once it has come to its end, everything is compiled."""
    if running() and exitstatus in (0, 1) and not session.config.option.collectonly:
        Path(os.environ[STAMP]).touch()


def kernels_hash() -> str:
    """Which kernels these are."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(ROOT.glob("wgsl/**/*.wgsl")))).hexdigest()[:16]
