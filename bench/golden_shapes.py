"""Write a GGUF of an architecture that make_model.py lacks: a golden's tensors in the sizes of a real model.

python -m bench.golden_shapes qwen3.5-0.8b out.gguf [--type Q4_K_M] [--mtp]

Random weights: speed does not depend on their values. All matrices are Q4_0, or in llama.cpp's mix for Q4_K_M; MXFP4 is
gpt-oss's: the experts in MXFP4, all else in Q8_0. Fewer layers than the real model has where the name ends with their
number. With --mtp, the model has a layer for multi-token prediction that mostly agrees
with it: what the layers add is damped, so that both predict by the newest token.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType

from bench.make_model import Weights, add_tokenizer
from bench.shapes import FALLBACK, MIXES, gets_better
from py_engine.files.tensor_types import BLOCK_SIZES
from py_engine.files.tensor_types import TensorType as Q
from tests.golden.make import random_models
from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.presets import settings
from tools.gguf_writer import add_value, finish

# name -> (preset of the goldens, settings)
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3.5-0.8b": (
        "qwen35",
        {
            **{"n_layer": 24, "n_embd": 1024, "n_ff": 3584, "n_head": 8, "n_kv": 2, "head_dim": 256, "vocab": 248320},
            **{"d_conv": 4, "d_state": 128, "ssm_groups": 16, "ssm_heads": 16, "d_inner": 2048},
            **{"rope_dim": 64, "sections": [11, 11, 10, 0]},
        },
    ),
    "qwen3.5-4b": (
        "qwen35",
        {
            **{"n_layer": 32, "n_embd": 2560, "n_ff": 9216, "n_head": 16, "n_kv": 4, "head_dim": 256, "vocab": 248320},
            **{"d_conv": 4, "d_state": 128, "ssm_groups": 16, "ssm_heads": 32, "d_inner": 4096},
            **{"rope_dim": 64, "sections": [11, 11, 10, 0]},
        },
    ),
    "lfm2-1.2b": (
        "lfm2",
        {"n_layer": 16, "n_embd": 2048, "n_ff": 8192, "n_head": 32, "n_kv": 8, "head_dim": 64, "vocab": 65536},
    ),
    "nemotron-h-4b": (
        "nemotron_h",
        {
            **{"n_layer": 52, "n_embd": 3072, "n_ff": 12288, "n_head": 32, "n_kv": 8, "head_dim": 128},
            **{"vocab": 131072, "d_inner": 7168, "d_state": 128, "ssm_heads": 112, "ssm_groups": 8},
            **{"layers": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"},
        },
    ),
    "gemma-3n-e2b": (
        "gemma3n",
        {
            **{"n_layer": 30, "n_embd": 2048, "n_ff": 8192, "n_head": 8, "n_kv": 2, "head_dim": 256},
            **{"vocab": 262144, "window": 512, "eps": 1e-6, "tok": "bpe"},
        },
    ),
    "gemma-4-e2b": (
        "gemma4",
        {
            **{"n_layer": 35, "n_embd": 1536, "n_ff": 6144, "n_head": 8, "n_kv": 1, "head_dim": 256, "vocab": 262144},
            **{"window": 512, "period": 5, "pl": 256, "shared": 20, "eps": 1e-6, "tok": "bpe"},
        },
    ),
    "gemma-2-2b": (
        "gemma2",
        {
            **{"n_layer": 26, "n_embd": 2304, "n_ff": 9216, "n_head": 8, "n_kv": 4, "head_dim": 256, "vocab": 256000},
            **{"window": 4096, "attn_cap": 50.0, "final_cap": 30.0, "tok": "bpe"},
        },
    ),
    "phi-4-mini": (
        "phi3",
        {
            **{"n_layer": 32, "n_embd": 3072, "n_ff": 8192, "n_head": 24, "n_kv": 8, "head_dim": 128},
            **{"vocab": 200064, "rope_dim": 96, "tok": "bpe", "tied": True},
        },
    ),
    "gpt-oss-20b-12": (
        "gpt-oss",
        {
            **{"n_layer": 12, "n_embd": 2880, "n_ff": 2880, "n_head": 64, "n_kv": 8, "head_dim": 64},
            **{"vocab": 201088, "window": 128, "n_expert": 32, "n_used": 4},
        },
    ),
    "olmoe-1b-7b": (
        "olmoe",
        {
            **{"n_layer": 16, "n_embd": 2048, "n_ff": 1024, "n_head": 16, "n_kv": 16, "head_dim": 128},
            **{"vocab": 50304, "n_expert": 64, "n_used": 8},
        },
    ),
    "mixtral-8x7b-4": (
        "mixtral",
        {
            **{"n_layer": 4, "n_embd": 4096, "n_ff": 14336, "n_head": 32, "n_kv": 8, "head_dim": 128},
            **{"vocab": 32000, "n_expert": 8, "n_used": 2, "rope_base": 1e6},
        },
    ),
    "qwen1.5-moe-a2.7b-8": (
        "qwen2moe",
        {
            **{"n_layer": 8, "n_embd": 2048, "n_ff": 1408, "n_head": 16, "n_kv": 16, "head_dim": 128},
            **{"vocab": 151936, "n_expert": 60, "n_used": 4, "n_ff_shexp": 5632},
        },
    ),
    "granite-4-h-tiny-16": (
        "granitehybrid-moe",
        {
            **{"n_layer": 16, "n_embd": 1536, "n_head": 12, "n_kv": 4, "head_dim": 128, "vocab": 100352},
            **{"n_expert": 64, "n_used": 6, "n_ff": 512, "n_ff_shexp": 1024, "attention_layers": [5, 15]},
            **{"d_conv": 4, "d_inner": 3072, "d_state": 128, "ssm_heads": 48, "ssm_groups": 1},
        },
    ),
    "deepseek-v2-lite-9": (
        "mistral4",
        {
            **{"arch": "deepseek2", "n_layer": 9, "n_embd": 2048, "n_head": 16, "n_kv": 1, "vocab": 102400},
            **{"kv_rank": 512, "q_rank": 768, "nope": 128, "rope_dim": 64, "v_dim": 128},
            **{
                "lead": 1,
                "n_ff_dense": 10944,
                "n_ff": 1408,
                "n_shared": 2,
                "n_ff_shexp": 2816,
                "n_expert": 64,
                "n_used": 6,
            },
        },
    ),
}
TYPES = ("Q4_0", "Q8_0", "Q4_K_M", "MXFP4")
CONTEXT = 32768  # tokens
DAMPED = 1 / 32  # of the scales of the matrices whose products layers add: halves that are still normal numbers
HEAD_NORMS = ("attn_q_norm.weight", "attn_k_norm.weight")
OUTPUTS = ("attn_output", "ssm_out", "ffn_down", "ffn_down_exps", "ffn_down_shexp")


class Shapes(GgufFile):
    """Collects the shapes of matrices in place of their values."""

    def __init__(self, architecture: str, type: str, layers: int) -> None:
        """`type`: one of TYPES."""
        super().__init__(architecture, seed=1)
        self.shapes: dict[str, tuple[tuple[int, ...], Q]] = {}
        self._type, self._layers = type, layers

    def matrix(
        self, name: str, *shape: int, gain: float = 1.0, std: float | None = None, float32: bool = False
    ) -> None:
        self.shapes[name] = shape, Q.F32 if float32 else self._type_of(name, shape[-1])

    def _type_of(self, name: str, columns: int) -> Q:
        if self._type == "MXFP4":
            found = Q.MXFP4 if "_exps." in name else Q.Q8_0
        elif self._type in MIXES:
            low, high = MIXES[self._type]
            found = high if gets_better(name, self._layers) else low
        else:
            found = Q[self._type]
        if columns % BLOCK_SIZES[found][0]:
            found = FALLBACK.get(found, Q.F16)
        return found if columns % BLOCK_SIZES[found][0] == 0 else Q.F16


def add_mtp(file: Shapes, arch: str) -> None:
    """Add a layer for multi-token prediction: the shapes of the last attention layer, and a projection of the token."""
    known, width = dict(file.metadata), len(file.tensors["output_norm.weight"])
    block = int(str(known[f"{arch}.block_count"]))
    known |= {f"{arch}.block_count": block + 1, f"{arch}.nextn_predict_layers": 1}
    file.metadata = list(known.items())
    last = f"blk.{max(i for i in range(block) if f'blk.{i}.attn_output.weight' in file.shapes)}."
    own = f"blk.{block}."
    file.shapes |= {name.replace(last, own): value for name, value in file.shapes.items() if name.startswith(last)}
    file.tensors |= {name.replace(last, own): value for name, value in file.tensors.items() if name.startswith(last)}
    for norm in ("enorm", "hnorm", "shared_head_norm"):
        file.tensors[f"{own}nextn.{norm}.weight"] = np.ones(width, np.float32)
    file.tensors[f"{own}nextn.eh_proj.weight"] = np.eye(width, 2 * width, dtype=np.float32)


def damped(blocks: np.ndarray) -> np.ndarray:
    """Rows of Q4_0 with smaller scales. uint8 (..., bytes of a row)."""
    found = blocks.reshape(-1, 18).copy()
    found[:, :2] = (found[:, :2].view(np.float16) * np.float16(DAMPED)).view(np.uint8)
    return found.reshape(blocks.shape)


def write(shape: str, path: str, type: str = "Q4_0", mtp: bool = False, layers: int | None = None) -> None:
    """Write the file of one of SHAPES. `layers`: only so many."""
    preset, sizes = SHAPES[shape]
    used = settings(preset, ctx=CONTEXT, **sizes | ({"n_layer": layers} if layers else {}))
    file = Shapes(used["arch"], type, used["n_layer"])
    random_models.fill(file, used)
    if mtp:
        add_mtp(file, used["arch"])
    writer, weights = GGUFWriter(path, used["arch"]), Weights(1.0)
    writer.add_name(f"{shape} {type}, random weights")
    for key, value in dict(file.metadata).items():
        add_value(writer, key, value)
    add_tokenizer(writer, used["vocab"])
    for name, (dimensions, type_) in file.shapes.items():
        data = weights.of(name, dimensions, type_)
        if mtp and type_ == Q.Q4_0 and name.removesuffix(".weight").endswith(OUTPUTS):
            data = damped(data)
        writer.add_tensor(name, data, raw_dtype=None if type_ in (Q.F32, Q.F16) else GGMLQuantizationType(type_))
    for name, values in file.tensors.items():
        unscaled = used["arch"] == "gemma4" and name.endswith(HEAD_NORMS)  # a trained norm has the scale of the scores
        writer.add_tensor(name, (values * len(values) ** -0.25 if unscaled else values).astype(np.float32))
    finish(writer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("path")
    parser.add_argument("--type", default="Q4_0", choices=TYPES)
    parser.add_argument("--mtp", action="store_true", help="add a layer for multi-token prediction")
    parser.add_argument("--layers", type=int, help="use only so many")
    options = parser.parse_args()
    if options.mtp and options.type != "Q4_0":
        parser.error("--mtp needs --type Q4_0.")
    write(options.shape, options.path, options.type, options.mtp, options.layers)


if __name__ == "__main__":
    main()
