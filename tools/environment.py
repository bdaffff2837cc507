"""Make the virtual environment from the exact pins of pyproject.toml, and update it when they change."""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from tools.failure import Failure, run, say
from tools.paths import PYPROJECT, VENV, site_packages, venv_python


def pyproject() -> dict[str, Any]:
    """Return the parsed pyproject.toml."""
    return tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))


def ensure_venv(*, dev: bool) -> Path:
    """Install the page's packages and, with `dev`, the tests' too; return the environment's interpreter."""
    settings = pyproject()
    runtime: list[str] = settings["project"]["dependencies"]
    constraints: list[str] = settings["tool"]["wisp"]["constraints"]
    if not venv_python().exists() or not site_packages().is_dir():
        _create()
    # Without their own dependencies: the archive contains only some of their modules, and a first `serve` stays quick.
    _install("runtime", runtime, [], ["--no-deps"])
    if dev:
        _install("dev", [*runtime, *settings["dependency-groups"]["dev"]], constraints, [])
    return venv_python()


def _create() -> None:
    say("Making the virtual environment .venv ...")
    shutil.rmtree(VENV, ignore_errors=True)
    advice = "Cannot make a virtual environment; on Debian and Ubuntu install it with: apt-get install python3-venv"
    run([sys.executable, "-m", "venv", VENV], advice)


def _install(group: str, requirements: list[str], constraints: list[str], options: list[str]) -> None:
    stamp = VENV / f"wisp-{group}.json"
    wanted = hashlib.sha256(json.dumps([requirements, constraints, sys.version]).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    say(f"Installing {len(requirements)} Python packages ({group}) ...")
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder) / "constraints.txt"
        lock.write_text("\n".join(constraints) + "\n", encoding="utf-8")
        pip_install([*options, "-c", str(lock), *requirements])
    stamp.write_text(wanted)


def pip_install(arguments: list[str]) -> None:
    """Install packages into the environment."""
    pip(["install", "--quiet", *arguments], "Cannot install the Python packages; check the network and try again")


def pip(arguments: list[str], otherwise: str) -> None:
    """Run the environment's pip quietly; raise Failure with one line if it fails."""
    done = subprocess.run(
        [str(venv_python()), "-m", "pip", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()[-1:]
        raise Failure(f"{otherwise} ({' '.join(errors)[:400]})")
