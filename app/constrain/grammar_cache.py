"""The grammars of forms that were asked for lately. To write one takes longer than all else before a first token.

Agents send the same schema or tools with each request.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from py_engine import json_input

Grammar = TypeVar("Grammar")
MAX_CACHED = 12  # forms
MAX_VALUES = 100_000  # of a form's JSON
_recent: OrderedDict[tuple[str | tuple[str], ...], Any] = OrderedDict()  # the newest last


def cached(form: list[Any], write: Callable[[], Grammar]) -> Grammar:
    """What `write` returns, or has returned for a form of the same texts and values. Errors are raised again."""
    if json_input.count(form, MAX_VALUES) > MAX_VALUES or json_input.is_deep(form):
        # repr() would take long, or recurse; `write` reports the error
        return write()
    key = tuple(part if isinstance(part, str) else (repr(part),) for part in form)  # long grammars are not copied
    if key not in _recent:
        _recent[key] = write()
        if len(_recent) > MAX_CACHED:
            _recent.popitem(last=False)
    _recent.move_to_end(key)
    found: Grammar = _recent[key]
    return found
