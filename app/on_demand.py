"""Import modules that the page did not load at its start.

dist/ has Python's library and numpy twice: the modules that Wisp imports, which every page loads, and the whole
(tools/python_parts.py). The first import of a module that only the whole has fetches it.
"""

import importlib
import io
import json
import sys
import zipfile
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import js
from pyodide.ffi import JsException

MODULES = Path(__file__).with_suffix(".json")  # name of the whole -> the modules that only it has; made by the build


class Whole:
    """A finder of the modules that only the whole library or package has."""

    def __init__(self, name: str, url: str, modules: Sequence[str]) -> None:
        self.name, self.url, self.modules = name, url, frozenset(modules)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Fetch the whole and put it in the part's place, where it has the module."""
        if name not in self.modules:
            return None
        data = _fetch(self.url, name)
        self.modules = frozenset()
        if self.name == "library":  # the zip that Python imports its library from
            Path(next(path for path in sys.path if path.endswith(".zip"))).write_bytes(data)
        else:
            packages = next(path for path in sys.path if path.endswith("site-packages"))
            zipfile.ZipFile(io.BytesIO(data)).extractall(packages)
        importlib.invalidate_caches()
        return PathFinder.find_spec(name, path, target)


def install(urls: Mapping[str, str]) -> None:
    """Let Python find the modules of the wholes at these addresses."""
    for name, modules in json.loads(MODULES.read_text()).items():
        sys.meta_path.append(Whole(name, urls[name], modules))


def _fetch(url: str, module: str) -> bytes:
    """Fetch a file at once: an import cannot wait for a promise. Where this is a page's thread, only text can be."""
    request = js.XMLHttpRequest.new()
    request.open("GET", url, False)
    request.overrideMimeType("text/plain; charset=x-user-defined")  # the low byte of each character is the file's
    try:
        request.send()
    except JsException as error:
        raise ModuleNotFoundError(f"{module} is not in this page, and {url} cannot be fetched", name=module) from error
    if request.status != 200:
        raise ModuleNotFoundError(f"{module} is not in this page, and {url} answers {request.status}", name=module)
    text: str = request.responseText
    return text.encode("utf-16-le")[::2]
