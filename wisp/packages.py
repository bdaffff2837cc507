"""Packages for the code of hooks, by micropip: wheels that the user has, and PyPI where the user allows it."""

import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from py_engine.errors import WispError
from wisp.install_errors import explain_install_error
from wisp.package_cache import cached_fetches

IN_BROWSER = sys.platform == "emscripten"
DROPPED = Path("/tmp/wisp-wheels")  # in Pyodide's file system, where wheels are written to be installed
WHEEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._]*)-[^-/]+(-\d[^-/]*)?-[^-/]+-[^-/]+-[^-/]+\.whl")
ADDRESS = re.compile(r"(https?|emfs|file|blob):")
NO_INDEX: list[str] = []  # micropip then knows the given wheels and Pyodide's own packages only


async def install(*packages: Any, pypi: bool = False, index_urls: Sequence[str] = ()) -> None:
    """Install packages for hooks, with what they require.

    `packages`: wheels, each as an address, a path in Python's file system or a File of the browser; or names, of
    packages of Pyodide or, with `pypi`, of PyPI. `index_urls`: indexes with PyPI's simple API, which are asked instead
    of PyPI, in order; give `pypi` or these. Without both no index is asked: what a wheel requires must be among the
    packages, installed, or Pyodide's. What is downloaded is stored in the browser, for installs without a network.
    WispError invalid_value with what is missing or wrong.
    """
    if not IN_BROWSER:
        raise _refused("Outside a browser, install packages with pip")
    if pypi and index_urls:
        raise _refused('Give pypi=True or index_urls. To ask PyPI after others, add "https://pypi.org/simple"')
    micropip = await _micropip()
    found = [_requirement(await _dropped(one) if hasattr(one, "arrayBuffer") else str(one)) for one in packages]
    default = None if pypi else NO_INDEX
    async with cached_fetches(micropip) as fetches:
        try:
            await micropip.install(
                [address for _, address in found],
                index_urls=list(index_urls) or default,
                constraints=[f"{name} @ {address}" for name, address in found if name],
            )
        except Exception as error:
            raise _refused(explain_install_error(error, fetches.unreachable, asked=pypi or bool(index_urls))) from None


async def _micropip() -> Any:
    """The module: Pyodide has it, but does not load it by itself."""
    try:
        return import_module("micropip")
    except ImportError:
        import pyodide_js

        await pyodide_js.loadPackage("micropip")
        return import_module("micropip")


async def _dropped(file: Any) -> str:
    """The path of a File of the browser, written to Python's file system."""
    name = str(file.name)
    _name_of(name)  # so it has no slashes
    return _written(name, (await file.arrayBuffer()).to_bytes())


def _written(name: str, data: bytes) -> str:
    DROPPED.mkdir(parents=True, exist_ok=True)
    (DROPPED / name).write_bytes(data)
    return str(DROPPED / name)


def _requirement(package: str) -> tuple[str, str]:
    """(a wheel's name, its address) or ("", a requirement)."""
    if not package.endswith(".whl"):
        return "", package
    name = _name_of(PurePosixPath(package).name)
    if ADDRESS.match(package):
        return name, package
    if not Path(package).is_file():
        raise _refused(f"There is no file {package}. Give a wheel's whole address, or a path in Python's file system")
    return name, f"emfs:{Path(package).resolve()}"


def _name_of(file: str) -> str:
    found = WHEEL.fullmatch(file)
    if found is None:
        raise _refused(f"{file} is no name of a wheel, such as name-1.0-py3-none-any.whl; a wheel keeps its name")
    return found[1].replace("_", "-")


def _refused(message: str) -> WispError:
    return WispError(f"{message.rstrip('.')}.", "invalid_value", param="packages")
