"""More changes of a random model for campaign.py.

Keys that few architectures read, biases of single matrices, numbers that differ between layers, and values that are
longer or shorter than keys.
"""

from collections.abc import Iterator

import numpy as np

from tests.golden.make.changed_models import QKV, Change, all_of, joined, kind, with_biases, with_key, with_tensors
from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.presets import Settings
from tools.gguf_writer import Value

MORE_KEYS: dict[str, list[Value]] = {
    "rope.scaling.type": ["yarn", "linear"],
    "rope.scaling.factor": [0.0, 2.5],
    "rope.scaling.alpha": [50.0],
    "rope.scaling.yarn_beta_fast": [16.0],
    "rope.scaling.yarn_ext_factor": [0.5],
    "rope.scaling.yarn_attn_factor": [1.2],
    "rope.scaling.original_context_length": [32],
    "rope.scale_linear": [3.0],
    "attention.key_length_swa": [16],
    "attention.value_length_swa": [16],
    "attention.sliding_window": [0, 20],
    "attention.sliding_window_pattern": [0, 1, 3],
    "attention.temperature_scale": [0.1],
    "attention.temperature_length": [8],
    "attention.value_scale": [0.5],
    "router_logit_softcapping": [2.0],
    "expert_group_count": [2],
    "expert_group_used_count": [1],
    "expert_shared_count": [2],
    "moe_every_n_layers": [1, 3],
    "interleave_moe_layer_step": [1, 2],
    "leading_dense_block_count": [1],
    "full_attention_interval": [1, 2],
    "swin_norm": [True],
    "no_rope_layer_interval": [2],
    "use_parallel_residual": [True, False],
    "swiglu_clamp_exp": [[0.5] * 64],
    "swiglu_clamp_shexp": [[0.5] * 64],
    "ssm.dt_b_c_rms": [True],
    "rescale_every_n_layers": [1],
    "token_shift_count": [1],
    "wkv.head_size": [32],  # of 16, llama.cpp leaves out columns where it has SIMD
    "decoder_start_token_id": [3],
    "decoder_block_count": [1],
    "pooling_type": [0, 1, 2, 3],
    "altup.active_idx": [1],
    "activation.sparsity_scale": [[0.5] * 64],
    "vocab_size": [40],
    "context_length": [64],
}


def without_one(name: str, index: int) -> Change:
    """Leave out a tensor in one layer only."""

    def change(file: GgufFile) -> None:
        tensors = [tensor for tensor in file.tensors if kind(tensor) == name]
        del file.tensors[tensors[index % len(tensors)]]

    return change


def rows_of(layer: int, parts: tuple[str, ...], rows: int, axis: int) -> Change:
    """Cut a layer's matrices to a number of rows (axis -2) or columns (axis -1), and their biases."""

    def change(file: GgufFile) -> None:
        for part in parts:
            for name in (f"blk.{layer}.{part}.weight", f"blk.{layer}.{part}.bias"):
                if name in file.tensors and not (axis == -1 and name.endswith("bias")):
                    data = file.tensors[name]
                    file.tensors[name] = np.ascontiguousarray(data.take(range(rows), axis if data.ndim > 1 else 0))

    return change


def narrower_layer(layer: int, width: int, widths: list[int]) -> Change:
    """Give one layer a narrower feed-forward network."""
    return all_of(
        rows_of(layer, ("ffn_gate", "ffn_up"), width, -2),
        rows_of(layer, ("ffn_down",), width, -1),
        with_key("feed_forward_length", list(widths)),
    )


def other_values(heads: int, kv: int, size: int, length: int) -> Change:
    """Make values longer or shorter than keys: attn_v and attn_output repeat or lose columns of each head."""

    def change(file: GgufFile) -> None:
        for name in list(file.tensors):
            part = kind(name).split(".")[0]
            if part in ("attn_v", "attn_output") and not name.endswith("attn_output.bias"):
                axis, count = (-1, heads) if part == "attn_output" else (0, kv)
                columns = np.concatenate([i * size + np.arange(length) % size for i in range(count)])
                file.tensors[name] = np.ascontiguousarray(file.tensors[name].take(columns, axis))

    keys = with_key("attention.key_length", size), with_key("attention.value_length", length)
    return all_of(change, *keys)


def long_factors(file: GgufFile) -> None:
    """Add LongRoPE's divisors of the rotation's frequencies."""
    count = dict(file.metadata)[f"{file.architecture}.rope.dimension_count"]
    assert isinstance(count, int)
    for name, most in (("long", 8), ("short", 2)):
        file.constant(f"rope_factors_{name}.weight", np.linspace(1, most, count // 2))
    with_key("rope.scaling.type", "longrope")(file)
    with_key("rope.scaling.original_context_length", 100)(file)


def output_bias(file: GgufFile) -> None:
    rows = len(file.tensors["token_embd.weight"])
    file.constant("output.bias", np.random.default_rng(1).standard_normal(rows))


def further_changes(file: GgufFile, used: Settings) -> Iterator[tuple[str, Change]]:
    """What each change is, and the function that makes it. `used`: the file's settings."""
    kinds = {kind(tensor): data for tensor, data in file.tensors.items()}
    for key, values in MORE_KEYS.items():
        for value in values:
            yield f"{key} = {value!r:.12}", with_key(key, value)
    for name in kinds:
        if name not in file.tensors:
            yield f"without {name} of the first layer", without_one(name, 0)
            yield f"without {name} of the last layer", without_one(name, -1)
    for part in QKV:
        if f"{part}.weight" in kinds and f"{part}.bias" not in kinds:
            yield f"with {part}.bias alone", with_biases(part)
    if all(f"{part}.weight" in kinds for part in QKV) and "attn_q.bias" not in kinds:
        yield "with joined attn_qkv and single biases", all_of(joined(QKV, "attn_qkv", 0), single_biases(file))
    for name in ("attn_output", "ffn_down", "ffn_up", "ffn_gate"):
        if f"{name}.weight" in kinds and f"{name}.bias" not in kinds:
            yield f"with {name}.bias of its own", with_biases(name)
    yield "with output.bias", output_bias
    if f"{file.architecture}.rope.dimension_count" in dict(file.metadata):
        yield "with rope_factors", long_factors
    yield (
        "with rope_freqs and a norm of token_embd",
        with_tensors("token_embd_norm.weight", "output_norm.weight", np.shape, 1.0),
    )
    yield from _of_layers(file, used, kinds)


def single_biases(file: GgufFile) -> Change:
    """Add biases of queries, keys and values, whether their matrices are joined or not."""
    first = {part: len(file.tensors[f"blk.0.{part}.weight"]) for part in QKV if f"blk.0.{part}.weight" in file.tensors}

    def change(changed: GgufFile) -> None:
        for name in list(changed.tensors):
            if kind(name) == "attn_qkv.weight":
                for part, rows in first.items():
                    values = np.random.default_rng(2).standard_normal(rows) * 0.3
                    changed.constant(name.replace("attn_qkv.weight", f"{part}.bias"), values)

    return change


def _of_layers(file: GgufFile, used: Settings, kinds: dict[str, np.ndarray]) -> Iterator[tuple[str, Change]]:
    layers, metadata = used["n_layer"], dict(file.metadata)
    n_ff = metadata.get(f"{file.architecture}.feed_forward_length")
    if type(n_ff) is int and "ffn_down.weight" in kinds and n_ff > 32:
        widths = [n_ff] * layers
        widths[-1] = n_ff // 2
        yield "a narrower last layer", narrower_layer(layers - 1, n_ff // 2, widths)
    if type(n := metadata.get(f"{file.architecture}.expert_used_count")) is int and n > 1:
        last = with_key("expert_used_count", [n] * (layers - 1) + [n - 1])
        known = file.architecture == "nemotron_h_moe"  # other graphs of llama.cpp mix the first number with each
        yield "fewer experts used in the last layer" + " of Nemotron-H" * known, last
    heads, kv = (metadata.get(f"{file.architecture}.attention.head_count{end}") for end in ("", "_kv"))
    out = kinds.get("attn_output.weight")
    if type(heads) is int and type(kv) is int and out is not None and "attn_v.weight" in kinds and kv:
        size = out.shape[1] // heads
        if len(kinds["attn_v.weight"]) == kv * size:
            yield "shorter values", other_values(heads, kv, size, size // 2)
            yield "longer values", other_values(heads, kv, size, 2 * size)
            yield "values of 12", other_values(heads, kv, size, 12)
