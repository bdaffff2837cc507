"""Copies of the checkout, for tests of `build.py` that change files."""

import shutil
from pathlib import Path

from tools.paths import ROOT

FILES = (
    "build.py", "pyproject.toml", "requirements.lock", "package.json", "package-lock.json", ".npmrc", "LICENSE"
)  # fmt: skip
FOLDERS = ("tools", "app", "bench", "py_engine", "wgsl", "wasm", "wisp", "static")


def copy_sources(to: Path) -> None:
    """Copy what the build is made of to a folder, with this checkout's environment but without npm packages."""
    for name in FILES:
        shutil.copy(ROOT / name, to / name)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    (to / ".venv").symlink_to(ROOT / ".venv")
