"""Warms up Mesa's shader cache during a run of all tests.

Where the cache lacks lavapipe's kernels, a second process runs the tests that compile them, the last test first, on
idle CPU time. Its results do not count. The tests on lavapipe come late in the run and then find the cache full. This
saves time because a driver compiles one kernel at a time.
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

STAMP = "WISP_SHADER_WARMUP"  # set in the second process: the file that it writes at its end
PARENT = os.getppid()
MANY = 200  # tests on lavapipe; fewer are not worth a second process


def on_lavapipe(item: pytest.Item) -> bool:
    """Return whether a test of kernels or of the engine compiles for lavapipe."""
    if item.path.parent.name not in ("engine", "kernels"):
        return False
    return "lavapipe" in item.nodeid or item.get_closest_marker("lavapipe") is not None


def running() -> bool:
    """Return whether this is the second process."""
    return STAMP in os.environ


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Select the tests that compile, the last one first, so that both processes meet halfway."""
    if running():
        items[:] = [item for item in reversed(items) if on_lavapipe(item)]


class Warmup:
    """The plugin's part in the second process."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Start the second process before the first test."""
        if session.config.option.collectonly or sum(map(on_lavapipe, session.items)) < MANY:
            return
        browser.lavapipe_icd()  # before both processes would build it at once
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
        # Niceness would not work: Chromium, run by root, resets it for its GPU process.
        os.sched_setscheduler(self.process.pid, os.SCHED_IDLE, os.sched_param(0))

    def pytest_sessionfinish(self) -> None:
        """End the second process with its Playwright and browser."""
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
    """Note at the end of the second process that everything is compiled."""
    if running() and exitstatus in (0, 1) and not session.config.option.collectonly:
        Path(os.environ[STAMP]).touch()


def kernels_hash() -> str:
    """Hash all kernels."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(ROOT.glob("wgsl/**/*.wgsl")))).hexdigest()[:16]
