"""The checkers of `build.py lint` and what `build.py format` runs; tests/unit/test_style.py runs the same checkers."""

import hashlib
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from tools.environment import ensure_venv, pyproject
from tools.failure import Failure
from tools.npm import ensure_node_modules
from tools.paths import NODE_MODULES, ROOT, VENV, cache_dir, venv_python

QUICK = "WISP_QUICK_CHECKS"  # in the environment: `test --fast` validates the shaders of two devices only
PYTHON, BIN = str(venv_python()), NODE_MODULES / ".bin"
# In the user's cache, where a new checkout in the same place finds what was in format before.
PLACE = hashlib.sha256(str(ROOT).encode()).hexdigest()[:16]
PRETTIER_CACHE = ["--cache", "--cache-strategy=content", f"--cache-location={cache_dir('prettier') / PLACE}.json"]
# Name -> command. The slowest come first, since two run at a time.
CHECKS: dict[str, list[str]] = {
    "wgsl": [PYTHON, "-m", "tools.shaders", *(["--quick"] if QUICK in os.environ else [])],
    "mypy": [PYTHON, "-m", "mypy", "--no-error-summary"],
    "prettier": [str(BIN / "prettier"), "--check", *PRETTIER_CACHE, "--log-level=warn", "."],
    "tsc": [str(BIN / "tsc"), "--noEmit"],
    "ruff check": [PYTHON, "-m", "ruff", "check", "--quiet", "--output-format=concise", "."],
    "ruff format": [PYTHON, "-m", "ruff", "format", "--check", "--quiet", "."],
}
if "importlinter" in pyproject()["tool"]:
    CHECKS["imports"] = [str(VENV / "bin" / "lint-imports"), "--no-cache"]
FORMATTERS: dict[str, list[str]] = {
    "ruff check": [PYTHON, "-m", "ruff", "check", "--fix-only", "--quiet", "."],
    "ruff format": [PYTHON, "-m", "ruff", "format", "--quiet", "."],
    "prettier": [str(BIN / "prettier"), "--write", "--log-level", "warn", "."],
}


@dataclass(frozen=True)
class Result:
    """What a command did."""

    name: str
    passed: bool
    output: str
    seconds: float

    def __str__(self) -> str:
        return f"{'ok' if self.passed else 'FAILED':<7}{self.name} ({self.seconds:.1f} s)"


def run_check(name: str) -> Result:
    """Run one of CHECKS."""
    return _run(name, CHECKS[name])


def _run(name: str, command: list[str]) -> Result:
    if not shutil.which(command[0]):
        raise Failure(f"{command[0]} is missing; run python3 build.py lint, which installs it")
    started = time.perf_counter()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return Result(name, done.returncode == 0, (done.stdout + done.stderr).strip(), time.perf_counter() - started)


def lint() -> int:
    """Run every checker; print a line for each, then the output of those that failed. Return the exit status."""
    _set_up()
    with ThreadPoolExecutor(2) as pool:
        failed = []
        for future in as_completed([pool.submit(run_check, name) for name in CHECKS]):
            result = future.result()
            print(result, flush=True)
            failed += [] if result.passed else [result]
    for result in failed:
        print(f"\n--- {result.name}\n{result.output}")
    return 1 if failed else 0


def format_sources() -> int:
    """Format the sources with ruff and prettier. Return the exit status."""
    _set_up()
    results = [_run(name, command) for name, command in FORMATTERS.items()]
    for result in results:
        print(result if result.passed else f"{result}\n{result.output}", flush=True)
    return 0 if all(result.passed for result in results) else 1


def _set_up() -> None:
    ensure_venv(dev=True)
    ensure_node_modules(dev=True)
