"""The command line of build.py: its help, and what `test --fast` selects."""

import os
import subprocess
import sys

import pytest

from tests.support.waiting import HANG_S
from tools import commands
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
    done = build("test", "--fast", "--collect-only", "-q", "-n", "0", "--ignore-glob=*/unit/test_[!s]*")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_the_page_answers" in done.stdout
    assert "test_shaped_logits" in done.stdout
    assert "test_draws_follow_the_definition" not in done.stdout


def test_a_command_ends_with_its_parent() -> None:
    """Its end closes the pipe that it shares with its parent."""
    sleep = "import time; print('ready', flush=True); time.sleep(600)"
    code = f"import sys; from tools import commands; commands._run([sys.executable, '-c', {sleep!r}], {{}})"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "ready\n"
        parent.terminate()
        assert parent.communicate(timeout=HANG_S)[0] == ""
        assert parent.returncode == 143


def test_compiled_modules_are_cached_outside_the_checkout_where_python_must_not_write_them(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    code = "import sys; print(sys.dont_write_bytecode, sys.pycache_prefix)"
    assert commands._run([sys.executable, "-c", code], dict(os.environ)) == 0
    writes_none, _, folder = capfd.readouterr().out.strip().partition(" ")
    assert writes_none == "False"
    assert not folder.startswith(str(ROOT))
    assert folder.endswith("bytecode")
