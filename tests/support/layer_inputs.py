"""Models for draft models that read hidden states: their files, and the inputs of their layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.golden.make.reference import Reference
from tests.golden.make.reference_attention import KeysValues
from tests.support.cpu_models import GOLDEN
from tools.gguf_writer import add_value, finish

DAMPED = 0.2  # of each layer's output: so a draft, which also sees the token, often is what the model predicts
OUTPUTS = ("attn_output", "ssm_out", "ffn_down", "ffn_down_exps", "ffn_down_shexp")
LAYERS = 4  # of the models
QUIET = 0.01  # factor of the embedding of a token that stands for others


def write_damped(
    base: str, to: Path, dtype: type[np.floating], quiet: int | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Write a golden of LAYERS layers which add little, with matrices of this type; return its fields and tensors.

    `quiet`: a token whose embedding becomes small.
    """
    source = gguf.GGUFReader(GOLDEN / f"{base}.F16.gguf")
    fields = {key: field.contents() for key, field in source.fields.items() if not key.startswith("GGUF.")}
    tensors = {tensor.name: np.array(tensor.data) for tensor in source.tensors}
    arch = str(fields["general.architecture"])
    fields.pop("tokenizer.ggml.token_type", None)
    block = int(fields[f"{arch}.block_count"])
    period = int(fields.get(f"{arch}.full_attention_interval", block))
    for i in range(block, LAYERS):
        prefix = f"blk.{i % period}."
        tensors |= {n.replace(prefix, f"blk.{i}."): data for n, data in tensors.items() if n.startswith(prefix)}
    per_layer = [key for key, value in fields.items() if key.startswith(arch) and _is_list(value, block)]
    fields |= {key: [fields[key][i % block] for i in range(LAYERS)] for key in per_layer}
    fields[f"{arch}.block_count"] = LAYERS
    for name in tensors:
        if name.removesuffix(".weight").removesuffix(".bias").endswith(OUTPUTS):
            tensors[name] = (DAMPED * tensors[name].astype(np.float32)).astype(tensors[name].dtype)
    if quiet is not None:
        tensors["token_embd.weight"][quiet] *= tensors["token_embd.weight"].dtype.type(QUIET)
    tensors = {name: data.astype(dtype) if data.dtype == np.float16 else data for name, data in tensors.items()}
    write_file(to, arch, {key: value for key, value in fields.items() if key != "general.architecture"}, tensors)
    return fields, tensors


def write_file(to: Path, arch: str, fields: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Write a file of an architecture."""
    writer = gguf.GGUFWriter(to, arch)
    for key, value in fields.items():
        add_value(writer, key, value)
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    finish(writer)


def _is_list(value: object, length: int) -> bool:
    return isinstance(value, list) and len(value) == length


class LayerInputs(Reference):
    """Remembers each layer's input."""

    inputs: dict[int, np.ndarray]

    def layer(self, x: np.ndarray, layer: int, shared: dict[int, KeysValues]) -> np.ndarray:
        """The residual stream after a layer."""
        if not layer:
            self.inputs = {}
        self.inputs[layer] = x
        return super().layer(x, layer, shared)
