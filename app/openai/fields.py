"""Fields of a request by type and range; a wrong one is refused with `param` naming it."""

import math
from typing import Any

from py_engine.errors import WispError

Body = dict[str, Any]


def wrong_type(param: str | None, expected: str, value: Any) -> WispError:
    """The error for a value of another type."""
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    got = "nothing" if value is None else "an empty list" if value == [] else kinds.get(type(value), "something else")
    where = f"{param} must be" if param else "Expected"
    return WispError(f"{where} {expected}, not {got}.", "invalid_type", param=param)


def wrong_value(message: str, param: str) -> WispError:
    """The error for a value of the right type that is not allowed."""
    return WispError(message, "invalid_value", param=param)


def unsupported(message: str, param: str) -> WispError:
    """The error for something with a meaning that Wisp does not implement."""
    return WispError(message, "unsupported_parameter", param=param)


def boolean(body: Body, name: str, default: bool = False, param: str | None = None) -> bool:
    """true or false; null is absent."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong_type(param or name, "true or false", value)
    return value


def whole(value: Any) -> int | None:
    """The value as an integer if it is one (JavaScript does not tell 3 from 3.0)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isinf(value) or value != value // 1:
        return None
    return int(value)


def integer(body: Body, name: str, low: int, high: int = 1 << 31) -> int | None:
    """An integer from low to high, None where it is absent."""
    value = body.get(name)
    if value is None:
        return None
    found = whole(value)
    if found is None:
        raise wrong_type(name, "an integer", value)
    if not low <= found <= high:
        raise wrong_value(f"{name} is {found}; it must be from {low} to {high}.", name)
    return found


def number(body: Body, name: str, low: float, high: float, default: float) -> float:
    """A number from low to high."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "a number", value)
    if not low <= value <= high:  # false for NaN too
        raise wrong_value(f"{name} is {value}; it must be from {low} to {high}.", name)
    return float(value)


def text(body: Body, name: str) -> str | None:
    """A string; null is absent."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong_type(name, "a string", value)
    return value


def one_of(body: Body, name: str, values: tuple[str, ...]) -> str | None:
    """One of some strings, None where it is absent."""
    value = text(body, name)
    if value is not None and value not in values:
        raise wrong_value(f"{name} is {value!r}; it must be one of {', '.join(values)}.", name)
    return value


def mapping(body: Body, name: str) -> dict[str, Any] | None:
    """An object; null is absent."""
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise wrong_type(name, "an object", value)
    return value
