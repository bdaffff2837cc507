"""The backend of matplotlib in the sandbox: figures become PNG files, which the user sees.

matplotlib imports this module by its name (MPLBACKEND). Without matplotlib nothing imports it.
"""

import itertools
import sys
from collections.abc import Container
from os import PathLike
from pathlib import Path
from typing import Any
from weakref import WeakSet

from matplotlib.backends.backend_agg import FigureCanvasAgg  # type: ignore[import-not-found]

__all__ = ["FigureCanvas", "show", "show_rest"]
_HOME = Path("/files")
_SHOWN = {"", ".png", ".svg", ".jpg", ".jpeg", ".gif", ".webp"}  # without a suffix, matplotlib writes PNG
_numbers = itertools.count(1)
_saved: WeakSet[Any] = WeakSet()  # figures that the code has written as pictures that the user sees


class FigureCanvas(FigureCanvasAgg):
    """A canvas that notes which figures the code has saved."""

    def print_figure(self, filename: Any, *args: Any, **kwargs: Any) -> Any:
        """Write the figure to a file."""
        result = super().print_figure(filename, *args, **kwargs)
        if isinstance(filename, str | PathLike):
            path = (_HOME / filename).resolve()
            if path.suffix.lower() in _SHOWN and path.is_relative_to(_HOME):
                _saved.add(self.figure)
        return result


def show(*_: Any, **__: Any) -> None:
    """Write the open figures as files, and close them."""
    _write(except_for=())


def show_rest() -> None:
    """Write the open figures that the code has not saved, and close all."""
    _write(except_for=_saved)


def _write(except_for: Container[Any]) -> None:
    pyplot: Any = sys.modules["matplotlib.pyplot"]
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        if figure.axes and figure not in except_for:
            figure.savefig(_HOME / f"plot-{next(_numbers)}.png", bbox_inches="tight")
    pyplot.close("all")
