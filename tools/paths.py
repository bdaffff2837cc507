"""Paths in the checkout and in the user's cache, which outlives it."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
NODE_MODULES = ROOT / "node_modules"
DIST = ROOT / "dist"
STATIC = ROOT / "static"
PYPROJECT = ROOT / "pyproject.toml"


def cache_dir(name: str) -> Path:
    """Return a folder for what is fetched or made once, below $XDG_CACHE_HOME/wisp or ~/.cache/wisp."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "wisp" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def venv_python() -> Path:
    """Return the path of the virtual environment's interpreter."""
    return VENV / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def site_packages() -> Path:
    """Return the folder of the virtual environment's packages."""
    if sys.platform == "win32":
        return VENV / "Lib" / "site-packages"
    return VENV / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
