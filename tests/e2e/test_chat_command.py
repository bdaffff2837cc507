"""`build.py chat`: the real page in a headless browser, with its answers on the terminal."""

import shlex
import subprocess
import sys

import pytest

from tests.support.mcp_servers import STDIO
from tools.paths import ROOT


def chat(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "build.py", "chat", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.browser
def test_answer_on_stdout_and_progress_on_stderr() -> None:
    done = chat("Who are you?", "--max-tokens", "24")
    assert done.returncode == 0, done.stderr
    assert "Wisp" in done.stdout
    assert "python ..." in done.stderr


@pytest.mark.browser
def test_model_from_disk() -> None:
    done = chat("Who are you?", "--max-tokens", "6", "--model", "static/models/wisp-mini-q8_0.gguf")
    assert done.returncode == 0, done.stderr
    assert 0 < len(done.stdout.strip()) < 60


@pytest.mark.browser
def test_model_that_does_not_exist() -> None:
    done = chat("Hello", "--model", "no-such-model")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("build.py: There is no model 'no-such-model'")
    assert "Traceback" not in done.stderr


@pytest.mark.browser
def test_the_model_calls_the_tools_of_an_mcp_server() -> None:
    done = chat("What is the weather in Paris?", "--tools", f"shop={shlex.join(STDIO)}", "--yes", "--max-tokens", "60")
    assert done.returncode == 0, done.stderr
    assert 'get_weather {"city": "Paris"}' in done.stderr
    assert "-> It is sunny in Paris." in done.stderr
    assert "Without look_behind: " in done.stderr, "no model can be held to its pattern"
    assert done.stdout.strip()
