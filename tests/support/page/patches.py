"""Patches to modules of an engine page, which other tests use, too."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def patched(module: ModuleType, **values: Any) -> Iterator[None]:
    """Give names of a module other values for a while."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)
