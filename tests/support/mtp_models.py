"""Goldens with a layer for multi-token prediction after their last one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np

from tests.golden.make.reference import Reference
from tests.support.cpu_models import GOLDEN
from tools.gguf_writer import add_value, finish

INDEXED = ("latent/deepseek32-top6", "latent/glm-dsa-top9")  # whose index chooses few of a text's positions
BASES = ("qwen35/qwen35", "experts/glm4moe")
LATENT = ("latent/deepseek2", "latent/deepseek2-joined", "latent/glm-dsa", "latent/deepseek32", *INDEXED)
ALL = (*BASES, "qwen35/qwen35moe", "qwen35/qwen3next", "experts/hy_v3", *LATENT)
DAMPED = 0.3  # of each layer's output: so the MTP layer, which also sees the token, often predicts what the model does
OUTPUTS = ("attn_output", "ssm_out", "ffn_down", "ffn_down_exps", "ffn_down_shexp")


def write(base: str, to: Path) -> None:
    """Write a golden with an MTP layer: its last attention layer, which mostly passes a token's embedding on."""
    source = gguf.GGUFReader(GOLDEN / f"{base}.F16.gguf")
    fields = {key: field.contents() for key, field in source.fields.items() if not key.startswith("GGUF.")}
    arch = str(fields.pop("general.architecture"))
    writer, random = gguf.GGUFWriter(to, arch), np.random.default_rng(7)
    fields.pop("tokenizer.ggml.token_type", None)
    block = int(fields[f"{arch}.block_count"])
    fields |= {f"{arch}.block_count": block + 1, f"{arch}.nextn_predict_layers": 1}
    for key, value in fields.items():
        add_value(writer, key, value)
    tensors: dict[str, np.ndarray] = {tensor.name: np.array(tensor.data) for tensor in source.tensors}
    for name in [name for name in tensors if name.removesuffix(".weight").endswith(OUTPUTS)]:
        tensors[name] = (DAMPED * tensors[name].astype(np.float32)).astype(np.float16)
    last = f"blk.{max(i for i in range(block) if f'blk.{i}.attn_output.weight' in tensors)}."
    tensors |= {name.replace(last, f"blk.{block}."): data for name, data in tensors.items() if name.startswith(last)}
    width = len(tensors["output_norm.weight"])

    def noise(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    joined = np.concatenate([np.eye(width, dtype=np.float32), np.zeros((width, width), np.float32)], axis=1)
    own: dict[str, np.ndarray] = {"eh_proj": (joined + 0.02 * noise(width, 2 * width)).astype(np.float16)}
    own |= {name: 1 + 0.1 * noise(width) for name in ("enorm", "hnorm")}
    own["shared_head_norm"] = tensors["output_norm.weight"] * (1 + 0.05 * noise(width))
    tensors |= {f"blk.{block}.nextn.{name}.weight": data for name, data in own.items()}
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    finish(writer)


class MtpReference:
    """What the model and its MTP layer compute, in float64 (DeepSeek-V3's report, 2.2)."""

    def __init__(self, path: Path) -> None:
        self.model = Reference(path)
        self.block = self.model.n_layer - 1
        self.model.kv_heads[self.block] = max(self.model.kv_heads)

    def drafts(self, ids: Sequence[int], drafted: Sequence[int]) -> np.ndarray:
        """The logits (1 + len(drafted), vocab) after `ids`, and after each of some drafted tokens."""
        model, name = self.model, f"blk.{self.block}.nextn."
        model.n_layer = self.block
        states = model.hidden(ids)
        model.n_layer = self.block + 1
        states = np.concatenate([np.zeros((1, model.width)), states[:-1]])  # before each token
        logits = []
        for end in range(len(ids), len(ids) + len(drafted) + 1):
            embedded = model.tensors["token_embd.weight"][[*ids, *drafted][:end]]
            joined = [model.norm(embedded, name + "enorm"), model.norm(states, name + "hnorm")]
            x = model.layer(model.linear(np.concatenate(joined, axis=1), name + "eh_proj"), self.block, {})
            own = model.norm(x, name + "shared_head_norm")[-1:]
            logits.append(model.linear(own, "output")[0])
            states = np.concatenate([states, own])
        return np.stack(logits)
