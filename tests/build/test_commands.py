"""The command line of build.py: its help, and what `test --fast` selects."""

import os
import subprocess
import sys
from pathlib import Path

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


def end(*command: str, end_s: float = HANG_S) -> tuple[int, str]:
    """End _run() with SIGTERM once its command has written a line. Its exit status, and what was written later."""
    run = f"commands._run({list(command)}, {{'PYTHONUNBUFFERED': '1'}})"
    code = f"from tools import commands; commands.END_S = {end_s}; {run}"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as parent:
        assert parent.stdout
        assert parent.stdout.readline()
        parent.terminate()
        rest, _ = parent.communicate(timeout=2 * HANG_S)  # the pipe, which both share, closes with the last of them
        return parent.returncode, rest


def test_a_command_ends_with_its_parent() -> None:
    ignoring = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'); time.sleep(600)"
    assert end(sys.executable, "-c", ignoring, end_s=0.1) == (143, "")


def test_a_command_is_interrupted_so_that_it_can_end_what_it_has_started() -> None:
    status, rest = end(sys.executable, *commands.INTERRUPTIBLE, "http.server", "0", "--bind", "127.0.0.1")
    assert status == 143
    # the latter where the interrupt comes after the server's line and before its loop
    assert rest.strip().endswith(("Keyboard interrupt received, exiting.", "KeyboardInterrupt")), rest


def test_the_file_with_the_ticket_is_removed_when_the_server_ends() -> None:
    code = "import threading, sys; from tools import background; "
    code += "threading.Thread(target=background._open_privately, args=('http://127.0.0.1/',), daemon=True).start(); "
    code += "sys.stdin.read()"
    env = {**os.environ, "BROWSER": "echo %s"}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        page = Path(server.stdout.readline().strip().removeprefix("file://"))
        assert "http://127.0.0.1/" in page.read_text()
        server.communicate(timeout=HANG_S)
    assert not page.parent.exists()


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
