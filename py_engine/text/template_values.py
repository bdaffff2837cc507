"""Values that chat templates make: namespaces and undefined values, which hold nothing that is not accounted for."""

from __future__ import annotations

from typing import Any

import jinja2
from jinja2.runtime import Undefined
from jinja2.utils import Namespace, missing, object_type_repr

from py_engine.text.template_limits import LimitExceeded, Limits

MAX_NAME = 100  # characters of a name in a message


class AccountedNamespace(Namespace):
    """A namespace. It is not shown as text, where namespaces within each other would have no end.

    Its values are its __dict__, which is read much faster than through Jinja's method: templates read `ns.x` in loops.
    """

    __slots__ = ("_limits",)
    __getattribute__ = object.__getattribute__

    def __init__(self, limits: Limits, /, *args: Any, **kwargs: Any) -> None:
        self._limits = limits
        vars(self).update(limits.named(dict(*args, **kwargs)))

    def __setitem__(self, name: str, value: Any) -> None:
        if self._limits.holds(self):
            raise LimitExceeded("it changes a namespace that another value holds")
        self._limits.measure(value, 1)
        vars(self)[name] = value

    def __repr__(self) -> str:
        return "<Namespace>"


class Missing(Undefined):
    """An undefined value that holds a message instead of the object which lacks it."""

    __slots__ = ()

    def __init__(
        self,
        hint: str | None = None,
        obj: Any = missing,
        name: Any = None,
        exc: type[jinja2.TemplateRuntimeError] = jinja2.UndefinedError,
    ) -> None:
        if not hint:
            shown = repr(name if isinstance(name, str | int) else type(name).__name__)[:MAX_NAME]
            if obj is missing:
                hint = f"{shown} is undefined"
            elif isinstance(name, str):
                hint = f"{object_type_repr(obj)!r} has no attribute {shown}"
            else:
                hint = f"{object_type_repr(obj)} has no element {shown}"
        super().__init__(hint, exc=exc)
