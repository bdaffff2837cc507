"""Feed-forward parts in float64: gated and plain, mixtures of experts, LFM2's short convolution."""

from collections.abc import Callable

import numpy as np

from tests.golden.make.reference_model import ReferenceModel, gelu, silu, softmax

GELU = {"gemma", "gemma2", "gemma3", "gemma4", "gemma-embedding", "starcoder2", "gpt2", "phi2", "gptneox", "falcon"}
GELU |= {"bert", "nomic-bert-moe", "jina-bert-v2", "modern-bert"}
GELU |= {"gemma-embedding2", "spark2_5", "grok", "jina-bert-v3", "starcoder", "codeshell", "bloom", "mpt"}
SQUARED_RELU = {"arcee", "nemotron", "jais2", "nemotron_h", "nemotron_h_moe", "plm"}
FUSED_GATE_UP = {"phi3", "glm4", "jina-bert-v2", "modern-bert", "chatglm"}  # gate in the first half of ffn_up's rows
FUSED_GATE_UP |= {"neo-bert", "plamo2", "plamo3"}
NORMALIZED_EXPERTS = {"llama", "qwen3moe", "granitemoe", "ernie4_5-moe", "phimoe", "lfm2moe", "qwen3vlmoe"}
NORMALIZED_EXPERTS |= {"qwen4exp", "rnd1", "mellum", "maple", "granite_swa", "minimax-01"}
NORMALIZED_EXPERTS |= {"hunyuan-moe", "minimax-m2", "smallthinker", "dbrx", "granitehybrid", "qwen35moe"}
NORMALIZED_EXPERTS |= {
    "qwen3next",
    "arctic",
    "grok",
    "mimo2",
    "grovemoe",
    "kimi-linear",
    "gemma4",
}  # the chosen experts' weights sum to 1
SWIGLU_OAI = {"gpt-oss", "minimax-m3"}  # whose gates and what they scale have limits
SIGMOID = 2  # of expert_gating_func
SQRT_SOFTPLUS = 4  # a value of expert_gating_func
SIGMOID_ROUTERS = {"llama4", "mimo2", "step35", "glm-dsa", "hy_v3", "cohere2moe", "laguna", "k2-horizon"}  # by default
SIGMOID_ROUTERS |= {"glm5-next"}
LIMITED_FIRST = ("glm5-next", "deepseek4")  # whose gates have their limits before the activation, too


def squared_relu(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x, 0) ** 2)


def activation(model: ReferenceModel) -> Callable[[np.ndarray], np.ndarray]:
    if model.architecture in SQUARED_RELU:
        return squared_relu
    return gelu if model.architecture in GELU else silu


def feed_forward(
    model: ReferenceModel,
    x: np.ndarray,
    layer: int,
    start: np.ndarray | None = None,
    *,
    routed: bool = True,
    ids: np.ndarray | None = None,
) -> np.ndarray:
    """`start`: the layer's input, which SmallThinker's router reads. Not `routed`: the network beside the experts.

    `ids`: the tokens, which choose the experts of DeepSeek V4's first layers.
    """
    prefix, act = f"blk.{layer}.", activation(model)
    if routed and model.experts and prefix + "ffn_gate_inp.weight" in model.tensors:
        table = model.tensors.get(prefix + "ffn_gate_tid2eid.weight")
        given = None if table is None else table[ids].astype(int)
        return mixture(model, x, prefix, x if start is None or model.architecture != "smallthinker" else start, given)
    up = model.linear(x, prefix + "ffn_up")
    if model.architecture in FUSED_GATE_UP:
        gate, up = np.split(up, 2, axis=1)
        hidden = act(gate) * up
    elif model.architecture in SWIGLU_OAI:
        hidden = swiglu_oai(model.linear(x, prefix + "ffn_gate"), up)
    elif model.architecture == "kimi-k3":
        hidden = situ(model, model.linear(x, prefix + "ffn_gate"), up)
    elif prefix + "ffn_gate.weight" in model.tensors:
        hidden = limited(model, act(shared_gate(model, x, prefix, "")), up, prefix, "shexp")
    elif model.architecture == "apertus":
        hidden = xielu(model, up, layer)
    else:
        hidden = act(up)
    if prefix + "ffn_sub_norm.weight" in model.tensors:
        hidden = model.norm(hidden, prefix + "ffn_sub_norm")
    return model.linear(hidden, prefix + "ffn_down")


def situ(model: ReferenceModel, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Kimi K3's activation: both factors are bounded by hyperbolic tangents."""
    most, linear = (model.key(f"activation.situ_{name}") for name in ("beta", "linear_beta"))
    up = linear * np.tanh(up / linear) if linear else up
    return np.asarray(most * np.tanh(gate / most) / (1 + np.exp(-gate)) * up)


def swiglu_oai(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    gate, up = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
    return np.asarray(gate / (1 + np.exp(-1.702 * gate)) * (up + 1))


def limited(model: ReferenceModel, gate: np.ndarray, up: np.ndarray, prefix: str, kind: str) -> np.ndarray:
    """gate * up, after the limits of both that Step 3.5 and Maple have."""
    limit = limit_of(model, prefix, kind)
    return np.asarray(np.minimum(gate, limit) * np.clip(up, -limit, limit) if limit else gate * up)


def shared_gate(model: ReferenceModel, x: np.ndarray, prefix: str, kind: str) -> np.ndarray:
    """The gate of a shared expert or a dense network, which some limit before the activation, too."""
    gate = model.linear(x, f"{prefix}ffn_gate{kind}")
    limit = limit_of(model, prefix, "shexp") if model.architecture in LIMITED_FIRST else 0.0
    return np.minimum(gate, limit) if limit else gate


def limit_of(model: ReferenceModel, prefix: str, kind: str) -> float:
    """The limit of a layer's gates and of what they scale; 0: none."""
    others = model.key("swiglu_clamp_exp", 0.0) if model.architecture in LIMITED_FIRST else 0.0
    limits = model.key(f"swiglu_clamp_{kind}", others)
    return float(limits[int(prefix.split(".")[1])] if isinstance(limits, list) else limits)


def xielu(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    """Apertus' activation (Huang and Schlag 2024): quadratic above 0, exponential below."""
    alpha_n, alpha_p, beta, eps = (model.metadata[f"xielu.{n}"][layer] for n in ("alpha_n", "alpha_p", "beta", "eps"))
    negative = (np.expm1(np.minimum(x, eps)) - x) * (beta + np.log1p(np.exp(alpha_n)))
    return np.asarray(beta * x + np.where(x > 0, x * x * np.log1p(np.exp(alpha_p)), negative))


def mixture(
    model: ReferenceModel, x: np.ndarray, prefix: str, routed: np.ndarray, given: np.ndarray | None = None
) -> np.ndarray:
    """The chosen experts' weighted sum, plus the shared expert if there is one. `routed`: what the router reads.

    `given`: the experts that are chosen without the router.
    """
    gpt_oss = model.architecture == "gpt-oss"
    logits = model.linear(routed, prefix + "ffn_gate_inp")
    sigmoid = model.key("expert_gating_func", SIGMOID if model.architecture in SIGMOID_ROUTERS else None) == SIGMOID
    probabilities = logits if gpt_oss else 1 / (1 + np.exp(-logits)) if sigmoid else softmax(logits)
    if model.key("expert_gating_func") == SQRT_SOFTPLUS:
        probabilities = np.sqrt(np.logaddexp(0, logits))
    bias = model.tensors.get(prefix + "exp_probs_b.bias", model.tensors.get(prefix + "exp_probs_b"))
    if bias is not None:
        logits = probabilities + bias  # what experts are chosen by
    if model.key("expert_group_count", 0) > 1:
        logits = without_lost_groups(model, probabilities if bias is None else logits)
    order = np.argsort(-logits, axis=1, kind="stable")
    used = model.experts_used
    if isinstance(used, list):  # of each layer
        used = used[int(prefix.split(".")[1])]
    chosen = order[:, :used] if given is None else given
    if used < model.experts and given is None:
        edge = np.take_along_axis(logits, order[:, used - 1 : used + 1], 1)
        model.route_margin = min(model.route_margin, float((edge[:, 0] - edge[:, 1]).min()))
    weights = np.take_along_axis(probabilities, chosen, 1)
    if gpt_oss:
        weights = softmax(weights)
    elif model.architecture in NORMALIZED_EXPERTS or model.key("expert_weights_norm"):
        weights = weights / weights.sum(1, keepdims=True)
    weights = weights * (model.key("expert_weights_scale") or 1.0)
    latent = prefix + "ffn_latent_down.weight" in model.tensors  # Nemotron-H's experts' inputs and outputs
    routed_down = prefix + "ffn_routed_down.weight" in model.tensors  # Kimi K3's, with a norm after the experts
    inputs = model.linear(x, prefix + "ffn_latent_down") if latent else x
    if routed_down:
        inputs = model.linear(x, prefix + "ffn_routed_down")
    out = np.zeros_like(inputs)
    for i, row in enumerate(inputs):
        for expert, weight in zip(chosen[i], weights[i], strict=True):
            if model.architecture == "llama4":  # weights its inputs
                out[i] += expert_output(model, weight * row, prefix, int(expert))
            else:
                out[i] += weight * expert_output(model, row, prefix, int(expert))
    if latent:
        out = model.linear(out, prefix + "ffn_latent_up")
    if routed_down:
        out = model.linear(model.norm(out, prefix + "ffn_routed_norm"), prefix + "ffn_routed_up")
    if prefix + "ffn_up_shexp.weight" in model.tensors:
        out += shared_expert(model, x, prefix)
        if model.architecture == "cohere2moe":
            out /= 2
    if prefix + "ffn_up_chexps.weight" in model.tensors:
        out = out + shared_networks(model, out, prefix, order, probabilities)
    return out


def shared_networks(
    model: ReferenceModel, x: np.ndarray, prefix: str, order: np.ndarray, probabilities: np.ndarray
) -> np.ndarray:
    """GroveMoE's second networks, one for every few experts, for the first ones' output x.

    As llama.cpp has it, a network's weight is the probability of the expert with the network's own number.
    """
    sharing = model.key("experts_per_group")
    assert isinstance(model.experts_used, int)
    networks = order[:, : min(model.experts_used, model.experts // sharing)] // sharing
    weights = np.take_along_axis(probabilities, networks, 1)
    weights = weights / weights.sum(1, keepdims=True) * model.key("expert_group_scale")
    gate, up, down = (model.tensors[f"{prefix}ffn_{name}_chexps.weight"] for name in ("gate", "up", "down"))
    out = np.zeros_like(x)
    for i, row in enumerate(x):
        for network, weight in zip(networks[i], weights[i], strict=True):
            out[i] += weight * (down[network] @ (silu(gate[network] @ row) * (up[network] @ row)))
    return out


def without_lost_groups(model: ReferenceModel, scores: np.ndarray) -> np.ndarray:
    """Scores (n, experts), minus infinity outside the groups whose two best experts have the largest sums."""
    grouped = scores.reshape(len(scores), model.key("expert_group_count"), -1)
    sums = np.sort(grouped, axis=2)[:, :, -2:].sum(2)
    ranks = np.argsort(np.argsort(-sums, axis=1, kind="stable"), axis=1)
    used = model.key("expert_group_used_count")
    ordered = -np.sort(-sums, axis=1)
    model.route_margin = min(model.route_margin, float((ordered[:, used - 1] - ordered[:, used]).min()))
    return np.where(ranks[:, :, None] < used, grouped, -np.inf).reshape(scores.shape)


def expert_activation(model: ReferenceModel) -> Callable[[np.ndarray], np.ndarray]:
    if model.architecture == "smallthinker":
        return lambda x: np.asarray(np.maximum(x, 0))
    return gelu if model.architecture in ("gemma4", "grok") else silu


def expert_output(model: ReferenceModel, x: np.ndarray, prefix: str, expert: int) -> np.ndarray:
    """One expert's output for one token (width)."""

    def project(name: str, v: np.ndarray) -> np.ndarray:
        y = model.tensors[f"{prefix}ffn_{name}_exps.weight"][expert] @ v
        bias = model.tensors.get(f"{prefix}ffn_{name}_exps.bias")
        return np.asarray(y if bias is None else y + bias[expert])

    if f"{prefix}ffn_gate_up_exps.weight" in model.tensors:  # Gemma 4's, with a factor of the output
        gate, up = np.split(project("gate_up", x), 2)
        factors = model.tensors[f"{prefix}ffn_down_exps.scale"]
        return np.asarray(factors[expert] * project("down", gelu(gate) * up))
    up = project("up", x)
    if f"{prefix}ffn_gate_exps.weight" not in model.tensors:
        return project("down", activation(model)(up))
    gate = project("gate", x)
    if model.architecture in SWIGLU_OAI:
        return project("down", swiglu_oai(gate, up))
    if model.architecture == "kimi-k3":
        return project("down", situ(model, gate, up))
    if model.architecture in ("maple", "hy_v4", *LIMITED_FIRST) and (limit := limit_of(model, prefix, "exp")):
        gate = np.minimum(gate, limit)
    return project("down", limited(model, expert_activation(model)(gate), up, prefix, "exp"))


def shared_expert(model: ReferenceModel, x: np.ndarray, prefix: str) -> np.ndarray:
    hidden = model.linear(x, prefix + "ffn_up_shexp")
    if model.architecture in SWIGLU_OAI:
        hidden = swiglu_oai(model.linear(x, prefix + "ffn_gate_shexp"), hidden)
    elif model.architecture == "kimi-k3":
        hidden = situ(model, model.linear(x, prefix + "ffn_gate_shexp"), hidden)
    elif prefix + "ffn_gate_shexp.weight" in model.tensors:
        hidden = limited(model, silu(shared_gate(model, x, prefix, "_shexp")), hidden, prefix, "shexp")
    elif model.architecture == "granite_swa":
        gate, up = np.split(hidden, 2, axis=1)
        hidden = silu(gate) * up
    else:
        hidden = activation(model)(hidden)
    out = model.linear(hidden, prefix + "ffn_down_shexp")
    router = model.tensors.get(prefix + "ffn_gate_inp_shexp.weight")
    if router is None:
        return out
    return np.asarray(out / (1 + np.exp(-(x @ router.reshape(-1))))[:, None])


def short_convolution(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    """LFM2's gated convolution over each channel's last few tokens, or, of an encoder, those around it."""
    prefix = f"blk.{layer}.shortconv."
    b, c, z = np.split(model.linear(x, prefix + "in_proj"), 3, axis=1)
    kernel = model.tensors[prefix + "conv.weight"]
    taps = kernel.shape[1]
    before = taps - 1 if model.causal else taps // 2
    padded = np.concatenate([np.zeros((before, model.width)), b * z, np.zeros((taps - 1 - before, model.width))])
    y = sum(padded[j : j + len(x)] * kernel[:, j] for j in range(taps))
    return model.linear(c * y, prefix + "out_proj")
