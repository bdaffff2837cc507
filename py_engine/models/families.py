"""Which module computes which of llama.cpp's architectures.

A module is imported when a model needs it: importing all takes a quarter of the time that the engine's imports take.
tests/unit/test_families.py checks that each is a Decoder or an Architecture (architecture.py).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models.architecture import Architecture, Decoder
from py_engine.models.missing import NEEDS

DECODERS: dict[str, str] = {
    "afmoe": "afmoe",
    "apertus": "apertus",
    "arcee": "llama",
    "arctic": "arctic",
    "arwkv7": "rwkv",
    "baichuan": "llama",
    "bailingmoe": "llama",
    "bailingmoe2": "qwen",
    "bailingmoe3": "bailing3",
    "bitnet": "bitnet",
    "bloom": "bloom",
    "chameleon": "chameleon",
    "chatglm": "glm4",
    "codeshell": "gpt2",
    "cogvlm": "cogvlm",
    "cohere2": "cohere",
    "cohere2moe": "cohere2moe",
    "command-r": "cohere",
    "dbrx": "gpt2",
    "deci": "deci",
    "deepseek": "llama",
    "deepseek2": "deepseek2",
    "deepseek2-ocr": "deepseek_ocr",
    "deepseek32": "glm_dsa",
    "deepseek4": "deepseek4",
    "dots1": "qwen",
    "dots3note": "dots3",
    "dream": "qwen",
    "ernie4_5": "llama",
    "ernie4_5-moe": "llama",
    "exaone": "exaone",
    "exaone-moe": "exaone",
    "exaone4": "exaone",
    "falcon": "falcon",
    "falcon-h1": "falcon_h1",
    "gemma": "gemma",
    "gemma-embedding": "gemma",
    "gemma2": "gemma",
    "gemma3": "gemma",
    "gemma3n": "gemma3n",
    "gemma4": "gemma4",
    "glm-dsa": "glm_dsa",
    "glm4": "glm4",
    "glm4moe": "qwen",
    "glm5-next": "glm5_next",
    "gpt-oss": "gpt_oss",
    "gpt2": "gpt2",
    "gptneox": "gpt2",
    "granite": "granite",
    "granite_swa": "granite",
    "granitehybrid": "granite",
    "granitemoe": "granite",
    "graniteswitch": "granite_switch",
    "grok": "grok",
    "grovemoe": "grovemoe",
    "hrm_text": "hrm_text",
    "hunyuan-dense": "qwen",
    "hunyuan-moe": "qwen",
    "hunyuan_vl": "qwen",
    "hy_v3": "qwen",
    "hy_v4": "hy_v4",
    "internlm2": "llama",
    "jais": "bloom",
    "jais2": "gpt2",
    "jamba": "jamba",
    "k2-horizon": "k2_horizon",
    "kimi-k3": "kimi_k3",
    "kimi-linear": "kimi_linear",
    "laguna": "laguna",
    "lfm2": "lfm2",
    "lfm2moe": "lfm2",
    "llada": "llama",
    "llada-moe": "qwen",
    "llama": "llama",
    "llama4": "llama4",
    "maincoder": "llama",
    "minicpm": "granite",
    "mamba": "mamba",
    "mamba2": "mamba",
    "maple": "maple",
    "mellum": "olmo2",
    "mimo2": "mimo2",
    "minicpm3": "minicpm3",
    "minimax-01": "minimax01",
    "minimax-m2": "qwen",
    "minimax-m3": "minimax_m3",
    "mistral3": "llama",
    "mistral4": "deepseek2",
    "mpt": "bloom",
    "muse-glimmer": "muse_glimmer",
    "nanbeige": "nanbeige",
    "nemotron": "gpt2",
    "nemotron_h": "nemotron_h",
    "nemotron_h_moe": "nemotron_h",
    "olmo": "olmo",
    "olmo2": "olmo2",
    "olmoe": "qwen",
    "openelm": "openelm",
    "orion": "stablelm",
    "paddleocr": "qwen",
    "pangu-embedded": "qwen",
    "phi2": "gpt2",
    "phi3": "phi3",
    "phimoe": "phi3",
    "plamo": "plamo",
    "plamo2": "plamo2",
    "plamo3": "plamo",
    "plm": "deepseek2",
    "qwen": "qwen",
    "qwen2": "qwen",
    "qwen2moe": "qwen",
    "qwen2vl": "qwen",
    "qwen3": "qwen",
    "qwen3moe": "qwen",
    "qwen3vl": "qwen",
    "qwen3vlmoe": "qwen",
    "qwen35": "qwen35",
    "qwen35moe": "qwen35",
    "qwen3next": "qwen35",
    "qwen4exp": "qwen4",
    "refact": "bloom",
    "rnd1": "qwen",
    "rwkv6": "rwkv",
    "rwkv6qwen2": "rwkv",
    "rwkv7": "rwkv",
    "seed_oss": "qwen",
    "smallthinker": "smallthinker",
    "smollm3": "smollm3",
    "spark2_5": "spark2_5",
    "stablelm": "stablelm",
    "starcoder": "gpt2",
    "starcoder2": "gpt2",
    "step35": "step35",
    "t5": "t5",
    "talkie": "talkie",
    "xverse": "llama",
}
ENCODERS: dict[str, str] = {
    "bert": "bert",
    "eurobert": "eurobert",
    "gemma-embedding2": "gemma4",
    "jina-bert-v2": "bert",
    "jina-bert-v3": "bert",
    "llama-embed": "llama_embed",
    "modern-bert": "modern_bert",
    "neo-bert": "llama_embed",
    "nomic-bert": "bert",
    "nomic-bert-moe": "bert",
    "t5encoder": "t5",
}
FAMILIES = {**DECODERS, **ENCODERS}
_registered: dict[str, Architecture[Any]] = {}  # the modules of callers


def register_architecture(name: str, module: Architecture[Any]) -> None:
    """Load models of an architecture with a module of the caller's, also where the name has one already.

    `name`: general.architecture of their files. `module`: a Decoder of models/architecture.py; for an encoder, an
    Architecture without output().
    """
    _registered[name] = module


def is_registered(name: str) -> bool:
    """Whether the architecture's module is a caller's."""
    return name in _registered


def family(header: Header) -> Architecture[Any]:
    """The module of the file's architecture. WispError unsupported_architecture."""
    name = header.architecture
    if name in _registered:
        return _registered[name]
    if name not in FAMILIES:
        needs = f" It needs {NEEDS[name]}." if name in NEEDS else ""
        known = FAMILIES | _registered
        raise WispError(
            f"The architecture {name!r} is not supported yet.{needs} Supported: {', '.join(known)}.",
            "unsupported_architecture",
        )
    return cast("Architecture[Any]", import_module(f"{__package__}.{FAMILIES[name]}"))


def decoder(header: Header) -> Decoder[Any]:
    """The module of a model that generates text. WispError corrupt_header for an encoder."""
    name = header.architecture
    if not _generates(name):
        raise WispError(
            f"The metadata says that this {name} model is causal, but the architecture is an encoder.",
            "corrupt_header",
        )
    return cast("Decoder[Any]", family(header))


def _generates(name: str) -> bool:
    return hasattr(_registered[name], "output") if name in _registered else name in DECODERS
