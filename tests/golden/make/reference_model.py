"""A GGUF's metadata and float64 weights, with the arithmetic that all layers share."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.golden.make.tensor_types import dequantize

KNOWN = {
    *("llama", "arcee", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "gemma4", "phi3"),
    *("olmo2", "olmoe", "granite", "granitemoe", "starcoder2", "gpt2", "stablelm", "phi2", "gptneox", "smollm3"),
    *("cohere2", "command-r", "falcon", "exaone", "glm4", "gpt-oss", "lfm2", "gemma-embedding", "bert"),
    *("nomic-bert", "nomic-bert-moe", "jina-bert-v2", "modern-bert", "plamo"),
    *("granitehybrid", "qwen35", "qwen35moe", "qwen3next", "mamba2", "nemotron_h", "nemotron_h_moe", "falcon-h1"),
    *("mamba", "jamba"),
}
KNOWN |= {"ernie4_5", "internlm2", "xverse", "mistral3", "minicpm", "chatglm", "qwen", "seed_oss", "exaone4", "qwen2vl"}
KNOWN |= {
    "hunyuan_vl",
    "hunyuan-dense",
    "maincoder",
    "apertus",
    "olmo",
    "refact",
    "bloom",
    "mpt",
    "jais",
    "jais2",
    "bitnet",
}
KNOWN |= {"ernie4_5-moe", "bailingmoe", "bailingmoe2", "deepseek", "phimoe", "lfm2moe", "qwen3vlmoe", "glm4moe"}
KNOWN |= {"paddleocr", "dots1", "hunyuan-moe", "minimax-m2", "exaone-moe", "afmoe", "smallthinker", "dbrx"}
KNOWN |= {"eurobert", "neo-bert", "llama-embed", "plamo3", "grovemoe", "kimi-linear", "plamo2"}
KNOWN |= {"openelm", "jina-bert-v3", "baichuan", "deepseek2", "mistral4", "plm", "minicpm3", "glm-dsa"}
KNOWN |= {"t5", "t5encoder", "step35", "rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7"}
KNOWN |= {"gemma3n", "llama4", "deci", "arctic", "grok", "mimo2"}
KNOWN |= {"qwen3vl", "orion", "nemotron", "starcoder", "codeshell", "pangu-embedded"}
KNOWN |= {"mellum", "maple", "spark2_5", "muse-glimmer", "hy_v3", "granite_swa", "deepseek32", "nanbeige"}
KNOWN |= {
    "cohere2moe",
    "laguna",
    "gemma-embedding2",
    "k2-horizon",
    "talkie",
    "bailingmoe3",
    "hrm_text",
    "graniteswitch",
    "minimax-01",
    "dots3note",
    "deepseek2-ocr",
    "cogvlm",
    "minimax-m3",
    "chameleon",
    "hy_v4",
    "kimi-k3",
    "qwen4exp",
    "glm5-next",
    "deepseek4",
}
BANNED = -1e30  # the logit of a token that is never sampled: Wisp's, in place of llama.cpp's, float32's lowest
PLAIN_NORMS = {"olmo", "talkie", "hrm_text"}  # whose norms of layers have no weights
DIFFUSION = {"dream", "llada", "llada-moe", "rnd1"}
KNOWN |= DIFFUSION
# Period of the layers with a sliding window. The last layer of each period has none; of FULL_FIRST the first.
WINDOW_PERIOD = {"gemma2": 2, "gemma3": 6, "gemma-embedding": 6, "olmo2": 4, "cohere2": 4, "gpt-oss": 2}
WINDOW_PERIOD |= {"plamo3": 8, "modern-bert": 3, "gemma4": 6, "gemma3n": 5, "exaone-moe": 4, "afmoe": 4}
WINDOW_PERIOD |= {"smallthinker": 4, "llama4": 4, "mellum": 4, "muse-glimmer": 4, "cohere2moe": 4, "laguna": 4}
WINDOW_PERIOD |= {"gemma-embedding2": 6}
# The metadata says it for each layer:
WINDOW_PERIOD |= dict.fromkeys(("step35", "mimo2", "maple", "spark2_5", "granite_swa", "dots3note"), 0)
BIDIRECTIONAL = {"gemma-embedding", "gemma-embedding2"}  # whatever the metadata says
FULL_FIRST = {"modern-bert", "smallthinker", "cohere2moe", "laguna"}
# MiniCPM's scales where the metadata has none, by layers and width.
MINICPM: dict[str, Callable[[int, int], float]] = {
    "embedding_scale": lambda layers, width: 12.0,
    "residual_scale": lambda layers, width: 1.4 / math.sqrt(layers),
    "logit_scale": lambda layers, width: 256 / width,
}


LLAMA4_CHUNK = 8192  # positions of a chunk of attention; the layers without chunks have a temperature from there on


# Grok's where the metadata has none.
GROK = {
    **{"embedding_scale": 78.38367176906169, "logit_scale": 0.5773502691896257},
    **{"attention.output_scale": 0.08838834764831845, "attn_logit_softcapping": 30.0},
}


class UnsupportedArchitecture(Exception):
    """The reference does not state this architecture."""


def silu(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / (1 + np.exp(-x)))


def gelu(x: np.ndarray) -> np.ndarray:
    """The tanh approximation, which llama.cpp uses everywhere, also for BERT."""
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x))))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def shard_paths(path: Path) -> list[Path]:
    """Every file of a split GGUF (name-00001-of-0000N.gguf), or the one file."""
    split = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", path.name)
    if not split:
        return [path]
    count = int(split[2])
    return [path.with_name(f"{split[1]}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1)]


class ReferenceModel:
    """Metadata and dequantized weights of a file."""

    def __init__(self, path: Path, n_ctx: int = 256) -> None:
        shards = [gguf.GGUFReader(shard) for shard in shard_paths(path)]
        fields = shards[0].fields.items()
        self.metadata = {k: f.contents() for k, f in fields if not k.startswith(("GGUF.", "tokenizer."))}
        self.architecture: str = self.metadata["general.architecture"]
        if self.architecture not in KNOWN:
            raise UnsupportedArchitecture(self.architecture)
        self.tensors: dict[str, np.ndarray] = {
            tensor.name: dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
            for shard in shards
            for tensor in shard.tensors
        }
        if self.architecture != "gemma4":  # whose scales are of other things
            for name in [name for name in self.tensors if name.endswith(".scale")]:
                matrix, scales = name.removesuffix("scale") + "weight", self.tensors.pop(name)
                self.tensors[matrix] = self.tensors[matrix] * scales.reshape(-1, *[1] * (self.tensors[matrix].ndim - 1))
        self.n_ctx = n_ctx  # LongRoPE's long factors apply iff this exceeds the original context
        self.adapters: np.ndarray | None = None  # the adapter of each token, of Granite Switch
        self.hidden_positions: np.ndarray | None = None  # that the last index has not chosen for each token
        self.index_margin = math.inf  # smallest gap between a chosen and another position's score so far, in deviations
        self.route_margin = math.inf  # smallest gap between a chosen and a rejected expert's router logits so far
        self.n_layer: int = self.key("block_count")
        self.width: int = self.key("embedding_length")
        heads = self.key("attention.head_count")
        self.layer_heads: list[int] = heads if isinstance(heads, list) else [heads] * self.n_layer
        self.heads = max(self.layer_heads)
        kv_heads = self.key("attention.head_count_kv", self.heads)
        self.kv_heads: list[int] = kv_heads if isinstance(kv_heads, list) else [kv_heads] * self.n_layer
        rms = self.key("attention.layer_norm_rms_epsilon")
        self.subtracts_mean = rms is None
        self.epsilon: float = rms if rms is not None else self.key("attention.layer_norm_epsilon")
        if self.key("full_attention_interval") or "blk.0.ssm_alpha.weight" in self.tensors:
            every = self.key("full_attention_interval", 4)
            self.kv_heads = [n if (i + 1) % every == 0 else 0 for i, n in enumerate(self.kv_heads)]
        self.causal = self.key("attention.causal", True) and self.architecture not in {*BIDIRECTIONAL, *DIFFUSION}
        # llama.cpp ignores Phi-3's window.
        self.window: int = 0 if self.architecture == "phi3" else self.key("attention.sliding_window", 0)
        if self.architecture == "llama4":
            self.window = LLAMA4_CHUNK
        self.experts: int = self.key("expert_count", 0)
        self.experts_used: int | list[int] = self.key("expert_used_count", 0)

    def key(self, name: str, default: Any = None) -> Any:
        """Metadata of this architecture."""
        if self.architecture in ("minicpm", "minicpm3") and name in MINICPM:
            default = MINICPM[name](self.n_layer, self.width)
        if self.architecture == "grok":
            default = GROK.get(name, default)
        return self.metadata.get(f"{self.architecture}.{name}", default)

    def windowed(self, layer: int) -> bool:
        """Does the layer attend to a sliding window only?"""
        if not self.window or self.architecture not in WINDOW_PERIOD:
            return False
        pattern = self.key("attention.sliding_window_pattern", WINDOW_PERIOD[self.architecture])
        if isinstance(pattern, list):
            return bool(pattern[layer])
        if self.architecture in FULL_FIRST:
            return bool(layer % pattern)
        return bool(pattern == 0 or layer % pattern < pattern - 1)

    def head_dim(self, layer: int) -> int:
        key = "attention.key_length"
        if self.architecture in ("gemma4", "gemma-embedding2") and self.windowed(layer):
            key += "_swa"
        return int(self.key(key, self.width // self.heads))

    def normalize(self, x: np.ndarray) -> np.ndarray:
        """Scale the last axis to a mean square of 1, for LayerNorm after subtracting the mean."""
        if self.subtracts_mean:
            x = x - x.mean(-1, keepdims=True)
        return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon))

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        """Normalize, then apply the norm's weight and, where present, its bias."""
        groups = self.key("attention.group_norm_groups", 1)
        y = self.normalize(x.reshape(len(x), groups, -1)).reshape(x.shape) if groups > 1 else self.normalize(x)
        if self.architecture in PLAIN_NORMS:
            return y
        weight = self.tensors.get(name)  # Falcon-H1's
        y = y * (self.tensors[name + ".weight"] if weight is None else weight)
        return np.asarray(y + self.tensors[name + ".bias"]) if name + ".bias" in self.tensors else y

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        y = x @ self.tensors[name + ".weight"].T
        if self.adapters is not None:
            y = y + self.switched(x, name)
        return np.asarray(y + self.tensors[name + ".bias"]) if name + ".bias" in self.tensors else y

    def switch(self, ids: np.ndarray) -> np.ndarray:
        """Find each token's adapter: the mean of the numbers of control tokens so far. Return what is embedded."""
        control, gain = self.key("adapters.token_ids_activate"), self.key("adapters.router_gain", 15.0)
        numbers = np.array([control.index(token) + 1 if token in control else 0 for token in ids])
        weights = np.exp(np.where(numbers > 0, gain, -gain))
        means = np.cumsum(weights * numbers) / np.cumsum(weights)
        self.adapters = np.floor(means.astype(np.float32) + 0.5).astype(int)  # halves round up, as in float32
        substitutes = np.array([0, *self.key("adapters.token_ids_substitute")])
        return np.where(numbers > 0, substitutes[numbers], ids)

    def switched(self, x: np.ndarray, name: str) -> np.ndarray | float:
        """What each token's adapter adds to a product."""
        prefix, _, matrix = name.rpartition(".")
        parts = ("attn_q", "attn_k", "attn_v") if matrix == "attn_qkv" else (matrix,)
        if f"{prefix}.{parts[0]}.lora_a" not in self.tensors:
            return 0.0
        found = []
        for part in parts:
            a, b = (self.tensors[f"{prefix}.{part}.lora_{kind}"][self.adapters] for kind in "ab")
            found.append(np.einsum("nor,nr->no", b, np.einsum("nri,ni->nr", a, x)))
        return np.concatenate(found, axis=1)
