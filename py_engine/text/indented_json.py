"""Write JSON with indents, as Python's json module does.

Python's encoder makes a generator for each level, and generators within each other recurse in C. This one calls plain
functions, which do not.
"""

from collections.abc import Callable
from json import JSONEncoder
from typing import Any

Encode = Callable[[Any], str]


def dumps(value: Any, indent: str, comma: str, colon: str, ensure_ascii: bool, sort_keys: bool) -> str:
    """Encode as json.dumps(value, indent=indent, separators=(comma, colon), ...) does."""
    out: list[str] = []
    _write(value, out, JSONEncoder(ensure_ascii=ensure_ascii).encode, "\n", (indent, comma, colon, sort_keys))
    return "".join(out)


def _write(value: Any, out: list[str], encode: Encode, line: str, form: tuple[str, str, str, bool]) -> None:
    indent, comma, colon, sort_keys = form
    inner = line + indent
    if isinstance(value, dict) and value:
        before = "{" + inner
        for key, member in sorted(value.items()) if sort_keys else value.items():
            out.append(before + _key(key, encode) + colon)
            _write(member, out, encode, inner, form)
            before = comma + inner
        out.append(line + "}")
    elif isinstance(value, list | tuple) and value:
        before = "[" + inner
        for member in value:
            out.append(before)
            _write(member, out, encode, inner, form)
            before = comma + inner
        out.append(line + "]")
    else:
        out.append(encode(value))


def _key(key: Any, encode: Encode) -> str:
    if isinstance(key, str):
        return encode(key)
    if key is None or isinstance(key, int | float):
        return f'"{encode(key)}"'
    raise TypeError(f"keys must be str, int, float, bool or None, not {type(key).__name__}")
