"""Make the virtual environment from the exact pins of pyproject.toml, and update it when they change.

Only files whose hashes requirements.lock has are installed (tools/lock.py writes it).
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
from pathlib import Path
from typing import Any

from tools.failure import Failure, run, say
from tools.paths import PYPROJECT, ROOT, VENV, site_packages, venv_python

LOCK = ROOT / "requirements.lock"
_one_at_a_time = threading.RLock()


def pyproject() -> dict[str, Any]:
    """Return the parsed pyproject.toml."""
    return tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))


def ensure_venv(*, dev: bool) -> Path:
    """Install the page's packages and, with `dev`, the tests' too; return the environment's interpreter."""
    with _one_at_a_time:
        if not venv_python().exists() or not site_packages().is_dir():
            _create()
        _install("runtime", pyproject()["project"]["dependencies"])  # alone, so that a first `serve` stays quick
        if dev:
            _install("dev", [pin for pin in pins() if pin != compiler()])
    return venv_python()


def compiler() -> str:
    """The package that compiles wasm/, as NAME==VERSION."""
    pin: str = pyproject()["tool"]["wisp"]["compiler"]
    return pin


def ensure_compiler() -> None:
    """Install the compiler of wasm/, of some 100 MB."""
    with _one_at_a_time:
        _install("compiler", [compiler()])


def pins() -> list[str]:
    """Every package that may be installed, as NAME==VERSION, some with a marker of the system that needs it."""
    settings = pyproject()
    tests: list[str] = settings["dependency-groups"]["dev"]
    return [*settings["project"]["dependencies"], *tests, *settings["tool"]["wisp"]["constraints"], compiler()]


def locked(requirements: list[str]) -> str:
    """The lines of requirements.lock about these packages, with their hashes. Failure where it lacks one."""
    blocks = re.findall(r"^[^#\s].*(?:\n[ ].*)*", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    found = {block.split(" \\")[0].replace(" ", "").lower(): block for block in blocks}
    wanted = [pin.replace(" ", "").replace("'", '"').lower() for pin in requirements]
    if lacking := [pin for pin in wanted if pin not in found]:
        again = "write it again with: .venv/bin/python -m tools.lock"
        raise Failure(f"{LOCK.name} has no hashes of {', '.join(lacking)}; {again}")
    return "\n".join(found[pin] for pin in wanted) + "\n"


def _create() -> None:
    say("Making the virtual environment .venv ...")
    shutil.rmtree(VENV, ignore_errors=True)
    advice = "Cannot make a virtual environment; on Debian and Ubuntu install it with: apt-get install python3-venv"
    run([sys.executable, "-m", "venv", VENV], advice)


def _install(group: str, requirements: list[str]) -> None:
    stamp, text = VENV / f"wisp-{group}.json", locked(requirements)
    wanted = hashlib.sha256(json.dumps([text, sys.version]).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    say(f"Installing {len(requirements)} Python packages ({group}) ...")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text(text, encoding="utf-8")
        # Dependencies are in the list; tools/lock.py has checked that for every system.
        # Python compiles what is imported, which is a tenth of it.
        pip_install(["--no-compile", "--require-hashes", "--no-deps", "-r", str(file)])
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
