"""`build.py eval`: figures of a model's quality as JSON on stdout."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.paths import ROOT

GOLDEN = json.loads((ROOT / "tests" / "golden" / "quality.json").read_text(encoding="utf-8"))


def evaluate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "build.py", "eval", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.browser
def test_questions_are_answered(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    questions = GOLDEN["questions"][:3]
    file.write_text("\n".join(json.dumps(question) for question in questions), encoding="utf-8")
    done = evaluate(str(file), "--model", "wisp-mini-q4_0")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["total"] == len(questions)
    assert found["accuracy"] == found["correct"] / found["total"]
    assert "questions ..." in done.stderr


@pytest.mark.browser
def test_a_file_that_does_not_exist() -> None:
    done = evaluate("no-such-file.txt")
    assert done.returncode == 1
    assert "build.py: no-such-file.txt cannot be read as text" in done.stderr
    assert "Traceback" not in done.stderr
