"""Read the fields of a request, checked for type and range. An error's `param` names the field."""

import math
from collections.abc import Collection
from typing import Any

from py_engine import json_input
from py_engine.errors import WispError

Json = Any  # a parsed JSON value: None, bool, int, float, str, list or dict
Body = dict[str, Json]  # the body of a request


def wrong_type(param: str | None, expected: str, value: Json) -> WispError:
    """Return the error for a value of the wrong type."""
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    got = "nothing" if value is None else "an empty list" if value == [] else kinds.get(type(value), "something else")
    where = f"{param} must be" if param else "Expected"
    return WispError(f"{where} {expected}, not {got}.", "invalid_type", param=param)


def wrong_value(message: str, param: str) -> WispError:
    """Return the error for a value of the right type that is not allowed."""
    return WispError(message, "invalid_value", param=param)


def unsupported(message: str, param: str) -> WispError:
    """Return the error for a feature of the API that Wisp does not implement."""
    return WispError(message, "unsupported_parameter", param=param)


def with_known_fields(body: Json, known: Collection[str]) -> Body:
    """A request, which must be an object without other fields than these. A field that is null counts as left out."""
    if not isinstance(body, dict):
        raise wrong_type(None, "a JSON object as the request", body)
    for name, value in body.items():
        if name not in known and value is not None:
            raise unsupported(f"{name} is not a parameter that this engine knows; leave it out.", name)
    return body


def boolean(body: Body, name: str, default: bool = False, param: str | None = None) -> bool:
    """Read true or false; null counts as absent."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong_type(param or name, "true or false", value)
    return value


def whole(value: Json) -> int | None:
    """Return the value as an integer, None if it is not one. 3.0 counts: JavaScript does not distinguish it from 3."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value
    return int(value) if math.isfinite(value) and value == value // 1 else None


def integer(body: Body, name: str, low: int, high: int = 1 << 31) -> int | None:
    """Read an integer from low to high; None where it is absent."""
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
    """Read a number from low to high."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "a number", value)
    if not low <= value <= high:  # NaN fails this too
        raise wrong_value(f"{name} is {value}; it must be from {low} to {high}.", name)
    return float(value)


def text(body: Body, name: str, param: str | None = None) -> str | None:
    """Read a string; None where it is absent."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong_type(param or name, "a string", value)
    return value


def one_of(body: Body, name: str, values: tuple[str, ...]) -> str | None:
    """Read one of some strings; None where it is absent."""
    value = text(body, name)
    if value is not None and value not in values:
        raise wrong_value(f"{name} is {value!r}; it must be one of {', '.join(values)}.", name)
    return value


def parsed(arguments: str) -> dict[str, Json]:
    """The arguments of a function call; none where they are cut off, nested too deep, or no object."""
    try:
        found = json_input.parse(arguments or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def mapping(body: Body, name: str) -> dict[str, Json] | None:
    """Read an object; None where it is absent."""
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise wrong_type(name, "an object", value)
    return value
