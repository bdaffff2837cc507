"""Reading hyperparameters: what most architectures share."""

from __future__ import annotations

from typing import Any

from py_engine.errors import WispError
from py_engine.gguf_header import Header

_NONE: Any = object()


def _bad(header: Header, key: str, value: object, what: str) -> WispError:
    return WispError(
        f"{header.architecture}.{key} is {value!r} in the file's metadata; it must be {what}.", "corrupt_header"
    )


def count(header: Header, key: str, default: Any = _NONE) -> int:
    """A positive whole number of the architecture's metadata."""
    value = header.arch(key) if default is _NONE else header.arch(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
        raise _bad(header, key, value, "a positive whole number")
    return value


def number(header: Header, key: str, default: Any = _NONE) -> float:
    """A positive number of the architecture's metadata."""
    value = header.arch(key) if default is _NONE else header.arch(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
        raise _bad(header, key, value, "a positive number")
    return float(value)


def rope_linear(header: Header) -> float:
    """The factor that positions are divided by, 1 without scaling. WispError for scaling that is not linear."""
    kind = header.arch("rope.scaling.type", "linear" if header.arch("rope.scale_linear", None) else "none")
    if kind == "none":
        return 1.0
    if kind != "linear":
        raise WispError(f"RoPE scaling of type {kind!r} does not run yet.", "unsupported_architecture")
    return number(header, "rope.scaling.factor", header.arch("rope.scale_linear", 1.0))
