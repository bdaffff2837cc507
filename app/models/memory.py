"""The memory that all models share: what they may take, and what was promised to those that are still coming."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py_engine.errors import WispError

GIB = 1 << 30
UNKNOWN_MEMORY = 8.0  # GiB taken for the machine's where the browser does not say


class Memory:
    """A budget in bytes: half of the machine's memory unless somebody said otherwise.

    A budget that was set is never exceeded; the guess may be, by one model alone.
    """

    def __init__(self, of_the_machine: Callable[[], float | None]) -> None:
        """`of_the_machine`: GiB, None where the browser does not say."""
        self._of_the_machine = of_the_machine
        self._set: int | None = None
        self.promised = 0  # bytes of what is being loaded, and of caches that grow

    @property
    def guessed(self) -> bool:
        """Whether nobody set it."""
        return self._set is None

    @property
    def budget(self) -> int:
        """Bytes that all models together may take."""
        if self._set is not None:
            return self._set
        return int((self._of_the_machine() or UNKNOWN_MEMORY) * GIB / 2)

    def set(self, value: Any) -> None:
        """Bytes, from the next load on; None: as before anybody set it."""
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise WispError("memoryBudget must be a number of bytes.", "invalid_type", param="memoryBudget")
        if value is not None and not 0 < value < 1 << 53:
            raise WispError("memoryBudget must be a positive number of bytes.", "invalid_value", param="memoryBudget")
        self._set = None if value is None else int(value)

    @contextmanager
    def promise(self, needed: int) -> Iterator[None]:
        """So many bytes are about to be taken."""
        self.promised += needed
        try:
            yield
        finally:
            self.promised -= needed
