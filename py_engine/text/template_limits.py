"""What one rendering of a chat template may use: time, steps, memory, and the depth and size of values.

Templates come from downloaded files. Everything that runs on behalf of one is accounted for here, before it happens
where the cost can be foreseen, so that a hostile template ends with an error instead of the engine. All limits are far
above what templates of real models need.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

from jinja2.runtime import Undefined
from jinja2.utils import Namespace

MAX_SECONDS = 1.0  # of the processor
# A step: a block entered, every 32 nodes in it, an item iterated, and 256 characters of the texts that are worked on.
MAX_STEPS = 2_000_000
MAX_TEXT = 8 << 20  # characters of one text, and of the prompt; of a container 8 for each member are added
MAX_BYTES = 96 << 20  # of all the values that one rendering makes
COPIED = 12  # a step copies 2 ** COPIED characters of texts that are joined
GROWING_FROM = 4096  # characters of a text that may be a prompt, to which a template adds piece by piece
GROWING = 16  # such texts that are watched
QUOTED = 10  # characters that a character is, at most, in a text that Python quotes: that of a container
MAX_BITS = 4096  # of an integer
MAX_FOLDED = 4 << 20  # bytes of the values that the compiler makes of constants
MAX_PIECES = 400_000  # of one text: characters or words in a list, each an object of its own
LAZY_BYTES = 1024  # of an iterator that computes its items: generators within each other, and their frames
MAX_NESTING = 120  # containers within each other: those of a request (json_input.py) and a few of the template
NOTED_BYTES = 200  # that the account itself needs for a container
ITERATOR_DEPTH = 20  # levels that an iterator counts as
MAX_CALLS = 50  # macros, filters and blocks within each other
# In a browser the processor's time is the time since the worker began, and is not available after 36 minutes.
CLOCK = time.perf_counter if sys.platform == "emscripten" else time.process_time
CLOCK_STEPS = 100  # steps between two looks at the clock

_FLAT = (int, float, complex, range, type(None), Undefined)  # these hold no other values
_MANY_BITS = ~63  # rounds down: a small number is no longer than the 8 characters that any member counts as
_ATOMS = frozenset([str, int, float, bool, type(None)])


class LimitExceeded(Exception):
    """The template needs more than it may use."""


class Limits:
    """The account of the rendering in progress."""

    def __init__(self, clock: Callable[[], float] = CLOCK) -> None:
        self.clock = clock
        self.start(MAX_FOLDED)

    def start(self, values: int = MAX_BYTES, *, again: bool = False) -> None:
        """Begin a rendering. `values`: bytes that its values may have. `again`: in the time that the last one left."""
        if not again:
            self._end = self.clock() + MAX_SECONDS
            self._steps, self._unclocked = MAX_STEPS, 0
        self._bytes = values
        self._calls = 0
        self._growing: deque[str] = deque(maxlen=GROWING)  # the newest long texts that were joined
        self._sizes: dict[int, tuple[Any, int, int]] = {}  # id -> (container, its depth, its size)
        self._members: set[int] = set()  # ids of the containers that other values hold

    def end(self) -> None:
        """End a rendering: free its values."""
        self._sizes, self._members = {}, set()
        self._growing.clear()

    @property
    def left(self) -> int:
        """Bytes that values may still have."""
        return self._bytes

    def spend(self, steps: int = 1) -> None:
        """Account for work."""
        self._steps -= steps
        if self._steps < 0:
            raise LimitExceeded("it takes too many steps: its loops are too long")
        self._unclocked += steps
        if self._unclocked > CLOCK_STEPS:
            self._unclocked = 0
            if self.clock() > self._end:
                raise LimitExceeded(f"it takes too long, more than {MAX_SECONDS:.0f} s")

    def enter(self, weight: int = 1) -> None:
        """Account for a call. leave() ends it."""
        self.spend()
        self._calls += weight
        if self._calls > MAX_CALLS:
            raise LimitExceeded(f"its calls are nested more than {MAX_CALLS} levels deep")

    def leave(self, weight: int = 1) -> None:
        """End a call."""
        self._calls -= weight

    def foresee(self, size: int) -> None:
        """Account for a text or container before it is made. `size`: as size() will measure it, or more."""
        self.check_size(size)
        self.spend(size >> 8)

    def check_size(self, size: int) -> None:
        """Refuse a text or container of that size."""
        if size > MAX_TEXT:
            raise LimitExceeded("it makes a text or list that is too long")

    def made(self, value: Any) -> Any:
        """Account for a new value and return it. New iterators are read to their end at once."""
        kind = type(value)
        if kind is str or isinstance(value, str):
            self.foresee(len(value))
            self._allocate(sys.getsizeof(value))
        elif isinstance(value, (list, tuple, dict)):
            self._allocate(sys.getsizeof(value))
            self.measure(value)
            if isinstance(value, dict):
                for key in value:
                    self.compared(key)
        elif isinstance(value, Iterator):
            return self._drained(value)
        elif kind is int and value.bit_length() > MAX_BITS:
            raise LimitExceeded("its numbers are too large")
        return value

    def named(self, values: dict[str, Any]) -> dict[str, Any]:
        """Account for the values of a new namespace and return them. Lists may grow until another value holds them."""
        self._allocate(sys.getsizeof(values))
        for name, value in values.items():
            self.compared(name)
            self.measure(value, 1)
        return values

    def returned(self, value: Any) -> Any:
        """Account for what a call or a filter returns. The members of its lists may be new values, too."""
        if isinstance(value, list | tuple):
            self._allocate(sum(map(sys.getsizeof, value)))
        return self.made(value)

    def _drained(self, items: Iterator[Any]) -> Iterator[Any]:
        """Advance an iterator to its end now. Iterators of iterators would recurse when they advance or are freed."""
        if id(items) in self._sizes:
            return items  # one of _drained() or lazy()
        found = self.returned(list(self.stepped(items)))
        return self._held(iter(found), found)

    def lazy(self, items: Iterator[Any], holds: Iterable[Any]) -> Iterator[Any]:
        """An iterator that computes its items when they are needed. `holds`: what it refers to.

        Iterators of iterators recurse when they advance or are freed, so it is read to its end if it holds several.
        """
        parts = [self._held_part(part) for part in holds]
        depth = max(depth for depth, _ in parts) + ITERATOR_DEPTH
        if depth > MAX_NESTING * 2 // 3:
            return self._drained(items)
        self._allocate(LAZY_BYTES)
        made = self._checked(items)
        self._note(made, depth, max(size for _, size in parts))
        return made

    def _checked(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self.spend()
            self.measure(item, 1)
            yield item

    def _held(self, holder: Any, held: Any) -> Any:
        """Note that an object which is no container holds one."""
        depth, size = self._held_part(held, 0)
        self._note(holder, depth + 1, size)
        return holder

    def viewed(self, view: Any, owner: Any) -> Any:
        """Account for items(), keys() or values() of a dict."""
        return self._held(view, owner)

    def text(self, parts: list[str]) -> str:
        """Join texts.

        A template that adds to its prompt piece by piece makes it anew each time. What nothing but this account holds
        any more is given back, so that a long conversation needs no more than its prompt.
        """
        size = sum(map(len, parts))
        self.check_size(size)
        self.spend(1 + (size >> COPIED))
        made = "".join(parts)
        for at in reversed(range(len(self._growing))):
            if _references(self._growing, at) == _ALONE:
                self._bytes += sys.getsizeof(self._growing[at])
                del self._growing[at]
        self._allocate(sys.getsizeof(made))
        if size >= GROWING_FROM:
            self._growing.append(made)
        return made

    def joined(self, value: Any, left: Any, right: Any) -> Any:
        """Account for the list `left` + `right`, whose members are not measured again."""
        self._allocate(sys.getsizeof(value))
        (one, size), (other, more) = self.measure(left), self.measure(right)
        self._note(value, max(one, other), size + more)
        return value

    def compared(self, value: Any) -> Any:
        """Account for a comparison with a value, or for its hash, and return it."""
        if isinstance(value, (str, list, tuple, dict)):
            self.spend(self.size(value) >> 8)
        elif isinstance(value, range):
            self.spend(len(value) >> 5)  # it compares each number with a value that is none
        return value

    def cut(self, pieces: int) -> None:
        """Account for a list of a text's pieces before it is made."""
        if pieces > MAX_PIECES:
            raise LimitExceeded("it cuts a text into too many pieces")

    def spread(self, items: Any) -> Any:
        """Account for the members of an iterable that become the arguments of a call."""
        if isinstance(items, str):
            self.cut(len(items))
        return self.counted(items)

    def counted(self, items: Iterable[Any]) -> Iterable[Any]:
        """Account for each item of an iterable: at once where their number is known."""
        if isinstance(items, Sized):
            self.spend(len(items))
            return items
        return self.stepped(items)

    def paced(self, items: Iterable[Any], weight: int) -> Iterator[Any]:
        """Account for `weight` steps with each item. Faster than to do so in each iteration."""
        owed = 0
        try:
            for item in items:
                owed += weight
                if owed > CLOCK_STEPS:
                    self.spend(owed)
                    owed = 0
                yield item
        finally:  # the loop ended, also by a break
            self._steps -= owed
            self._unclocked += owed

    def stepped(self, items: Iterable[Any]) -> Iterator[Any]:
        """Account for each item when it is read."""
        for item in items:
            self.spend()
            yield item

    def size(self, value: Any) -> int:
        """The characters of a value as text, roughly. At least 1 for each member of a container."""
        return len(value) if isinstance(value, str) else self.measure(value)[1]

    def shown(self, value: Any) -> int:
        """At most as many characters as a value's text has."""
        return self.size(value) * (QUOTED if isinstance(value, (list, tuple, dict)) else 1)

    def holds(self, value: Any) -> bool:
        """Whether another value may hold this one, whose depth must then stay as it was measured."""
        return id(value) in self._sizes

    def measure(self, value: Any, level: int = 0) -> tuple[int, int]:
        """(depth, size) of a value. Members that appear twice count twice, as in the text of the value.

        The depth of a member must be known. Python frees what a value holds by recursion, so thousands of values that
        hold each other would overflow the stack. Macros, methods and loops can therefore be no members, and a namespace
        that is one must not change.
        """
        if isinstance(value, str):
            return 0, len(value)
        known = self._sizes.get(id(value))
        if known is not None:
            return known[1:]
        if not isinstance(value, (list, tuple, dict)):
            if level and isinstance(value, Namespace):
                depth, size = self.measure(dict(vars(value)), level + 1)
                self._note(value, depth + 1, size)
                return depth + 1, size
            if level and not isinstance(value, _FLAT):
                raise LimitExceeded("it stores a macro, cycler, loop or function in another value")
            return 0, 8 + (value.bit_length() & _MANY_BITS if isinstance(value, int) else 0)
        if level > MAX_NESTING:
            raise LimitExceeded(f"it nests lists more than {MAX_NESTING} levels deep")
        depth, size = 0, 0
        for parts in (value.keys(), value.values()) if isinstance(value, dict) else (value,):
            self.spend(len(value) >> 2)
            for part in parts:
                kind = type(part)
                if kind in _ATOMS:
                    size += 8 + (len(part) if kind is str else part.bit_length() & _MANY_BITS if kind is int else 0)
                    continue
                below, inside = self._held_part(part, level + 1)
                depth, size = max(depth, below), size + 8 + inside
        self._note(value, depth + 1, size)
        return depth + 1, size

    def _held_part(self, value: Any, level: int = 1) -> tuple[int, int]:
        """Measure a value that another one holds, and note that it is held."""
        found = self.measure(value, level)
        if id(value) in self._sizes:
            self._members.add(id(value))
        return found

    def append(self, to: list[Any], value: Any) -> None:
        """Account for list.append(). No other value may hold the list: what was measured of that one would be wrong."""
        (depth, size), (below, inside) = self.measure(to), self._held_part(value)
        if id(to) in self._members:
            raise LimitExceeded("it changes a list that another value holds")
        self._note(to, max(depth, below + 1), size + 8 + inside)

    def _note(self, value: Any, depth: int, size: int) -> None:
        if depth > MAX_NESTING:
            raise LimitExceeded(f"it nests lists more than {MAX_NESTING} levels deep")
        if size > MAX_TEXT:
            raise LimitExceeded("it makes a list that is too long")
        self._allocate(NOTED_BYTES)
        self._sizes[id(value)] = (value, depth, size)

    def _allocate(self, size: int) -> None:
        self._bytes -= size
        if self._bytes < 0:
            raise LimitExceeded("it makes too many values")

    def copied(self, value: Any, level: int = 0) -> Any:
        """Copy a value of a request, so that a template can change nothing outside. Measures the copy."""
        if level > MAX_NESTING:
            raise LimitExceeded(f"its input is nested more than {MAX_NESTING} levels deep")
        if isinstance(value, dict):
            made: Any = {key: self.copied(part, level + 1) for key, part in value.items()}
        elif isinstance(value, list | tuple):
            made = [self.copied(part, level + 1) for part in value]
        else:
            return value
        left = self._bytes  # the copies of a long conversation are not the template's
        self.measure(made)
        self._bytes = left
        return made


def _references(texts: deque[str], at: int) -> int:
    """How many references a text in a queue has."""
    return sys.getrefcount(texts[at])


_ALONE = _references(deque(["".join(("a", str(COPIED)))]), 0)  # of a text that only the queue holds
