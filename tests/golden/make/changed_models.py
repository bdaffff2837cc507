"""Changes of a random model in one place: a key or a kind of tensor less or more, or matrices stored in another way."""

import re
from collections.abc import Callable, Iterator

import numpy as np

from tests.golden.make.gguf_file import GgufFile
from tools.gguf_writer import Value

Change = Callable[[GgufFile], None]
Shape = Callable[[np.ndarray], tuple[int, ...]]

SEED = 1
QKV = ("attn_q", "attn_k", "attn_v")
JOINED = [(QKV, "attn_qkv", 0), (("ffn_gate", "ffn_up"), "ffn_up", 0)]
JOINED += [(("ffn_gate_exps", "ffn_up_exps"), "ffn_gate_up_exps", 1)]
NORMS = ["attn_norm", "attn_norm_2", "attn_output_norm", "post_attention_norm"]
NORMS += ["ffn_norm", "post_ffw_norm", "layer_output_norm"]


def kind(tensor: str) -> str:
    """A tensor's name without its layer."""
    return re.sub(r"blk\.\d+\.", "", tensor)


def unchanged(file: GgufFile) -> None:
    """Change nothing."""


def all_of(*changes: Change) -> Change:
    def change(file: GgufFile) -> None:
        for one in changes:
            one(file)

    return change


# -- metadata ---------------------------------------------------------------------------------------------------------


def without_key(key: str) -> Change:
    def change(file: GgufFile) -> None:
        file.metadata = [(name, value) for name, value in file.metadata if name != key]

    return change


def with_key(key: str, value: Value) -> Change:
    def change(file: GgufFile) -> None:
        name = f"{file.architecture}.{key}"
        without_key(name)(file)
        file.metadata.append((name, value))

    return change


# -- tensors ----------------------------------------------------------------------------------------------------------


def without_tensors(name: str) -> Change:
    def change(file: GgufFile) -> None:
        file.tensors = {tensor: data for tensor, data in file.tensors.items() if kind(tensor) != name}

    return change


def with_divisors(file: GgufFile) -> None:
    """Add divisors of the rotation's frequencies. llama.cpp ignores them for some architectures that may have them."""
    count = dict(file.metadata)[f"{file.architecture}.rope.dimension_count"]
    assert isinstance(count, int)
    file.tensors["rope_freqs.weight"] = np.linspace(1, 8, count // 2, dtype=np.float32)


def with_tensors(name: str, beside: str, shape: Shape, mean: float = 0.0) -> Change:
    """Add a tensor beside each of the kind `beside`, whose array gives the shape."""

    def change(file: GgufFile) -> None:
        random = np.random.default_rng(SEED)
        for tensor, data in list(file.tensors.items()):
            if kind(tensor) == beside:
                values = mean + 0.2 * random.standard_normal(shape(data))
                file.constant(tensor.removesuffix(beside) + name, values)

    return change


def with_biases(*matrices: str) -> Change:
    """Add biases of the results of `matrices`."""
    return all_of(*(with_tensors(f"{name}.bias", f"{name}.weight", _outputs) for name in matrices))


def with_scales(*matrices: str) -> Change:
    """Store matrices divided by scales, which are beside them; those of experts have one each."""

    def change(file: GgufFile) -> None:
        random = np.random.default_rng(SEED)
        for tensor, data in list(file.tensors.items()):
            if kind(tensor).removesuffix(".weight") in matrices:
                count = len(data) if data.ndim == 3 else 1
                scales = random.uniform(1e-4, 3e-4, count).astype(np.float32)
                file.tensors[tensor] = data / scales.reshape(-1, *[1] * (data.ndim - 1))
                file.constant(tensor.removesuffix("weight") + "scale", scales)

    return change


def _outputs(matrix: np.ndarray) -> tuple[int, ...]:
    return matrix.shape[:-1]


def joined(parts: tuple[str, ...], whole: str, axis: int) -> Change:
    """Store matrices that have the same inputs as one, and their biases, too."""

    def change(file: GgufFile) -> None:
        for suffix in (".weight", ".bias"):
            for tensor in [name for name in file.tensors if kind(name) == parts[0] + suffix]:
                prefix = tensor.removesuffix(parts[0] + suffix)
                names = [prefix + part + suffix for part in parts]
                if all(name in file.tensors for name in names):
                    arrays = [file.tensors.pop(name) for name in names]
                    file.tensors[prefix + whole + suffix] = np.concatenate(arrays, axis if suffix == ".weight" else -1)
                    file.float32 |= {prefix + whole + suffix} if suffix == ".bias" else set()

    return change


def additions(file: GgufFile) -> Iterator[tuple[str, Change]]:
    """Tensors that files of some architectures have, and other ways to store the file's matrices."""
    kinds: dict[str, np.ndarray] = {}
    for tensor, data in file.tensors.items():
        kinds.setdefault(kind(tensor), data)
    for parts, whole, axis in JOINED:
        if all(f"{part}.weight" in kinds for part in parts):
            yield f"with joined {whole}", joined(parts, whole, axis)
            yield f"with biases of {', '.join(parts)}", with_biases(*parts)
    for name in kinds:
        bias = name.removesuffix("weight") + "bias"
        if name.endswith(".weight") and bias not in kinds and "embd.weight" not in name:
            yield f"with {bias}", with_tensors(bias, name, lambda a: a.shape if a.ndim == 1 else a.shape[:-1])
    if "output.weight" not in kinds:
        yield "with output.weight", with_tensors("output.weight", "token_embd.weight", np.shape)
    if "ffn_gate_inp.weight" in kinds:
        yield "with exp_probs_b", with_tensors("exp_probs_b.bias", "ffn_gate_inp.weight", lambda a: a.shape[:1])
    yield from _of_attention(file, kinds)


def _of_attention(file: GgufFile, kinds: dict[str, np.ndarray]) -> Iterator[tuple[str, Change]]:
    heads = dict(file.metadata).get(f"{file.architecture}.attention.head_count")
    out = "attn_output.weight"
    if not isinstance(heads, int) or out not in kinds:
        return
    yield "with attn_sinks", with_tensors("attn_sinks.weight", out, lambda a: (heads,))
    yield "with attn_gate of heads", with_tensors("attn_gate.weight", out, lambda a: (heads, len(a)))
    yield "with attn_gate of values", with_tensors("attn_gate.weight", out, lambda a: a.shape[::-1])
    yield "with attn_sub_norm", with_tensors("attn_sub_norm.weight", out, lambda a: a.shape[1:], 1.0)
    for name in NORMS:
        if f"{name}.weight" not in kinds:
            yield f"with {name}", with_tensors(f"{name}.weight", out, lambda a: a.shape[:1], 1.0)
    if "attn_k.weight" in kinds and "attn_k_norm.weight" not in kinds:
        size = kinds[out].shape[1] // heads
        shapes: dict[str, Shape] = {
            "of a head": lambda a: (size,),
            "of each head": lambda a: (len(a) // size, size),
            "across heads": lambda a: a.shape[:1],
        }
        for what, shape in shapes.items():
            both = (with_tensors(f"attn_{part}_norm.weight", f"attn_{part}.weight", shape, 1.0) for part in "qk")
            yield f"with norms {what}", all_of(*both)
