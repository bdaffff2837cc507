"""Readers of the hyperparameters that most architectures share."""

from __future__ import annotations

from dataclasses import replace
from math import log

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.plan.rope import RopeSpec

MAX_BLOCKS = 1024
OF_LAYERS = (
    "attention.head_count",
    "feed_forward_length",
    "expert_feed_forward_length",
    "expert_used_count",
)  # or lists
# whose rotation ignores the tensor rope_freqs
WITHOUT_DIVISORS = ("falcon-h1", "llada", "pangu-embedded", "deepseek2-ocr")
# whose positions have axes if the file has sections of the rotation
WITH_AXES = (
    *("qwen2vl", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen4exp", "paddleocr"),
    *("glm4", "glm4moe", "hunyuan_vl", "bailingmoe3"),
)
YARN_BETAS = ("mistral3", "grok", "k2-horizon")  # whose metadata's yarn_beta_fast and yarn_beta_slow count


def _bad(header: Header, key: str, value: object, what: str) -> WispError:
    return WispError(
        f"{header.architecture}.{key} is {value!r:.100} in the file's metadata; it must be {what}.", "corrupt_header"
    )


def count(header: Header, key: str, default: int | None = None) -> int:
    """Read a positive integer of the architecture's metadata. Required if there is no default."""
    value = header.arch(key) if default is None else header.arch(key, default)
    if key in OF_LAYERS:
        value = _of_first_layer(value) if key == "feed_forward_length" else _of_all_layers(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
        raise _bad(header, key, value, "a positive whole number")
    return value


def _of_all_layers(value: object) -> object:
    """The one number of a list for all layers; 0: a layer does without. Other values are returned as they are."""
    if isinstance(value, list) and all(type(n) is int for n in value) and len(several := {*value} - {0}) == 1:
        return several.pop()
    return value


def _of_first_layer(value: object) -> object:
    """The first number of a list of layers. llama.cpp uses it for all dense layers of most architectures."""
    return value[0] if isinstance(value, list) and value and value[0] else _of_all_layers(value)


def natural(header: Header, key: str, default: int = 0) -> int:
    """Read a whole number of the architecture's metadata, 0 included."""
    value = header.arch(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise _bad(header, key, value, "a whole number")
    return value


def deepstack(header: Header) -> list[int]:
    """The layers after which further parts of media's embeddings are added, part by part.

    Granite's metadata say for each layer which part is added before it, and -1 for none.
    """
    mapping = header.arch("deepstack_mapping", [])
    if not mapping:
        layers = natural(header, "n_deepstack_layers")
        if layers > MAX_BLOCKS:
            raise _bad(header, "n_deepstack_layers", layers, f"at most {MAX_BLOCKS}")
        return list(range(layers))
    known = isinstance(mapping, list) and all(type(part) is int for part in mapping)
    before = sorted((part, layer) for layer, part in enumerate(mapping) if part != -1) if known else []
    if not known or [n for n, _ in before] != list(range(1, 1 + len(before))) or not all(layer for _, layer in before):
        raise _bad(header, "deepstack_mapping", mapping, "-1, or the number of a part, for each layer but the first")
    return [layer - 1 for _, layer in before]


def dimension(header: Header, key: str, default: int | None = None, times: int = 1) -> int:
    """Read a count that, times `times`, is a dimension of a tensor: larger ones would be allocated for nothing."""
    value = count(header, key, default)
    if value * times > header.largest_dimension:
        raise _bad(header, key, value, f"at most {header.largest_dimension // times}, as the tensors have dimensions")
    return value


def block_count(header: Header) -> int:
    """Read the number of layers, each of which must have tensors; those that predict ahead may be missing."""
    value = count(header, "block_count")
    ahead = natural(header, "nextn_predict_layers", 0)
    final = value - 1 - (ahead if ahead < value else 0)  # an assistant has no other layers
    last = f"blk.{final}.", f"enc.blk.{final}."
    if value > MAX_BLOCKS or not any(name.startswith(last) for name in header.tensors):
        raise _bad(header, "block_count", value, f"the number of layers in the file, at most {MAX_BLOCKS}")
    return value


def per_layer(header: Header, key: str, block_count: int, least: int = 1) -> tuple[int, ...]:
    """Read an integer of at least 1, or `least`, per layer. The metadata may hold a positive one for all layers."""
    value = header.arch(key)
    if not isinstance(value, list):
        return (dimension(header, key),) * block_count
    most = header.largest_dimension
    if len(value) < block_count or not all(type(n) is int and least <= n <= most for n in value[:block_count]):
        raise _bad(header, key, value, f"a whole number, at least {least}, for each of {block_count} layers")
    return tuple(value[:block_count])


LEAST_LIMIT = 1e-6  # a smaller one is none


def per_layer_limits(header: Header, key: str, block_count: int) -> tuple[float, ...]:
    """Read the limit of each layer's activation; 0: there is none. The metadata may hold one for all layers."""
    value = header.arch(key, 0.0)
    numbers = value[:block_count] if isinstance(value, list) else [value] * block_count
    if len(numbers) < block_count or not all(type(n) in (int, float) and 0 <= n < 1e30 for n in numbers):
        raise _bad(header, key, value, f"a number, at least 0, for each of {block_count} layers")
    return tuple(float(n) if n > LEAST_LIMIT else 0.0 for n in numbers)


HEADS = ("attention.head_count", "attention.head_count_kv")  # the first keys of uneven_layers()


def uneven_layers(
    header: Header, keys: tuple[str, ...], block_count: int, least: int = 1
) -> tuple[tuple[tuple[int, ...], ...], Header]:
    """Read numbers that differ between layers: those of each layer, and a header with the largest for all layers.

    `keys`: HEADS, then others. The header says 1 key/value head, which divides any number of heads, and the dimensions
    of a head, by default those of the first layer's. WispError corrupt_header if a layer's heads cannot share its
    key/value heads.
    """
    layers = tuple(zip(*(per_layer(header, key, block_count, least) for key in keys), strict=True))
    if any(kv and (not heads or heads % kv) for heads, kv, *_ in layers):
        raise WispError("Wisp cannot run attention with the heads that the metadata describes.", "corrupt_header")
    most = {f"{header.architecture}.{key}": max(layer[i] for layer in layers) for i, key in enumerate(keys)}
    most[f"{header.architecture}.{HEADS[1]}"] = 1
    if first := layers[0][0]:
        size = count(header, "attention.key_length", max(1, dimension(header, "embedding_length") // first))
        most[f"{header.architecture}.attention.key_length"] = size
    return layers, replace(header, metadata=header.metadata | most)


def head_count_kv(header: Header, block_count: int, default: int) -> int:
    """Read the number of key/value heads. The metadata may hold one per layer; 0: the layer has no attention."""
    value = header.arch("attention.head_count_kv", default)
    if not isinstance(value, list):
        return count(header, "attention.head_count_kv", default)
    numbers = value[:block_count]
    several = {n for n in numbers if n != 0} if all(type(n) is int for n in numbers) else set()
    if len(value) < block_count or len(several) != 1 or not 0 < (n := several.pop()) < 1 << 31:
        raise _bad(header, "attention.head_count_kv", value, "the same for all layers that have attention")
    return n


def without_attention(header: Header, block_count: int) -> tuple[bool, ...]:
    """Whether each layer has 0 key/value heads. The metadata was checked by head_count_kv()."""
    heads = header.arch("attention.head_count_kv", 1)
    return tuple(n == 0 for n in heads[:block_count]) if isinstance(heads, list) else (False,) * block_count


def number(header: Header, key: str, default: float | None = None) -> float:
    """Read a positive number of the architecture's metadata. Required if there is no default."""
    value = header.arch(key) if default is None else header.arch(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
        raise _bad(header, key, value, "a positive number")
    return float(value)


def optional_number(header: Header, key: str, default: float = 0.0) -> float:
    """Read a number of the architecture's metadata that may be absent or 0."""
    return 0.0 if header.arch(key, default) in (0, 0.0) else number(header, key, default)


def switch(header: Header, key: str, default: bool) -> bool:
    """Read a boolean of the architecture's metadata."""
    value = header.arch(key, default)
    if not isinstance(value, bool):
        raise _bad(header, key, value, "true or false")
    return value


def vocabulary(header: Header) -> int:
    """Rows of the embedding table."""
    info = header.tensors.get("token_embd.weight")
    return info.shape[-1] if info else dimension(header, "vocab_size")


def windows(header: Header, block_count: int, period: int, *, first: bool = False) -> tuple[int, ...]:
    """Read the sliding window of every layer; 0: no window.

    One layer in `period`, the last or the `first` of them, attends to everything. The metadata may hold another period,
    or say for each layer whether it has a window.
    """
    window = natural(header, "attention.sliding_window")
    pattern = header.arch("attention.sliding_window_pattern", period)
    if isinstance(pattern, list):
        if len(pattern) < block_count:
            raise _bad(header, "attention.sliding_window_pattern", pattern, f"as long as the {block_count} layers")
        return tuple(window if has else 0 for has in pattern[:block_count])
    if isinstance(pattern, bool) or not isinstance(pattern, int) or pattern < 0:
        raise _bad(header, "attention.sliding_window_pattern", pattern, "a whole number, or a list of truth values")
    global_layer = 0 if first else pattern - 1
    return tuple(window if pattern == 0 or i % pattern != global_layer else 0 for i in range(block_count))


def rope_spec(header: Header, dim: int) -> RopeSpec:
    """Read the rotation of most architectures. WispError for an unsupported scaling."""
    kind = header.arch("rope.scaling.type", "linear")
    if kind == "longrope":  # its divisors are tensors, beside a factor; attn_factor holds its magnitude
        kind = "linear"
    if kind not in ("none", "linear", "yarn"):
        raise WispError(f"RoPE scaling of type {kind!r} is not supported yet.", "unsupported_architecture")
    factor = rope_factor(header)
    base = rope_base(header, "rope.freq_base")
    if kind == "linear" and factor == 1:
        kind = "none"
    return RopeSpec(
        dim,
        base,
        kind,
        factor,
        original_context(header) if kind == "yarn" else 0,
        _yarn_beta(header, "fast", 32.0),
        _yarn_beta(header, "slow", 1.0),
        number(header, "rope.scaling.attn_factor", 1.0) / _yarn_magnitude(header, kind, factor),
    )


def rope_factor(header: Header) -> float:
    """Read the factor of RoPE's scaling; 1 if it is 0 or missing."""
    key = "rope.scaling.factor" if header.arch("rope.scaling.factor", None) is not None else "rope.scale_linear"
    return optional_number(header, key) or 1.0


def rope_sections(header: Header) -> tuple[int, ...]:
    """Read the pairs that M-RoPE rotates by each axis of a position (RopeSpec.sections); () without M-RoPE."""
    sections = header.arch("rope.dimension_sections", [])
    whole = isinstance(sections, list) and all(type(n) is int and n >= 0 for n in sections)
    if whole and not any(sections):
        return ()
    if not whole or not 3 <= len(sections) <= 4 or not 0 < sum(sections) < 1 << 31:
        raise _bad(header, "rope.dimension_sections", sections, "three or four numbers of pairs")
    return tuple(sections)


def has_axes(header: Header) -> bool:
    """Whether positions have axes: time, row and column (M-RoPE). Some architectures' files may have the key unused."""
    return header.architecture in WITH_AXES and bool(rope_sections(header))


def rope_base(header: Header, key: str, default: float = 10000.0) -> float:
    """Read the base of RoPE's frequencies."""
    base = number(header, key, default)
    if base <= 1:
        raise _bad(header, key, base, "greater than 1")
    return base


def windowed_ropes(header: Header, ropes: tuple[RopeSpec, ...], layers: tuple[int, ...]) -> tuple[RopeSpec, ...]:
    """The rotations of every layer, those with a sliding window (`layers`) with the metadata's other base, if any.

    As llama.cpp has it: a factor scales these layers also where the metadata says that nothing is scaled.
    """
    base = rope_base(header, "rope.freq_base_swa", ropes[0].base)

    def windowed(rope: RopeSpec) -> RopeSpec:
        scaled = rope.scaling == "none" and rope.factor != 1
        return replace(rope, base=base, scaling="linear" if scaled else rope.scaling)

    return tuple(windowed(rope) if window else rope for window, rope in zip(layers, ropes, strict=True))


def windowed_dimensions(header: Header, dim: int, head_dim: int) -> int:
    """Read how many dimensions of a head rotate in layers with a sliding window. By default `dim`, as in the others."""
    size = count(header, "rope.dimension_count_swa", dim)
    if size > head_dim or size % 2:
        raise WispError(f"Wisp cannot rotate {size} of {head_dim} dimensions.", "corrupt_header")
    return size


def _yarn_beta(header: Header, end: str, default: float) -> float:
    """Read an end of YaRN's ramp. llama.cpp ignores the metadata of all but a few architectures."""
    return number(header, f"rope.scaling.yarn_beta_{end}", default) if header.architecture in YARN_BETAS else default


def _yarn_magnitude(header: Header, kind: str, factor: float) -> float:
    """The part of YaRN's magnitude that Mistral 3 cancels: 1 + 0.1 * yarn_log_multiplier * log(factor)."""
    if header.architecture != "mistral3" or kind != "yarn" or factor <= 1:
        return 1.0
    return 1 + 0.1 * optional_number(header, "rope.scaling.yarn_log_multiplier") * log(factor)


def original_context(header: Header) -> int:
    """The context length before RoPE scaling."""
    return count(header, "rope.scaling.original_context_length", header.arch("context_length", 0))


def rope_factors(header: Header, n_ctx: int) -> str | None:
    """The tensor of RoPE's frequency divisors, if any: Llama 3's, or LongRoPE's for a context of n_ctx."""
    if "rope_freqs.weight" in header.tensors:
        return None if header.architecture in WITHOUT_DIVISORS else "rope_freqs.weight"
    pair = "rope_factors_short.weight", "rope_factors_long.weight"
    if not any(tensor in header.tensors for tensor in pair):
        return None
    tensor = pair[n_ctx > original_context(header)]
    return tensor if tensor in header.tensors else None
