"""A Python session in the sandbox: runs code, prints its value or its traceback, and finds the files that it wrote.

Runs in Pyodide, in the sandbox's worker (python.js). Variables and files last as long as the session.
"""

import ast
import contextlib
import io
import linecache
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .pictures import show

NAME = "<python>"  # of the code, in tracebacks
HOME = Path("/files")
NOT_HERE = "{name} is not in this sandbox, and there is no network. The standard library and numpy are here. " \
           "To plot, write an .svg file, or call show(array) with pixels."  # fmt: skip


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


def packages(code: str, wheels: Sequence[str]) -> list[str]:
    """Return the packages that the code imports and that one of these wheels has. `show` needs numpy."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError:
        return []
    names = {alias.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {(node.module or "").partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    if any(isinstance(node, ast.Name) and node.id == "show" for node in nodes):
        names.add("numpy")
    return sorted(name for name in names if name and any(wheel.startswith(f"{name}-") for wheel in wheels))


async def run(code: str, write: Callable[[str], bool]) -> tuple[bool, bool, list[tuple[str, int]]]:
    """Run code; await what it awaits at the top level.

    `write` gets what it prints, and answers whether there may be more. Returns whether it failed, whether its memory
    was used up, and the files that it changed, with their sizes in bytes.
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
                print(explained(error), end="")
    changed = [(str(path), state[1]) for path, state in _files() if before.get(path) != state]
    return failed, out_of_memory, changed


def explained(error: BaseException) -> str:
    """Return the traceback of the code's own frames."""
    found: TracebackType | None = error.__traceback__
    while found and found.tb_frame.f_code.co_filename != NAME:
        found = found.tb_next
    lines = traceback.format_exception(type(error), error, found)
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] not in sys.modules:
        return f"ModuleNotFoundError: {NOT_HERE.format(name=error.name)}\n"
    return "".join(lines)


def _files() -> Iterator[tuple[Path, tuple[int, int]]]:
    """Yield each file of the working directory with its time of change and size."""
    for path in sorted(HOME.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            state = path.stat()
            yield path, (state.st_mtime_ns, state.st_size)
