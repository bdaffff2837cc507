"""Norms, biases, gates and networks that an architecture needs: without one, a model's results would be wrong.

Other architectures lack them, and a layer uses what the file has, so a missing one would go unnoticed. The planner asks
for all other tensors by name. The tables have only what llama.cpp's loader requires.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.files.gguf_header import Header
from py_engine.models.config import Config
from py_engine.models.families import FAMILIES, is_registered
from py_engine.plan.weights import missing_tensor


def only(names: str) -> frozenset[str]:
    """The architectures of these names."""
    return frozenset(names.split())


def all_but(names: str) -> frozenset[str]:
    """All architectures but those of these names."""
    return frozenset(FAMILIES) - only(names)


@dataclass(frozen=True)
class Need:
    """A tensor that layers of some architectures need. `beside`: only layers with that tensor need it; "": all do."""

    tensor: str  # without blk.N.
    architectures: frozenset[str]
    beside: str = ""
    first: int = 0  # the first layer that needs it


ENCODERS = "bert jina-bert-v2 jina-bert-v3 nomic-bert nomic-bert-moe t5 t5encoder "
POST_NORMED = "exaone4 hrm_text olmo olmo2 talkie "  # norms after the blocks, or without weights
NOT_COMPARED = "gemma-embedding2 k2-horizon "  # newer than the llama.cpp that the tables were compared with
LAYER_NORMED = "bloom codeshell gpt2 gptneox jais jais2 nemotron orion phimoe starcoder starcoder2 "  # and their biases
SHARED_GATED = (  # experts and the shared expert have gates
    "afmoe bailingmoe bailingmoe2 bailingmoe3 cohere2moe deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 dots1 "
    "dots3note exaone-moe glm-dsa glm4moe glm5-next hunyuan-moe hy_v4 laguna llama4 minimax-m3 mistral4 qwen2moe "
    "qwen35moe qwen3next qwen4exp "
)
GATED_EXPERTS = SHARED_GATED + (
    "arctic dbrx gpt-oss granite_swa grovemoe kimi-linear lfm2moe llada-moe mellum minimax-m2 olmoe phimoe qwen3moe "
    "qwen3vlmoe rnd1 smallthinker"
)
UNGATED = (  # some or all layers have no gates, or they are rows of ffn_up
    "apertus arcee bloom chatglm codeshell falcon glm4 gpt2 gptneox grok hy_v3 jais2 mamba mamba2 mimo2 minimax-01 "
    "modern-bert mpt nemotron nemotron_h nemotron_h_moe neo-bert phi2 phi3 phimoe plamo2 plamo3 plm rwkv6 rwkv7 "
    "starcoder starcoder2 step35 "
)
LAYERS = (
    # norms
    Need("attn_norm.weight", all_but(ENCODERS + POST_NORMED + NOT_COMPARED + "deci modern-bert nanbeige qwen4exp")),
    Need("attn_norm.weight", only("deci nanbeige"), "attn_output.weight"),
    Need("attn_norm.weight", only("modern-bert"), first=1),
    Need("attn_norm.bias", only(LAYER_NORMED + "falcon phi2 rwkv6 rwkv7 stablelm")),
    Need("attn_norm_2.weight", only("rwkv6 rwkv7")),
    Need("attn_norm_2.bias", only("rwkv6 rwkv7")),
    Need(
        "ffn_norm.weight",
        all_but(
            ENCODERS + POST_NORMED + NOT_COMPARED + "cohere2 cohere2moe command-r dbrx deci falcon falcon-h1 glm4moe "
            "gpt-oss mamba mamba2 nanbeige nemotron_h nemotron_h_moe phi2 plamo qwen35 qwen35moe qwen3next "
            "qwen4exp rwkv6 rwkv7 seed_oss stablelm"
        ),
    ),
    Need("ffn_norm.weight", only("deci nanbeige"), "ffn_up.weight"),
    Need("ffn_norm.bias", only(LAYER_NORMED)),
    Need("ffn_norm", only("falcon-h1")),
    Need(
        "post_attention_norm.weight",
        only(
            "afmoe exaone4 gemma-embedding gemma2 gemma3 gemma4 glm4 glm4moe gpt-oss muse-glimmer olmo2 qwen35 "
            "qwen35moe qwen3next seed_oss"
        ),
    ),
    Need("post_ffw_norm.weight", only("afmoe exaone4 gemma-embedding gemma2 gemma3 gemma4 glm4 muse-glimmer olmo2")),
    Need("post_attention_norm", only("plamo2 plamo3")),
    Need("post_ffw_norm", only("plamo2 plamo3")),
    Need("attn_output_norm.weight", only("dbrx grok")),
    Need("attn_output_norm.bias", only("bert jina-bert-v2 jina-bert-v3 nomic-bert nomic-bert-moe")),
    Need("layer_output_norm.bias", only("bert jina-bert-v2 jina-bert-v3 nomic-bert nomic-bert-moe")),
    Need("attn_sub_norm.weight", only("bitnet")),
    Need("ffn_sub_norm.weight", only("bitnet")),
    Need("attn_q_norm.weight", only("gemma4")),
    Need("attn_q_norm.weight", only("qwen4exp"), "attn_q.weight"),
    Need("attn_k_norm.weight", only("dots3note gemma3n")),
    # attention
    Need("attn_qkv.bias", only("bloom gpt2 gptneox jais qwen starcoder"), "attn_qkv.weight"),
    Need(
        "attn_output.bias",
        only(
            "bloom codeshell gpt-oss gpt2 gptneox jais jais2 jina-bert-v2 pangu-embedded phi2 phimoe starcoder "
            "starcoder2"
        ),
    ),
    Need("attn_v.weight", only("gemma3n"), "attn_k.weight"),
    Need("attn_gate.weight", only("afmoe dots3note hy_v4 laguna muse-glimmer spark2_5")),
    Need("attn_gate.weight", only("hrm_text"), "attn_output.weight"),
    Need("attn_gate.weight", only("bailingmoe3"), "attn_kv_a_mqa.weight"),
    Need("attn_sinks.weight", only("gpt-oss granite_swa hy_v4")),
    # feed-forward networks
    Need(
        "ffn_up.weight",
        only("bailingmoe3 falcon-h1 granitehybrid jamba kimi-linear nemotron_h plamo2 qwen35"),
        "ffn_down.weight",
    ),
    Need("ffn_gate.weight", all_but(ENCODERS + NOT_COMPARED + UNGATED), "ffn_up.weight"),
    Need("ffn_gate.weight", only("nomic-bert"), "ffn_up.weight"),
    Need("ffn_up.bias", only("bloom codeshell gpt2 gptneox jais jais2 phi2 starcoder starcoder2")),
    Need("ffn_down.bias", only("bloom codeshell gpt2 gptneox jais jais2 jina-bert-v2 phi2 starcoder starcoder2")),
    Need("ffn_gate.bias", only("jais")),
    # experts
    Need(
        "ffn_gate_inp.weight",
        only("bailingmoe3 deepseek4 gemma4 granitehybrid kimi-linear nemotron_h_moe qwen35moe qwen3next"),
        "ffn_down_exps.weight",
    ),
    Need("ffn_gate_inp.scale", only("gemma4"), "ffn_gate_inp.weight"),
    Need("ffn_gate_inp.bias", only("gpt-oss")),
    Need(
        "exp_probs_b.bias",
        only(
            "afmoe bailingmoe3 dots3note glm4moe glm5-next kimi-k3 kimi-linear laguna lfm2moe minimax-m2 minimax-m3 "
            "nemotron_h_moe"
        ),
        "ffn_gate_inp.weight",
    ),
    Need("ffn_gate_exps.weight", only(GATED_EXPERTS), "ffn_up_exps.weight"),
    Need("ffn_down_exps.bias", only("gpt-oss")),
    Need("ffn_gate_chexps.weight", only("grovemoe"), "ffn_up_chexps.weight"),
    Need(
        "ffn_up_shexp.weight",
        only(SHARED_GATED + "ernie4_5-moe granite_swa granitehybrid nemotron_h_moe"),
        "ffn_down_shexp.weight",
    ),
    Need("ffn_gate_shexp.weight", only(SHARED_GATED + "ernie4_5-moe granitehybrid"), "ffn_up_shexp.weight"),
    Need("ffn_gate_inp_shexp.weight", only("qwen2moe qwen35moe qwen3next qwen4exp"), "ffn_up_shexp.weight"),
    Need("ffn_down_shexp.weight", only("deepseek4 qwen4exp")),
    # states
    Need("ssm_norm.weight", only("granitehybrid mamba2 nemotron_h nemotron_h_moe"), "ssm_conv1d.weight"),
    Need("ssm_conv1d.bias", only("jamba mamba mamba2"), "ssm_conv1d.weight"),
    *(Need(f"ssm_{part}_norm.weight", only("jamba"), "ssm_conv1d.weight") for part in ("b", "c", "dt")),
    *(Need(f"ssm_{part}_norm", only("plamo2"), "ssm_conv1d.weight") for part in ("b", "c", "dt")),
    Need("time_mix_first.weight", only("rwkv6")),
    Need("time_mix_ln.weight", only("rwkv6 rwkv7")),
    Need("channel_mix_receptance.weight", only("rwkv6")),
)
OUTSIDE = {  # of layers
    "output_norm.weight": all_but(ENCODERS + NOT_COMPARED + "hrm_text lfm2 lfm2moe neo-bert olmo qwen4exp talkie"),
    "output_norm.bias": only(LAYER_NORMED + "falcon phi2 rwkv6 rwkv7 stablelm"),
    "enc.output_norm.weight": only("neo-bert"),
    "token_embd_norm.weight": only("lfm2 lfm2moe rwkv6 rwkv7"),
    "token_embd_norm.bias": only("bert bloom jina-bert-v2 jina-bert-v3 nomic-bert nomic-bert-moe"),
    "token_types.weight": only("jina-bert-v2"),
    "position_embd.weight": only("bert gpt2 starcoder"),
    "output.bias": only("phi2 phimoe"),
    "output.weight": only(  # others' embeddings may serve
        "apertus arwkv7 baichuan bailingmoe bailingmoe2 codeshell dbrx deepseek4 dots1 exaone-moe glm5-next gpt-oss "
        "gptneox hy_v4 internlm2 jais kimi-k3 kimi-linear llada-moe maple mellum mimo2 minimax-m2 minimax-m3 "
        "muse-glimmer nemotron olmo2 olmoe orion phi2 phimoe plamo qwen qwen2moe rwkv6 rwkv6qwen2 rwkv7 stablelm "
        "step35 talkie xverse"
    ),
}


def check_tensors(header: Header, cfg: Config) -> None:
    """Raise WispError missing_tensor if the file lacks a tensor that its architecture needs."""
    name, tensors = header.architecture, header.tensors
    if is_registered(name):
        return
    for tensor, architectures in OUTSIDE.items():
        if name in architectures and tensor not in tensors:
            raise missing_tensor(tensor, name)
    needs = [need for need in LAYERS if name in need.architectures]
    for i in range(cfg.block_count):
        for need in needs:
            beside = not need.beside or f"blk.{i}.{need.beside}" in tensors
            if beside and i >= need.first and (tensor := f"blk.{i}.{need.tensor}") not in tensors:
                raise missing_tensor(tensor, name)
    if name == "gemma4" and not all(cfg.windows) and "rope_freqs.weight" not in tensors:
        raise missing_tensor("rope_freqs.weight", name)  # layers without a window rotate by it
