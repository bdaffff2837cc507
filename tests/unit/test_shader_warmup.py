"""The tests that the shader warm-up selects (tests/support/shader_warmup.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import shader_warmup
from tools.paths import ROOT


@pytest.mark.slow
def test_it_takes_the_tests_on_lavapipe_from_the_last_one_on(tmp_path: Path) -> None:
    stamp = tmp_path / "done"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "tests/engine"],
        cwd=ROOT,
        env={**os.environ, shader_warmup.STAMP: str(stamp)},
        capture_output=True,
        text=True,
        check=True,
    )
    ids = [line for line in done.stdout.splitlines() if "::" in line]
    assert len(ids) > 60
    assert not any("swiftshader" in one or "-cpu]" in one or "test_tuning" in one for one in ids)
    files = list(dict.fromkeys(one.split("::")[0].split("/")[-1] for one in ids))
    assert files == ["test_variants.py", "test_parity.py", "test_generation.py", "test_engine.py"]
    assert not shader_warmup.running()
