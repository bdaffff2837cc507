"""The command line of build.py: its help, and what `test --fast` selects."""

import subprocess
import sys

import pytest

from tools.paths import ROOT


def build(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "build.py", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_help_lists_every_command() -> None:
    done = build("--help")
    assert done.returncode == 0
    for command in ("serve", "dev", "build", "test", "lint", "format", "bench", "chat"):
        assert f"build.py {command}" in done.stdout


@pytest.mark.parametrize(
    ("name", "status"), [("test_smoke", pytest.ExitCode.OK), ("test_distribution", pytest.ExitCode.NO_TESTS_COLLECTED)]
)
def test_fast_leaves_slow_tests_out(name: str, status: int) -> None:
    """pytest's own arguments pass through."""
    done = build("test", "--fast", "--collect-only", "-q", "-n", "0", "-k", name)
    assert done.returncode == status, done.stdout + done.stderr
