"""The random tensors of one layer. The order of calls decides the numbers: append, do not reorder."""

from tests.golden.make import random_latent, random_qwen4, random_recurrent
from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.presets import (
    ATTENTION_GATES,
    BARE_POST_NORMS,
    DOWN_BIAS,
    ENCODERS,
    FUSED_GATE_UP,
    FUSED_QKV,
    GATE_BIAS,
    GATED_ATTENTION,
    NO_NORM_BEFORE,
    NO_NORM_WEIGHTS,
    NORM_AS_POST,
    NORM_BIAS,
    ONE_NORM,
    OUTPUT_BIAS,
    POST_NORMS,
    QK_NORM,
    QKV_BIAS,
    SUB_NORMS,
    UNGATED,
    UP_BIAS,
    WIDE_QK_NORM,
    Settings,
)

BOTH_NETWORKS = {"arctic", "grok-2"}  # presets with a dense network beside the experts
SHARP = 1.4  # gain of queries and keys: spreads the attention's scores
DOWN = 1.5  # gain of what leads out of the feed forward


def add_uneven_layer(file: GgufFile, c: Settings, prefix: str, kv_heads: int) -> None:
    """A layer of Deci, which may lack attention, or its network, or have a matrix in place of attention."""
    width = c["n_embd"]
    if c["n_head"]:
        file.norm(prefix + "attn_norm", width)
    if kv_heads:
        add_attention(file, c, prefix, kv_heads)
    elif c["n_head"]:
        file.matrix(prefix + "attn_output.weight", width, width)
    if c["n_ff"]:
        file.norm(prefix + "ffn_norm", width)
        add_feed_forward(file, c, prefix, 0)


def add_layer(file: GgufFile, c: Settings, i: int) -> None:
    if "head_arr" in c:  # heads and widths that differ between layers
        c = c | {"n_head": c["head_arr"][i], "n_ff": c["ff_arr"][i] if "ff_arr" in c else c["n_ff"]}
    arch, width = c["arch"], c["n_embd"]
    prefix = f"blk.{i}."
    bias = arch in NORM_BIAS
    if arch == "deci":
        add_uneven_layer(file, c, prefix, c["kv_arr"][i])
        return
    if arch not in ENCODERS | NO_NORM_BEFORE | NO_NORM_WEIGHTS and not (arch == "modern-bert" and i == 0):
        file.norm(prefix + "attn_norm", width, bias=bias)
    if c["preset"] == "falcon-40b":
        file.norm(prefix + "attn_norm_2", width, bias=bias)
    kv_heads = c["kv_arr"][i] if "kv_arr" in c else c["n_kv"]
    if "layers" in c and c["layers"][i] == "-":
        add_feed_forward(file, c, prefix, i)
        return
    if (i + 1) % c.get("linear_every", 1):
        random_recurrent.add_fixed_decay(file, c, prefix)
    elif "kv_rank" in c and kv_heads:
        windowed = "swa" in c and c["pattern"][i]
        if "sharing" in c and not c["sharing"][i]:
            c = c | {"index": None}
        random_latent.add_attention(file, c | c["swa"] | {"index": None} if windowed else c, prefix)
    elif kv_heads:
        add_attention(file, c, prefix, kv_heads)
    if arch in random_recurrent.MAMBA2:
        if not kv_heads or arch == "falcon-h1":
            random_recurrent.add_mamba2(file, c, prefix)
        if arch == "mamba2" or "layers" in c:
            return
    elif arch in random_recurrent.MAMBA and not kv_heads:
        random_recurrent.add_mamba(file, c, prefix)
        if arch == "mamba":
            return
    elif kv_heads:
        pass
    elif arch == "plamo2":
        random_recurrent.add_plamo2(file, c, prefix)
    elif "kda_dim" in c:
        random_recurrent.add_kda(file, c, prefix)
    elif arch in random_recurrent.DELTA:
        random_recurrent.add_delta(file, c, prefix)
    else:
        file.matrix(prefix + "shortconv.conv.weight", width, c["l_cache"], float32=True)
        file.matrix(prefix + "shortconv.in_proj.weight", 3 * width, width)
        file.matrix(prefix + "shortconv.out_proj.weight", width, width)
    if arch == "dbrx":
        file.norm(prefix + "attn_output_norm", width)  # the norm before its feed forward
    named_after = POST_NORMS | NORM_AS_POST | GATED_ATTENTION - NO_NORM_BEFORE
    if arch in named_after:  # of some, the norm before the feed forward
        add_post_norm(file, c, prefix + "post_attention_norm")
    if arch in ENCODERS:
        file.norm(prefix + "attn_output_norm", width, bias=True)
    late = c["preset"] in ("bert", "nomic-bert")  # the oldest goldens have this norm's numbers after the feed forward's
    if arch in ENCODERS and not late:
        file.norm(prefix + "layer_output_norm", width, bias=True)
    if arch == "glm4":
        file.norm(prefix + "post_ffw_norm", width)
    if arch == "arctic":
        file.norm(prefix + "ffn_norm_exps", width)
    if arch == "grok":
        file.norm(prefix + "attn_output_norm", width)
        file.norm(prefix + ("layer_output_norm" if c["preset"] == "grok" else "post_ffw_norm"), width)
    without = ENCODERS | ONE_NORM | GATED_ATTENTION | NO_NORM_BEFORE | NORM_AS_POST | NO_NORM_WEIGHTS | {"dbrx"}
    if arch == "falcon-h1":
        file.vector(prefix + "ffn_norm", width, mean=1.0, std=0.15)
    elif arch not in without and not (arch == "stablelm" and c.get("parallel")):
        file.norm(prefix + "ffn_norm", width, bias=bias)
    add_feed_forward(file, c, prefix, i)
    if arch in POST_NORMS and arch != "glm4":
        add_post_norm(file, c, prefix + "post_ffw_norm")
    if late:
        file.norm(prefix + "layer_output_norm", width, bias=True)
    if "control" in c:
        add_switched(file, c, prefix)
    if "res_block" in c:
        file.vector(prefix + "attn_res_score.weight", width, std=0.15)
        file.vector(prefix + "ffn_res_score.weight", width, std=0.15)
    if arch == "qwen4exp":
        random_qwen4.add_layer(file, c, i)
    elif "mixed" in c:
        random_latent.add_mixed_streams(file, c, prefix + "hc_attn")
        random_latent.add_mixed_streams(file, c, prefix + "hc_ffn")
    elif "streams" in c:
        random_latent.add_streams(file, c, prefix + "hc_attn", 2)
        random_latent.add_streams(file, c, prefix + "hc_ffn", 2)
    if arch == "talkie":
        file.vector(prefix + "layer_output_scale.weight", 1, mean=0.5)
    if arch == "cogvlm":
        add_visual_experts(file, c, prefix)


def add_visual_experts(file: GgufFile, c: Settings, prefix: str) -> None:
    """Matrices for the tokens of pictures, which a text does without."""
    width = c["n_embd"]
    file.matrix(prefix + "vis_attn_qkv.weight", 3 * width, width)
    file.matrix(prefix + "vis_attn_output.weight", width, width)
    for name in ("vis_gate", "vis_up"):
        file.matrix(f"{prefix}{name}.weight", c["n_ff"], width)
    file.matrix(prefix + "vis_down.weight", width, c["n_ff"])


def add_switched(file: GgufFile, c: Settings, prefix: str) -> None:
    """Low-rank matrices of each adapter, the first of which is zero, for each of the layer's matrices."""
    width, q_rows, kv_rows = c["n_embd"], c["n_head"] * c["head_dim"], c["n_kv"] * c["head_dim"]
    shapes = {"attn_q": (q_rows, width), "attn_k": (kv_rows, width), "attn_v": (kv_rows, width)}
    shapes |= {"attn_output": (width, q_rows), "ffn_gate": (c["n_ff"], width), "ffn_up": (c["n_ff"], width)}
    for name, (rows, cols) in (shapes | {"ffn_down": (width, c["n_ff"])}).items():
        slots, rank = len(c["control"]) + 1, c["lora_rank"]
        file.matrix(f"{prefix}{name}.lora_a", slots, rank, cols)
        file.matrix(f"{prefix}{name}.lora_b", slots, rows, rank)
        for part in "ab":
            file.tensors[f"{prefix}{name}.lora_{part}"][0] = 0


def add_post_norm(file: GgufFile, c: Settings, name: str) -> None:
    if c["arch"] in BARE_POST_NORMS:
        file.vector(name, c["n_embd"], mean=1.0, std=0.15)
    else:
        file.norm(name, c["n_embd"])


def add_attention(file: GgufFile, c: Settings, prefix: str, kv_heads: int) -> None:
    arch, width, heads, head_dim = c["arch"], c["n_embd"], c["n_head"], c["head_dim"]
    value_dim = c.get("value_dim") or head_dim
    n_q, n_kv, n_v = heads * head_dim, kv_heads * head_dim, kv_heads * value_dim
    bias = arch in QKV_BIAS or c.get("qkv_bias") or c.get("attn_bias")
    if arch in FUSED_QKV:
        file.matrix(prefix + "attn_qkv.weight", n_q + 2 * n_kv, width, gain=SHARP)
        if bias:
            file.vector(prefix + "attn_qkv.bias", n_q + 2 * n_kv, std=0.5)
    else:
        n_gated = 2 * n_q if arch in GATED_ATTENTION else n_q
        for name, rows, gain in (("q", n_gated, SHARP), ("k", n_kv, SHARP), ("v", n_v, 1.0)):
            file.matrix(prefix + f"attn_{name}.weight", rows, width, gain=gain)
            if bias:
                file.vector(prefix + f"attn_{name}.bias", rows, std=0.5)
    file.matrix(prefix + "attn_output.weight", width, heads * value_dim)
    if arch in OUTPUT_BIAS or c.get("attn_bias"):
        file.vector(prefix + "attn_output.bias", width, std=0.05)
    if arch == "plamo2":  # each head has weights
        file.norm(prefix + "attn_q_norm", heads, head_dim, mean=SHARP)
        file.norm(prefix + "attn_k_norm", kv_heads, head_dim, mean=SHARP)
    elif arch == "talkie":  # of each query head
        file.norm(prefix + "attn_q_norm", heads, 1, mean=SHARP)
    elif arch in QK_NORM or c.get("qk_norm"):
        file.norm(prefix + "attn_q_norm", head_dim, mean=SHARP)
        file.norm(prefix + "attn_k_norm", head_dim, mean=SHARP)
    elif arch in WIDE_QK_NORM:
        file.norm(prefix + "attn_q_norm", n_q, mean=SHARP)
        file.norm(prefix + "attn_k_norm", n_kv, mean=SHARP)
    elif arch == "chameleon" or (arch == "stablelm" and c.get("parallel")):  # LayerNorm weights of each head
        file.norm(prefix + "attn_q_norm", heads, head_dim, mean=SHARP, bias="head_bias" in c)
        file.norm(prefix + "attn_k_norm", kv_heads, head_dim, mean=SHARP, bias="head_bias" in c)
    if arch in ("gpt-oss", "mimo2", "granite_swa"):
        file.vector(prefix + "attn_sinks.weight", heads, std=1.0)
    if arch in ATTENTION_GATES:
        of_heads = arch in ("step35", "spark2_5", "laguna") and not c.get("value_gates")
        file.matrix(prefix + "attn_gate.weight", heads if of_heads else n_q, width)
    if arch in SUB_NORMS:
        file.norm(prefix + "attn_sub_norm", n_q)


def add_feed_forward(file: GgufFile, c: Settings, prefix: str, i: int) -> None:
    arch, width = c["arch"], c["n_embd"]
    routed = bool(c.get("n_expert")) and i >= c.get("lead", 0) and (i + 1) % c.get("step", 1) == 0
    if routed and not (arch == "nomic-bert-moe" and i % 2 == 0):
        add_experts(file, c, prefix)
        if c["preset"] not in BOTH_NETWORKS:
            return
    n_ff = c["n_ff_dense"] if "n_ff_dense" in c else c["n_ff"]
    fused = arch in FUSED_GATE_UP
    if not fused and arch not in UNGATED:
        file.matrix(prefix + "ffn_gate.weight", n_ff, width)
    file.matrix(prefix + "ffn_up.weight", 2 * n_ff if fused else n_ff, width)
    file.matrix(prefix + "ffn_down.weight", width, n_ff, gain=DOWN)
    if arch in UP_BIAS:
        file.vector(prefix + "ffn_up.bias", n_ff)
    if arch in DOWN_BIAS:
        file.vector(prefix + "ffn_down.bias", width, std=0.05)
    if arch in GATE_BIAS:
        file.vector(prefix + "ffn_gate.bias", n_ff)
    if arch in SUB_NORMS:
        file.norm(prefix + "ffn_sub_norm", n_ff)


def add_experts(file: GgufFile, c: Settings, prefix: str) -> None:
    arch, width, n_ff, experts = c["arch"], c["n_embd"], c["n_ff"], c["n_expert"]
    if "expert_widths" in c:
        n_ff = c["expert_widths"][int(prefix.split(".")[1])]
    file.matrix(prefix + "ffn_gate_inp.weight", experts, width, gain=1.5, float32=True)
    inner: int = c.get("latent") or c.get("routed") or width  # columns of the experts
    if arch not in UNGATED:
        file.matrix(prefix + "ffn_gate_exps.weight", experts, n_ff, inner, gain=c.get("expert_gain", 1.0))
    file.matrix(prefix + "ffn_up_exps.weight", experts, n_ff, inner, gain=c.get("expert_gain", 1.0))
    file.matrix(prefix + "ffn_down_exps.weight", experts, inner, n_ff, gain=DOWN)
    if "latent" in c:
        file.matrix(prefix + "ffn_latent_down.weight", inner, width)
        file.matrix(prefix + "ffn_latent_up.weight", width, inner)
    if "routed" in c:
        file.matrix(prefix + "ffn_routed_down.weight", inner, width)
        file.matrix(prefix + "ffn_routed_up.weight", width, inner)
        file.norm(prefix + "ffn_routed_norm", inner)
    if arch == "nemotron_h_moe":
        file.vector(prefix + "exp_probs_b.bias", experts, std=0.1)
    if arch == "gpt-oss":
        file.vector(prefix + "ffn_gate_inp.bias", experts)
        file.vector(prefix + "ffn_gate_exps.bias", experts, n_ff)
        file.vector(prefix + "ffn_up_exps.bias", experts, n_ff)
        file.vector(prefix + "ffn_down_exps.bias", experts, width)
    if c.get("n_ff_shexp"):
        shared = c["n_ff_shexp"]
        if arch == "qwen2moe" or arch in GATED_ATTENTION:
            file.vector(prefix + "ffn_gate_inp_shexp.weight", width, std=width**-0.5)
        joined = arch == "granite_swa"  # the gate is the first half of the rows
        if arch not in UNGATED and not joined:
            file.matrix(prefix + "ffn_gate_shexp.weight", shared, width)
        file.matrix(prefix + "ffn_up_shexp.weight", 2 * shared if joined else shared, width)
        file.matrix(prefix + "ffn_down_shexp.weight", width, shared, gain=DOWN)
    if "sparse" in c:
        heads, size, *_ = c["sparse"]
        file.matrix(prefix + "indexer.q_proj.weight", heads * size, width)
        file.matrix(prefix + "indexer.k_proj.weight", size, width)
        file.norm(prefix + "indexer.q_norm", size)
        file.norm(prefix + "indexer.k_norm", size)
    if c.get("probs_bias"):
        file.vector(prefix + ("exp_probs_b" if arch == "hy_v3" else "exp_probs_b.bias"), experts)
    if c.get("experts_per_group"):  # networks that neighbouring experts share
        networks, n_chunk = experts // c["experts_per_group"], c["n_ff_chunk"]
        file.matrix(prefix + "ffn_gate_chexps.weight", networks, n_chunk, width)
        file.matrix(prefix + "ffn_up_chexps.weight", networks, n_chunk, width)
        file.matrix(prefix + "ffn_down_chexps.weight", networks, width, n_chunk, gain=DOWN)
