"""The memory budget that all models share, and what is reserved for models that are loading."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py_engine.errors import WispError

GIB = 1 << 30
WARN_AT = 0.8  # part of the budget, as in app/ui/monitor/warnings.js
UNKNOWN_MEMORY = 8.0  # GiB assumed where the browser does not report the machine's memory


class MemoryBudget:
    """A budget in bytes: half of the machine's memory unless it was set.

    A budget that was set is never exceeded. The default is an estimate, which one model alone may exceed.
    """

    def __init__(self, of_the_machine: Callable[[], float | None]) -> None:
        """`of_the_machine()`: GiB; None where the browser does not report it."""
        self._of_the_machine = of_the_machine
        self._set: int | None = None
        self.reserved = 0  # bytes for models that are loading and caches that grow
        self._warned = False

    @property
    def estimated(self) -> bool:
        """Whether the budget was not set."""
        return self._set is None

    @property
    def budget(self) -> int:
        """Bytes for all models together."""
        if self._set is not None:
            return self._set
        return int((self._of_the_machine() or UNKNOWN_MEMORY) * GIB / 2)

    def set(self, value: Any) -> None:
        """Set the budget in bytes, from the next load on; None restores the default."""
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise WispError("memoryBudget must be a number of bytes.", "invalid_type", param="memoryBudget")
        if value is not None and not 0 < value < 1 << 53:
            raise WispError("memoryBudget must be a positive number of bytes.", "invalid_value", param="memoryBudget")
        self._set = None if value is None else int(value)

    def warning(self, used: int) -> str | None:
        """What to tell users when `used` bytes reach WARN_AT of the budget. Said once, until fewer bytes are used."""
        full, warned = used >= WARN_AT * self.budget, self._warned
        self._warned = full
        if not full or warned:
            return None
        return (
            f"Models need {100 * used / self.budget:.0f} % of the memory budget ({used / 2**20:.1f} of "
            f"{self.budget / 2**20:.1f} MiB). Unload one, or set a shorter context."
        )

    @contextmanager
    def reserve(self, needed: int) -> Iterator[None]:
        """Reserve bytes that are about to be allocated."""
        self.reserved += needed
        try:
            yield
        finally:
            self.reserved -= needed
