"""Imports are much of the time to the first token: what most visits do not need is imported when it is needed."""

import subprocess
import sys
from importlib.util import find_spec

from py_engine.models.families import FAMILIES
from tools.paths import ROOT

START = """
import sys
import app.handlers, py_engine.engine
print(*sys.modules)
"""
LATER = {
    "app.constrain.schema", "app.constrain.sources", "app.constrain.structural", "py_engine.models.projectors.families",
    "py_engine.proof.prover", "py_engine.tuning.limits", "py_engine.tuning.tuner",
    *(f"py_engine.models.{name}" for name in FAMILIES.values()),
}  # fmt: skip


def test_the_start_imports_no_more_than_it_needs() -> None:
    done = subprocess.run([sys.executable, "-c", START], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not LATER & set(done.stdout.split())
    assert all(find_spec(name) for name in LATER)
