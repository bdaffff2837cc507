"""The backend of matplotlib in the sandbox: figures become PNG files, which the user sees.

matplotlib imports this module by its name (MPLBACKEND). Without matplotlib nothing imports it.
"""

import itertools
import sys
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas  # type: ignore[import-not-found]

__all__ = ["FigureCanvas", "save", "show", "written"]
written: set[Path] = set()
_numbers = itertools.count(1)


def show(*_: Any, **__: Any) -> None:
    """Write the open figures as files, and close them."""
    save()


def save() -> None:
    """Write the open figures as files, and close them."""
    pyplot: Any = sys.modules["matplotlib.pyplot"]
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        if figure.axes:
            path = Path("/files") / f"plot-{next(_numbers)}.png"
            figure.savefig(path, bbox_inches="tight")
            written.add(path)
    pyplot.close("all")
