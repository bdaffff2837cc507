"""Wisp Mini's weights for the training, and the trained weights as GGUF files.

python export.py weights ../../../../static/models/wisp-mini-q8_0.gguf mini.npz
python export.py model ../../../../static/models/wisp-mini-q4_0.gguf weights ../../../../static/models
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType as Q

NAME, PROJECTOR = "wisp-mini-sees-q4_0.gguf", "mmproj-wisp-mini-sees-q8_0.gguf"
BLOCKS = 6  # of the encoder that are computed; the type "mlp" leaves the last one of the file out
ABOUT = (
    "Wisp Mini with eyes: answers questions about simple drawings, numbers, short words and bar charts. Trained from "
    "scratch on pictures that a program drew."
)


def weights(model: Path, out: Path) -> None:
    """Write the weights of a GGUF as float16 arrays by name."""
    reader = gguf.GGUFReader(model)
    np.savez(out, **{t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float16) for t in reader.tensors})


def text_model(like: Path, trained: Any, out: Path) -> None:
    """Write the text model with the metadata and the tensor types of Wisp Mini's file."""
    reader = gguf.GGUFReader(like)
    writer = gguf.GGUFWriter(out, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = {"general.name": "Wisp Mini Sees", "general.description": ABOUT}.get(field.name, field.contents())
        sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], sub)
    for tensor in reader.tensors:
        _add(writer, tensor.name, trained[tensor.name].astype(np.float32), tensor.tensor_type)
    _finish(writer)


def projector(trained: Any, out: Path) -> None:
    """Write the encoder as a projector of the type "mlp": matrices in Q8_0, all else in F32."""
    writer = gguf.GGUFWriter(out, "clip")
    writer.add_name("Wisp Mini Sees, projector")
    writer.add_description(ABOUT)
    writer.add_license("apache-2.0")
    writer.add_author("The Wisp project")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    width, hidden = trained["blocks.0.up.weight"].T.shape
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    for key, value in (
        ("image_size", 128), ("patch_size", 16), ("embedding_length", width), ("feed_forward_length", hidden),
        ("block_count", BLOCKS + 1), ("attention.head_count", 6), ("projection_dim", 256),
    ):  # fmt: skip
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", trained["mean"].tolist())
    writer.add_array("clip.vision.image_std", trained["std"].tolist())
    _add(writer, "v.class_embd", trained["cls"])
    kernel = trained["patch.weight"].reshape(width, 3, 16, 16)
    writer.add_tensor("v.patch_embd.weight", kernel.astype(np.float16))
    _add(writer, "v.position_embd.weight", trained["position"], Q.F32)
    _add_layer(writer, "v.pre_ln", trained, "pre_ln")
    for i in range(BLOCKS + 1):
        source = f"blocks.{min(i, BLOCKS - 1)}."
        unused = i == BLOCKS
        for name, given in (
            ("ln1", "ln1"),
            ("ln2", "ln2"),
            ("attn_out", "out"),
            ("ffn_up", "up"),
            ("ffn_down", "down"),
        ):
            _add_layer(writer, f"v.blk.{i}.{name}", trained, source + given, unused)
        for name, part in zip("qkv", range(3), strict=True):
            rows = slice(part * width, (part + 1) * width)
            for kind in ("weight", "bias"):
                values = trained[f"{source}qkv.{kind}"][rows]
                _add(writer, f"v.blk.{i}.attn_{name}.{kind}", values * (not unused))
    _add_layer(writer, "mm.0", trained, "fc1")
    _add_layer(writer, "mm.2", trained, "fc2")
    _finish(writer)


def _add_layer(writer: Any, name: str, trained: Any, source: str, unused: bool = False) -> None:
    for kind in ("weight", "bias"):
        _add(writer, f"{name}.{kind}", trained[f"{source}.{kind}"] * (not unused))


def _add(writer: Any, name: str, values: Any, type: Q | None = None) -> None:
    kind = type if type is not None else Q.Q8_0 if values.ndim > 1 else Q.F32
    values = np.ascontiguousarray(values, np.float32)
    if kind == Q.F32:
        writer.add_tensor(name, values)
    else:
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def _finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Run one of the two commands."""
    command, first, second, *rest = sys.argv[1:]
    if command == "weights":
        weights(Path(first), Path(second))
    else:
        folder = Path(rest[0])
        trained = {
            name: values for part in range(2) for name, values in np.load(f"{second}/decoder-{part}.npz").items()
        }
        text_model(Path(first), trained, folder / NAME)
        projector(np.load(f"{second}/encoder.npz"), folder / PROJECTOR)


if __name__ == "__main__":
    main()
