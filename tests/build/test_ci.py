"""The workflow runs commands and tests that exist, with actions of exact versions."""

import re
from typing import Any

import pytest
import yaml

from tools.paths import ROOT

JOBS: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
STEPS: list[dict[str, Any]] = [step for job in JOBS.values() for step in job["steps"]]


def test_actions_are_pinned() -> None:
    for step in STEPS:
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})", step["uses"]), step


@pytest.mark.parametrize("command", [step["run"] for step in STEPS if "run" in step])
def test_commands_exist(command: str) -> None:
    python, build, name, *arguments = command.split()
    assert (python, build) == ("python3", "build.py")
    assert name in ("lint", "test")
    for argument in arguments:
        assert argument.startswith("-") or (ROOT / argument).exists(), argument
