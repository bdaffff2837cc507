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
# A page has the modules that `import numpy` imports: others are fetched, with all of numpy, in the midst of an answer.
PROOF = """
import sys
import numpy, numpy.typing
imported = {name for name in sys.modules if name.startswith("numpy")}
from bench import shapes
from py_engine import planner
from py_engine.load_plan import CPU
from py_engine.proof.cases import cases
from py_engine.proof.comparison import fault
plan = planner.make_plan(shapes.header(shapes.SHAPES["qwen3-moe"], "Q4_K_M"), CPU, planner.PlanOptions(128, 8, "f16"))
for case in cases(plan, CPU, plan.lists, lambda shader: False):
    fault(case, {**case.want, **{name: case.data[name] for name in case.written() if name not in case.want}})
print(*({name for name in sys.modules if name.startswith("numpy")} - imported))
"""
LATER = {
    "app.constrain.schema", "app.constrain.sources", "app.constrain.structural", "py_engine.models.projectors.families",
    "py_engine.proof.prover", "py_engine.tuning.limits", "py_engine.tuning.tuner",
    *(f"py_engine.models.{name}" for name in FAMILIES.values()),
}  # fmt: skip


def printed(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_start_imports_no_more_than_it_needs() -> None:
    assert not LATER & printed(START)
    assert all(find_spec(name) for name in LATER)


def test_a_proof_imports_no_more_of_numpy_than_numpy_does() -> None:
    assert printed(PROOF) == set()
