"""The command line of build.py: its help, and what `test --fast` selects."""

import subprocess
import sys

from tools.paths import ROOT


def build(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "build.py", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_help_lists_every_command() -> None:
    done = build("--help")
    assert done.returncode == 0
    for command in ("serve", "dev", "build", "release", "test", "lint", "format", "bench", "chat"):
        assert f"build.py {command}" in done.stdout


def test_fast_leaves_slow_tests_out() -> None:
    """pytest's own arguments pass through."""
    done = build("test", "--fast", "--collect-only", "-q", "-n", "0", "-k", "test_smoke or test_samplers")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_the_page_answers" in done.stdout
    assert "test_shaped_logits" in done.stdout
    assert "test_draws_follow_the_definition" not in done.stdout
