"""A Python session in the sandbox: runs code, prints its value or its traceback, and finds the files that it wrote.

Runs in Pyodide, in the sandbox's worker (python.js). Variables and files last as long as the session.
"""

import ast
import contextlib
import io
import linecache
import os
import random
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from .pictures import show

NAME = "<python>"  # of the code, in tracebacks
HOME = Path("/files")
OF_PAGE = "/wisp/"  # the folder of the page's own modules and packages
NOT_HERE = "{name} is not in this sandbox, and there is no network. {importable}"
NOT_LOADED = "{name} could not be loaded{why}. Import it by name in the code, as in: import {name}. Its first use " \
             "needs a network."  # fmt: skip
# Methods of pandas that import more -> what they import
OF_PANDAS = dict.fromkeys(("plot", "hist", "boxplot"), "matplotlib") | dict.fromkeys(
    ("read_excel", "to_excel", "ExcelWriter", "ExcelFile"), "openpyxl"
)


class OutputFullError(BaseException):
    """The code has written as much as it may."""


class Output(io.TextIOBase):
    """A text stream that ends the code when its reader accepts no more."""

    def __init__(self, write: Callable[[str], bool]) -> None:
        self._write = write

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Write text. Raises OutputFullError when the limit is reached."""
        if not self._write(text):
            raise OutputFullError
        return len(text)


_globals: dict[str, Any] = {"__name__": "__main__", "show": show}


def begin(environment: Mapping[str, str]) -> None:
    """Forget what the page's own Python has left in the snapshot that this one started from."""
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(OF_PAGE):
            del sys.modules[name]
    sys.path[:] = dict.fromkeys(sys.path)
    random.seed()  # the same everywhere
    for name in ("_", "PYTHONHASHSEED"):
        os.environ.pop(name, None)
    os.environ.update(environment)


def imports(code: str) -> str:
    """Return the code's imports as code, with what these may need: `show` numpy, pandas' plots matplotlib."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError:
        return ""
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    if any(isinstance(node, ast.Name) and node.id == "show" for node in nodes):
        names.add("numpy")
    called = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    if "pandas" in names or "pandas" in sys.modules:
        names |= {OF_PANDAS[name] for name in called & OF_PANDAS.keys()}
    if "bs4" in names:
        names.add("lxml")
    return "\n".join(f"import {name}" for name in sorted(names))


def required(wheel: str) -> list[str]:
    """Return the names of the packages that an installed wheel needs, without those of its extras."""
    found = metadata.requires(wheel.partition("-")[0]) or []
    plain = [name for name, _, marker in (line.partition(";") for line in found) if "extra" not in marker]
    return [re.split(r"[^\w.-]", name.strip())[0].lower().replace("_", "-") for name in plain]


async def run(
    code: str, write: Callable[[str], bool], here: Collection[str] = (), unloaded: str = "", importable: str = ""
) -> tuple[bool, bool, list[tuple[str, int]]]:
    """Run code; await what it awaits at the top level.

    `write` gets what it prints, and answers whether there may be more. `here`: the modules of the sandbox's packages;
    `unloaded`: why one of them could not be loaded; `importable`: which packages there are, in words. Returns whether
    the code failed, whether its memory was used up, and the files that it changed, with their sizes in bytes.
    """
    from pyodide.code import eval_code_async  # CPython has none, and tests the rest of this module

    linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)
    before = dict(_files())
    failed = out_of_memory = False
    out = Output(write)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            value = await eval_code_async(code, _globals, filename=NAME)
            if value is not None:
                print(repr(value))
        except OutputFullError:
            failed = True
        except SystemExit as error:
            failed = error.code not in (None, 0)
        except MemoryError as error:
            failed = out_of_memory = True
            error.__traceback__ = None  # frees what its frames hold
        except BaseException as error:  # whatever the code raises is its result
            failed = True
            with contextlib.suppress(OutputFullError):
                print(explained(error, here, unloaded, importable), end="")
        _show_plots()
    changed = [(str(path), state[1]) for path, state in _files() if before.get(path) != state]
    return failed, out_of_memory, changed


def _show_plots() -> None:
    """Show the figures of matplotlib that are still open, except those that the code has saved itself."""
    plots = sys.modules.get("wisp_sandbox.plots")
    if plots is None:
        return
    with contextlib.suppress(Exception, OutputFullError):  # what the code has drawn may not be drawable
        plots.show_rest()


def explained(error: BaseException, here: Collection[str] = (), unloaded: str = "", importable: str = "") -> str:
    """Return the traceback of the code's own frames. `here`, `unloaded`, `importable`: as for run()."""
    found: TracebackType | None = error.__traceback__
    while found and found.tb_frame.f_code.co_filename != NAME:
        found = found.tb_next
    lines = traceback.format_exception(type(error), error, found)
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] not in sys.modules:
        text = NOT_LOADED if error.name.partition(".")[0] in here else NOT_HERE
        why = unloaded and f": {unloaded}"
        return f"ModuleNotFoundError: {text.format(name=error.name, why=why, importable=importable)}\n"
    return "".join(lines)


def _files() -> Iterator[tuple[Path, tuple[int, int]]]:
    """Yield each file of the working directory with its time of change and size."""
    for path in sorted(HOME.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            state = path.stat()
            yield path, (state.st_mtime_ns, state.st_size)
