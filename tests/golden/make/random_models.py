"""Write a random GGUF of some architecture: noise for weights, but real names, shapes and metadata.

The same preset, settings and seed give the same float32 weights, whatever the tensor type.
"""

from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.make import (
    random_compressed,
    random_gemma3n,
    random_gemma4,
    random_latent,
    random_qwen4,
    random_recurrent,
    random_rwkv,
    random_t5,
    toy_vocabularies,
)
from tests.golden.make.changed_models import with_scales
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.presets import (
    ENCODERS,
    EXPERT_WIDTH_KEY,
    LAYERNORM,
    NO_NORM_AFTER,
    NO_NORM_WEIGHTS,
    NO_ROPE,
    NORM_BIAS,
    POSITIONS,
    SHORT_CONVOLUTIONS,
    Settings,
    settings,
)
from tests.golden.make.random_layers import add_layer


def write(
    path: Path, preset: str, kind: str, seed: int, layout: Layout, library: Library | None, **overrides: Any
) -> Settings:
    """Write `path`; return the settings used."""
    file, used = build(preset, seed, **overrides)
    file.write(path, kind, layout, library)
    return used


def build(preset: str, seed: int, **overrides: Any) -> tuple[GgufFile, Settings]:
    """A preset's metadata and float32 tensors, and its settings.

    The setting `omit` lists metadata keys to leave out, whose default values readers must know; `scales` the matrices
    that have scales beside them.
    """
    c = settings(preset, **overrides)
    file = GgufFile(c["arch"], seed, c.get("omit", ()))
    file.kinds = c.get("kinds", {})
    fill(file, c)
    with_scales(*c.get("scales", ()))(file)
    toy_vocabularies.ADD[c["tok"]](file, c["vocab"])
    return file, c


def fill(file: GgufFile, c: Settings) -> None:
    """Add an architecture's metadata, without a tokenizer, and its tensors."""
    if c["arch"] in ("gemma4", "gemma-embedding2"):
        random_gemma4.add_metadata(file, c)
        random_gemma4.add_tensors(file, c)
    elif c["arch"] == "gemma3n":
        random_gemma3n.add_metadata(file, c)
        random_gemma3n.add_tensors(file, c)
    elif c["arch"] in ("t5", "t5encoder"):
        random_t5.add_metadata(file, c)
        random_t5.add_tensors(file, c)
    elif c["arch"] in random_rwkv.ARCHITECTURES:
        random_rwkv.add_metadata(file, c)
        random_rwkv.add_tensors(file, c)
    elif c["arch"] == "deepseek4":
        add_metadata(file, c)
        random_compressed.add_metadata(file, c)
        random_compressed.add_tensors(file, c)
    else:
        add_metadata(file, c)
        add_tensors(file, c)


def add_metadata(file: GgufFile, c: Settings) -> None:
    g = c.get
    arch = c["arch"]
    file.add("%s.vocab_size", c["vocab"])
    file.add("%s.context_length", c["ctx"])
    file.add("%s.embedding_length", c["n_embd"])
    file.add("%s.block_count", c["n_layer"])
    lengths = [c["n_ff"] if kind == "-" else 0 for kind in c.get("layers", "")]
    file.add("%s.feed_forward_length", g("ff_arr") or lengths or g("ff_key", g("n_ff_dense", c["n_ff"])))
    heads = g("head_arr", c["n_head"])
    if arch == "plamo2":
        heads = [c["n_head"] if n else 0 for n in random_recurrent.kv_heads(c)]
    file.add("%s.attention.head_count", heads)
    kv_heads = g("kv_arr", c["n_kv"])
    if arch in SHORT_CONVOLUTIONS:  # no key and value heads: a layer with a short convolution
        layers = c["n_layer"]
        kv_heads = c["kv_arr"] = [kv_heads if i % 3 == 2 or i == layers - 1 else 0 for i in range(layers)]
        file.add("%s.shortconv.l_cache", c["l_cache"])
    if "d_inner" in c:
        random_recurrent.add_metadata(file, c)
        c["kv_arr"] = random_recurrent.kv_heads(c)
        whole = arch in random_recurrent.DELTA or arch in ("falcon-h1", "mamba", "mamba2")
        kv_heads = c["n_kv"] if whole else c["kv_arr"]
    file.add("%s.attention.head_count_kv", kv_heads)
    epsilon = "layer_norm_epsilon" if arch in LAYERNORM or g("layer_norm") else "layer_norm_rms_epsilon"
    file.add(f"%s.attention.{epsilon}", float(c["eps"]))
    if "kda_dim" in c:
        file.add("%s.kda.head_dim", c["kda_dim"])
        file.add("%s.kda.gate_lower_bound", g("kda_bound"))
        file.add("%s.ssm.conv_kernel", c["d_conv"])
    if "kv_rank" in c:
        random_latent.add_metadata(file, c)
    elif c["head_dim"] * c["n_head"] != c["n_embd"] or arch.startswith(("qwen3", "gemma")):
        file.add("%s.attention.key_length", c["head_dim"])
        file.add("%s.attention.value_length", g("value_dim", c["head_dim"]))
        file.add("%s.attention.value_scale", g("value_scale"))
    if arch not in NO_ROPE:
        file.add("%s.rope.dimension_count", g("rope_dim", c["head_dim"]))
        file.add("%s.rope.freq_base", c["rope_base"])
    file.add("%s.rope.dimension_sections", g("sections"))
    file.add("%s.rope.scaling.alpha", g("alpha"))
    file.add("%s.attention.clamp_kqv", g("clamp_kqv"))
    file.add("%s.attention.max_alibi_bias", g("alibi"))
    if arch == "apertus":  # factors of the activation for each layer
        layers = np.arange(c["n_layer"])
        for name, values in (("alpha_n", 0.8 + layers), ("alpha_p", 0.3 - layers), ("beta", 0.5 + 0.2 * layers)):
            file.add(f"xielu.{name}", [float(value) for value in values])
        file.add("xielu.eps", [-1e-6] * c["n_layer"])
    add_rope_scaling(file, c)
    if g("no_rope"):
        file.add("%s.rope.scaling.finetuned", False)
    if g("n_expert"):
        file.add("%s.expert_count", c["n_expert"])
        file.add("%s.expert_used_count", c["n_used"])
        if arch in EXPERT_WIDTH_KEY:
            file.add("%s.expert_feed_forward_length", c.get("expert_widths", c["n_ff"]))
        file.add("%s.expert_shared_feed_forward_length", g("n_ff_shexp"))
        if arch == "nemotron_h_moe":
            file.add("%s.expert_weights_norm", True)
            file.add("%s.expert_weights_scale", 2.5)
            file.add("%s.expert_gating_func", 2)
        file.add("%s.moe_latent_size", g("latent"))
        file.add("%s.expert_shared_count", g("n_shared"))
        file.add("%s.leading_dense_block_count", g("lead"))
        file.add("%s.interleave_moe_layer_step", g("step"))
        file.add("%s.expert_gating_func", g("gating"))
        file.add("%s.expert_weights_norm", g("weights_norm"))
        file.add("%s.expert_weights_scale", g("weights_scale"))
        file.add("%s.expert_group_count", g("groups"))
        file.add("%s.experts_per_group", g("experts_per_group"))
        file.add("%s.expert_chunk_feed_forward_length", g("n_ff_chunk"))
        file.add("%s.expert_group_scale", g("group_scale"))
        file.add("%s.expert_group_used_count", g("groups_used"))
    for name, value in zip(
        ("head_count", "key_length", "top_k", "block_size", "local_blocks"), g("sparse", ()), strict=False
    ):
        file.add(f"%s.attention.indexer.{name}", value)
    file.add("%s.swiglu_clamp_exp", g("clamp_exp"))
    file.add("%s.swiglu_clamp_shexp", g("clamp_shexp"))
    file.add("%s.attention.sliding_window", g("window"))
    file.add("%s.attention.sliding_window_pattern", g("pattern"))
    file.add("%s.attention.rope_pattern", g("rope_pattern"))
    file.add("%s.attn_logit_softcapping", g("attn_cap"))
    file.add("%s.final_logit_softcapping", g("final_cap"))
    file.add("%s.logit_scale", g("logit_scale"))
    file.add("%s.residual_scale", g("residual_scale"))
    file.add("%s.embedding_scale", g("embedding_scale"))
    file.add("%s.attention.scale", g("attn_scale"))
    file.add("%s.attention.temperature_scale", g("temperature"))
    file.add("%s.attention.temperature_length", g("temperature_length"))
    file.add("%s.attention.output_scale", g("attn_out_scale"))
    file.add("%s.rope.freq_base_swa", g("rope_base_swa"))
    file.add("%s.rope.dimension_count_swa", g("rope_dim_swa"))
    file.add("%s.attn_res.block_size", g("res_block"))
    file.add("%s.expert_latent_length", g("routed"))
    for name, value in zip(("situ_beta", "situ_linear_beta"), g("situ", ()), strict=False):
        file.add(f"%s.activation.{name}", value)
    file.add("%s.swin_norm", g("swin"))
    file.add("%s.num_loops", g("loops"))
    if arch == "qwen4exp":
        random_qwen4.add_metadata(file, c)
    file.add("%s.full_attention_interval", g("linear_every"))
    if "control" in c:
        file.add("%s.adapters.count", len(c["control"]))
        file.add("%s.adapters.lora_rank", c["lora_rank"])
        file.add("%s.adapters.router_gain", g("gain"))
        file.add("%s.adapters.token_ids_activate", c["control"])
        file.add("%s.adapters.token_ids_substitute", c["substitutes"])
    if arch == "hrm_text":
        file.add("%s.hrm.layers_per_stack", c["stack"])
        for key, count in zip(("h_cycles", "l_cycles"), c["cycles"], strict=True):
            file.add(f"%s.hrm.{key}", count)
        file.add("%s.hrm.prefix_lm", g("prefix_lm"))
    file.add("%s.attention.group_norm_groups", g("norm_groups"))
    file.add("%s.skip_loop_final_norm", g("skip_norm"))
    if arch == "gptneox":
        file.add("%s.use_parallel_residual", bool(g("parallel")))
    if arch in ("bert", "nomic-bert"):
        file.add("%s.attention.causal", False)
    file.add("%s.attention.causal", g("causal"))
    file.add("%s.pooling_type", g("pooling"))  # 0 none, 1 mean, 2 cls, 3 last, 4 rank
    if arch == "nomic-bert-moe":
        file.add("%s.moe_every_n_layers", 2)
    if arch in ("nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert", "eurobert", "neo-bert", "llama-embed"):
        file.add("%s.attention.causal", False)
    if g("masked"):  # a diffusion model
        file.add("%s.attention.causal", False)
        file.add("diffusion.shift_logits", g("shift"))
        file.add("tokenizer.ggml.mask_token_id", c["vocab"] - 1)
    if g("dense"):  # EmbeddingGemma's two linear layers after pooling
        file.add("%s.dense_2_feat_in", c["n_embd"])
        file.add("%s.dense_2_feat_out", c["dense"])
        file.add("%s.dense_3_feat_in", c["dense"])
        file.add("%s.dense_3_feat_out", c["n_embd"])


def add_rope_scaling(file: GgufFile, c: Settings) -> None:
    rope, factor = c.get("rope"), c.get("rope_factor")
    if rope == "linear":
        file.add("%s.rope.scaling.type", "linear")
        file.add("%s.rope.scaling.factor", factor or 4.0)
    elif rope == "linear-legacy":
        file.add("%s.rope.scale_linear", factor or 4.0)
    elif rope == "yarn":
        file.add("%s.rope.scaling.type", "yarn")
        file.add("%s.rope.scaling.factor", factor or 8.0)
        file.add("%s.rope.scaling.original_context_length", c.get("orig_ctx", 64))
        file.add("%s.rope.scaling.attn_factor", c.get("attn_factor"))
        file.add("%s.rope.scaling.yarn_beta_fast", c.get("beta_fast"))
    elif rope == "longrope":
        original = c["orig_ctx"]
        file.add("%s.rope.scaling.original_context_length", original)
        attention = float(np.sqrt(1 + np.log(c["ctx"] / original) / np.log(original)))
        file.add("%s.rope.scaling.attn_factor", attention)


def add_tensors(file: GgufFile, c: Settings) -> None:
    """Add embeddings of about unit variance, an output whose logits spread by `logit_std`, and the layers."""
    arch, width = c["arch"], c["n_embd"]
    g = c.get
    scale = np.sqrt(width) if arch.startswith(("gemma", "afmoe")) else g("embedding_scale", 1.0)
    logit_scale = g("logit_scale", 1.0)  # Granite divides by it, Cohere multiplies
    if arch in ("cohere2", "command-r", "cohere2moe", "grok", "muse-glimmer", "talkie"):
        logit_scale = 1 / logit_scale
    norm_mean = 1.0
    if c["tied"]:
        # One matrix plays both parts. Small embeddings keep a token's own logit from always winning; the final norm's
        # weight restores the spread.
        std = 1.6 / np.sqrt(width) / scale * g("residual_scale", 1.0)
        norm_mean = c["logit_std"] / (std * np.sqrt(width)) * logit_scale
    else:
        std = 1.0 / scale
    file.matrix("token_embd.weight", c["vocab"], width, std=std)
    if arch in POSITIONS:
        file.matrix("position_embd.weight", c["ctx"], width, std=0.5, float32=True)
    if arch in ENCODERS:
        file.matrix("token_types.weight", 2, width, std=0.3, float32=True)
        file.norm("token_embd_norm", width, bias=True)
    else:
        if arch == "modern-bert":
            file.norm("token_embd_norm", width)
        if arch == "bloom":
            file.norm("token_embd_norm", width, bias=True)
        name = "token_embd_norm" if arch in SHORT_CONVOLUTIONS else "output_norm"
        if arch == "neo-bert":
            name = "enc.output_norm"
        if arch not in NO_NORM_WEIGHTS | NO_NORM_AFTER:
            file.norm(name, width, mean=norm_mean, bias=arch in NORM_BIAS)
        if not c["tied"]:
            file.matrix("output.weight", c["vocab"], width, gain=c["logit_std"] * logit_scale)
            if arch in ("phi2", "phimoe"):
                file.vector("output.bias", c["vocab"])
    if c["preset"] == "bert-rank":  # the classifier
        file.matrix("cls.weight", width, width)
        file.vector("cls.bias", width)
        file.matrix("cls.output.weight", 1, width, gain=3.0)
        file.vector("cls.output.bias", 1)
    if c["preset"] == "modern-bert-rank":
        file.matrix("cls.weight", width, width)
        file.norm("cls.norm", width)
        file.matrix("cls.output.weight", 1, width, gain=3.0)
        file.vector("cls.output.bias", 1)
    if g("dense"):
        file.matrix("dense_2.weight", c["dense"], width)
        file.matrix("dense_3.weight", width, c["dense"])
    add_rope_factors(file, c)
    if arch == "qwen4exp":
        random_qwen4.add_tensors(file, c, norm_mean)
    elif "streams" in c:
        random_latent.add_streams(file, c, "output_hc", 1)
    if "res_block" in c:
        file.vector("output_res_score.weight", width, std=0.15)
    if arch == "hrm_text":
        file.vector("hrm.z_l_init", width, std=1.0)
    for i in range(2 * c["stack"] if arch == "hrm_text" else c["n_layer"]):
        add_layer(file, c, i)


def add_rope_factors(file: GgufFile, c: Settings) -> None:
    """Add the tensors that divide the rotation's frequencies."""
    n_rot: int = c.get("rope_dim") or c["head_dim"]
    if c.get("rope") == "llama3":
        file.constant("rope_freqs.weight", llama3_factors(n_rot, c["rope_base"], c.get("rope_factor", 8.0)))
    if c.get("rope") == "longrope":
        part = np.arange(n_rot // 2) / (n_rot // 2)
        file.constant("rope_factors_short.weight", 1.0 + 0.5 * part)
        file.constant("rope_factors_long.weight", 1.0 + 30.0 * part**2)


def llama3_factors(n_rot: int, base: float, factor: float) -> list[float]:
    """Llama 3.1's divisor of each frequency, as the converter stores them, for an original context of 64."""
    original, low, high = 64, 1.0, 4.0
    out: list[float] = []
    for frequency in 1.0 / base ** (np.arange(0, n_rot, 2) / n_rot):
        wave = 2 * np.pi / frequency
        smooth = (original / wave - low) / (high - low)
        if wave < original / high:
            out.append(1.0)
        elif wave > original / low:
            out.append(factor)
        else:
            out.append(1 / ((1 - smooth) / factor + smooth))
    return out
