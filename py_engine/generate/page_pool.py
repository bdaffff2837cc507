"""The pages of one page group: which are free, which sequences hold, and which are cached for later requests."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Contents = TypeVar("Contents")


class PagePool(Generic[Contents]):
    """Pages by number. A page is free, held by one or more sequences, or cached: with contents, but without holders."""

    def __init__(self, pages: int) -> None:
        self.size = 0
        self._free: list[int] = []
        self._holders: dict[int, int] = {}  # of every held page
        self._cached: OrderedDict[int, Contents] = OrderedDict()  # least recently used first
        self.grow(pages)

    def grow(self, pages: int) -> None:
        """Have `pages` pages in all."""
        self._free = [*range(pages - 1, self.size - 1, -1), *self._free]
        self.size = pages

    @property
    def available(self) -> int:
        """Pages that a sequence could get: free ones, and cached ones that could be evicted."""
        return len(self._free) + len(self._cached)

    @property
    def free(self) -> int:
        """Pages without contents."""
        return len(self._free)

    @property
    def held(self) -> int:
        """Pages that sequences hold."""
        return len(self._holders)

    def take(self) -> int:
        """A free page, with one holder. IndexError if there is none."""
        page = self._free.pop()
        self._holders[page] = 1
        return page

    def hold(self, page: int) -> None:
        """Add a holder to a page that has contents."""
        self._cached.pop(page, None)
        self._holders[page] = self._holders.get(page, 0) + 1

    def release(self, page: int, contents: Contents | None) -> None:
        """Remove a holder. After the last one the page stays cached if it has contents; else it is free."""
        self._holders[page] -= 1
        if self._holders[page]:
            return
        del self._holders[page]
        if contents is None:
            self._free.append(page)
        else:
            self._cached[page] = contents

    def evict(self) -> Contents:
        """Free the cached page that was released longest ago; return what it held. KeyError if there is none."""
        page, contents = self._cached.popitem(last=False)
        self._free.append(page)
        return contents

    def drop(self, page: int) -> None:
        """Free a cached page."""
        del self._cached[page]
        self._free.append(page)
