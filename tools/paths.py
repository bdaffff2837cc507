"""Where things lie: in the checkout, and in the user's cache that outlives it."""

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
    """A folder of the user's cache for what was fetched or made once: $XDG_CACHE_HOME/wisp or ~/.cache/wisp."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "wisp" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def venv_python() -> Path:
    """The interpreter of the project's own virtual environment."""
    return VENV / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def site_packages() -> Path:
    """Where that environment keeps its packages."""
    if sys.platform == "win32":
        return VENV / "Lib" / "site-packages"
    return VENV / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
