"""The grammars of forms that were asked for lately. To write one takes longer than all else before a first token.

Agents send the same schema or tools with each request.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from py_engine import json_input

Written = TypeVar("Written")
MOST = 12  # forms
_lately: OrderedDict[tuple[str, ...], Any] = OrderedDict()


def once(form: list[Any], write: Callable[[], Written]) -> Written:
    """What `write` returns, or has returned for a form of the same texts and values. Errors are raised again."""
    if json_input.is_deep(form):  # repr() recurses, too; `write` reports the error
        return write()
    key = tuple(part if isinstance(part, str) else repr(part) for part in form)  # long grammars are not copied
    if key not in _lately:
        _lately[key] = write()
        if len(_lately) > MOST:
            _lately.popitem(last=False)
    _lately.move_to_end(key)
    found: Written = _lately[key]
    return found
