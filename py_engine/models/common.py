"""Reading hyperparameters: what most architectures share."""

from __future__ import annotations

from math import log
from typing import Any

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.plan.rope import RopeSpec

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


def per_layer(header: Header, key: str, block_count: int) -> tuple[int, ...]:
    """A positive whole number of every layer, which the metadata may give once for all."""
    value = header.arch(key)
    if not isinstance(value, list):
        return (count(header, key),) * block_count
    if len(value) < block_count or not all(isinstance(n, int) and 0 < n < 1 << 31 for n in value[:block_count]):
        raise _bad(header, key, value, f"a positive whole number for each of {block_count} layers")
    return tuple(value[:block_count])


def head_count_kv(header: Header, block_count: int, default: int) -> int:
    """Key/value heads, which the metadata may tell for each layer; 0 there: the layer has no attention."""
    value = header.arch("attention.head_count_kv", default)
    if not isinstance(value, list):
        return count(header, "attention.head_count_kv", default)
    several = {n for n in value[:block_count] if n != 0}
    if len(value) < block_count or len(several) != 1 or not isinstance(n := several.pop(), int) or n < 1:
        raise _bad(header, "attention.head_count_kv", value, "the same for all layers that have attention")
    return n


def number(header: Header, key: str, default: Any = _NONE) -> float:
    """A positive number of the architecture's metadata."""
    value = header.arch(key) if default is _NONE else header.arch(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
        raise _bad(header, key, value, "a positive number")
    return float(value)


def switch(header: Header, key: str, default: bool) -> bool:
    """A truth value of the architecture's metadata."""
    value = header.arch(key, default)
    if not isinstance(value, bool):
        raise _bad(header, key, value, "true or false")
    return value


def vocabulary(header: Header) -> int:
    """Rows of the embedding table."""
    info = header.tensors.get("token_embd.weight")
    return info.shape[-1] if info else count(header, "vocab_size")


def windows(header: Header, block_count: int, period: int, *, first: bool = False) -> tuple[int, ...]:
    """The sliding window of every layer, 0 for none. `period`: every so many layers the last one, or the `first`, sees
    all, unless the metadata tells for each layer whether it has a window.
    """
    window = header.arch("attention.sliding_window", 0)
    if not isinstance(window, int) or not 0 <= window < 1 << 31:
        raise _bad(header, "attention.sliding_window", window, "a whole number")
    pattern = header.arch("attention.sliding_window_pattern", period)
    if isinstance(pattern, list):
        if len(pattern) < block_count:
            raise _bad(header, "attention.sliding_window_pattern", pattern, f"as long as the {block_count} layers")
        return tuple(window if has else 0 for has in pattern[:block_count])
    if isinstance(pattern, bool) or not isinstance(pattern, int) or pattern < 0:
        raise _bad(header, "attention.sliding_window_pattern", pattern, "a whole number, or a list of truth values")
    wide = 0 if first else pattern - 1
    return tuple(window if pattern == 0 or i % pattern != wide else 0 for i in range(block_count))


def rope_spec(header: Header, dim: int) -> RopeSpec:
    """The rotation of most architectures; WispError for a kind of scaling that does not run."""
    kind = header.arch("rope.scaling.type", "linear")
    if kind == "longrope":  # its divisors are tensors, its magnitude the attention factor
        kind = "none"
    if kind not in ("none", "linear", "yarn"):
        raise WispError(f"RoPE scaling of type {kind!r} does not run yet.", "unsupported_architecture")
    factor = number(header, "rope.scaling.factor", header.arch("rope.scale_linear", 1.0))
    if kind == "linear" and factor == 1:
        kind = "none"
    return RopeSpec(
        dim,
        number(header, "rope.freq_base", 10000.0),
        kind,
        factor,
        original_context(header) if kind == "yarn" else 0,
        number(header, "rope.scaling.yarn_beta_fast", 32.0),
        number(header, "rope.scaling.yarn_beta_slow", 1.0),
        number(header, "rope.scaling.attn_factor", 1.0) / _yarn_magnitude(header, kind, factor),
    )


def _yarn_magnitude(header: Header, kind: str, factor: float) -> float:
    """What a model that scales all dimensions alike takes back of YaRN's magnitude."""
    multiplier = header.arch("rope.scaling.yarn_log_multiplier", 0.0)
    if not isinstance(multiplier, int | float):
        raise _bad(header, "rope.scaling.yarn_log_multiplier", multiplier, "a number")
    return 1 + 0.1 * multiplier * log(factor) if kind == "yarn" and factor > 1 else 1.0


def original_context(header: Header) -> int:
    """The context length before any scaling of the rotation."""
    return count(header, "rope.scaling.original_context_length", header.arch("context_length", 0))


def rope_factors(header: Header, n_ctx: int) -> str | None:
    """The tensor of divisors of the rotation's frequencies: Llama 3's, or LongRoPE's for a context of n_ctx."""
    if "rope_freqs.weight" in header.tensors:
        return "rope_freqs.weight"
    if "rope_factors_long.weight" in header.tensors:
        long = n_ctx > original_context(header)
        return f"rope_factors_{'long' if long else 'short'}.weight"
    return None
