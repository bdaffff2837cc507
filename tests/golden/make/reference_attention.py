"""Attention in float64: rotary positions, masks, sinks, ALiBi."""

import math

import numpy as np

from tests.golden.make.reference_model import ReferenceModel, softmax

# These rotate the pairs (0, 1), (2, 3), ...; the others pair i with i + n_rot / 2.
ADJACENT_PAIRS = {"granitehybrid", "llama", "arcee", "granite", "granitemoe", "smollm3", "cohere2", "command-r", "glm4"}
ADJACENT_PAIRS |= {"ernie4_5", "internlm2", "xverse", "mistral3", "minicpm", "chatglm"}
ADJACENT_PAIRS |= {
    "baichuan",
    "maincoder",
    "olmo",
    "ernie4_5-moe",
    "bailingmoe",
    "deepseek",
    "deepseek2",
    "deepseek32",
    "glm-dsa",
    "plm",
    "mistral4",
    "neo-bert",
    "llama-embed",
    "bailingmoe3",
}
ADJACENT_PAIRS |= {"cohere2moe", "nanbeige", "muse-glimmer", "granite_swa", "llama4", "deci", "arctic", "llada"}
ADJACENT_PAIRS |= {"deepseek4", "graniteswitch", "dots3note", "chameleon", "hy_v4"}
ROTATED_FIRST = {"hunyuan-dense", "hunyuan_vl", "hunyuan-moe", "maincoder", "talkie"}  # then normalised
NO_ROPE = {"jamba", "nemotron_h", "nemotron_h_moe", "gpt2", "bert", "jina-bert-v2"}
NO_ROPE |= {"starcoder", "bloom", "mpt", "jais", "refact"}
LLAMA4_LARGE = 128  # experts of the model that does not normalise queries and keys
BAICHUAN_13B = 40  # layers
ALIBI = {"jina-bert-v2": 8.0, "bloom": 8.0, "refact": 8.0}  # the largest bias, where the metadata has none
WIDE_QK_NORM = {"olmo2", "olmoe", "minimax-m2"}  # over all heads at once
OWN_WINDOW_BASE = {"step35", "mimo2", "plamo3", "gemma3", "gemma3n", "gemma4", "gemma-embedding", "modern-bert"}
OWN_WINDOW_BASE |= {"gemma-embedding2"}
SCALED_WINDOW_BASE = {"maple", "spark2_5", "dots3note"}  # whose windows may have another base, but the same scaling

Rotation = tuple[np.ndarray, np.ndarray]
KeysValues = tuple[np.ndarray, np.ndarray]


def frequency_factors(model: ReferenceModel, layer: int) -> np.ndarray | None:
    """What divides the rotation's frequencies, if anything."""
    tensors = model.tensors
    if "rope_freqs.weight" in tensors:
        skipped = model.architecture in ("gemma4", "step35") and model.windowed(layer)
        return None if skipped else tensors["rope_freqs.weight"][: rotated_dimensions(model, layer) // 2]
    if "rope_factors_long.weight" in tensors:
        is_long = model.n_ctx > model.key("rope.scaling.original_context_length")
        return tensors["rope_factors_long.weight" if is_long else "rope_factors_short.weight"]
    return None


def rotation(model: ReferenceModel, positions: np.ndarray, layer: int) -> Rotation:
    """(cos, sin), each (n, n_rot / 2), times the attention's temperature."""
    key, windowed = model.key, model.windowed(layer)
    n = rotated_dimensions(model, layer)
    base: float = key("rope.freq_base", 10000.0)
    if alpha := key("rope.scaling.alpha", 0.0):
        base *= alpha ** (n / (n - 2))
    magnitude: float = key("rope.scaling.attn_factor", 1.0)
    scaling, factor = key("rope.scaling.type", "linear"), key("rope.scaling.factor", key("rope.scale_linear", 1.0))
    if windowed and model.architecture in OWN_WINDOW_BASE:  # and never scaled
        base, factor = key("rope.freq_base_swa", 10000.0), 1.0
    if windowed and model.architecture in SCALED_WINDOW_BASE:
        base = key("rope.freq_base_swa", base)
    if windowed and model.architecture == "muse-glimmer":
        base, factor = key("rope.freq_base_swa", base), 1.0
    if windowed and model.architecture == "laguna":
        base = key("rope.freq_base_swa", base)
    if windowed and model.architecture in ("olmo2", "mellum", "laguna"):
        scaling, factor, magnitude = "none", 1.0, 1.0
    if model.architecture == "deepseek4":  # YaRN's magnitude is taken back; layers without compression do not scale
        if key("attention.compress_ratios")[layer]:
            base, magnitude = key("attention.compress_rope_freq_base"), 1 / (1 + 0.1 * math.log(factor))
        else:
            scaling, factor = "none", 1.0
    i = np.arange(n // 2)
    angles = positions[:, None] * base ** (-2.0 * i / n)
    if any(sections := key("rope.dimension_sections", [])):  # text has no position of the fourth kind
        angles[:, i % sum(sections) >= sum(sections[:3])] = 0.0
    factors = frequency_factors(model, layer)
    if factors is not None:
        angles = angles / factors
    if scaling == "yarn":
        original = key("rope.scaling.original_context_length")

        def dimension(turns: float) -> float:
            """The dimension that turns so often within the original context."""
            return float(n * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base)))

        fast = key("rope.scaling.yarn_beta_fast", 8.0 if model.architecture == "grok" else 32.0)
        low, high = max(0, math.floor(dimension(fast))), min(n - 1, math.ceil(dimension(1.0)))
        keep = 1 - np.clip((i - low) / max(0.001, high - low), 0, 1)  # 0: interpolate
        angles = angles * (1 - keep) / factor + angles * keep
        magnitude *= 1 + 0.1 * math.log(factor)
    elif scaling == "linear":
        angles = angles / factor
    return np.cos(angles) * magnitude, np.sin(angles) * magnitude


def rotated_dimensions(model: ReferenceModel, layer: int) -> int:
    """How many of a head's dimensions rotate."""
    found = int(model.key("rope.dimension_count", model.head_dim(layer)))
    if model.windowed(layer):
        found = int(model.key("rope.dimension_count_swa", found))
    return found // 2 if model.architecture == "step35" and not model.windowed(layer) else found


def rotate(model: ReferenceModel, x: np.ndarray, turned: Rotation) -> np.ndarray:
    """Rotate x (n, heads, head_dim); dimensions from n_rot on pass through."""
    cos, sin = turned[0][:, None], turned[1][:, None]
    n, out = 2 * cos.shape[-1], x.copy()
    if model.architecture in ADJACENT_PAIRS:
        first, second = slice(0, n, 2), slice(1, n, 2)
    else:
        first, second = slice(0, n // 2), slice(n // 2, n)
    a, b = x[..., first], x[..., second]
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out


def uses_rope(model: ReferenceModel, layer: int) -> bool:
    if pattern := model.key("attention.rope_pattern"):
        return bool(pattern[layer])
    if model.architecture == "cohere2moe":
        return model.windowed(layer) or layer < int(model.key("leading_dense_block_count"))
    if model.architecture == "baichuan":
        return model.n_layer != BAICHUAN_13B
    if model.architecture in ("smollm3", "llama4"):
        return (layer + 1) % 4 != 0
    if model.architecture in ("cohere2", "exaone-moe", "afmoe", "smallthinker", "maple", "muse-glimmer"):
        return model.windowed(layer)
    return model.architecture not in NO_ROPE and bool(model.key("rope.scaling.finetuned", True))


def mask(model: ReferenceModel, n: int, layer: int) -> np.ndarray:
    """True where a query (row) must not see a key (column); (n, n)."""
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    if model.causal:
        hidden = distance < 0
        # A query sees itself and the window - 1 tokens before it.
        if not model.windowed(layer):
            return hidden
        if model.architecture == "llama4":  # its windows are chunks that do not overlap
            chunk = np.arange(n) // model.window
            return hidden | (chunk[:, None] != chunk[None, :])
        return hidden | (distance >= model.window)
    if model.windowed(layer):  # half a window to either side
        return np.abs(distance) > model.window // 2
    return np.zeros((n, n), bool)


def alibi(heads: int, n: int, most: float) -> np.ndarray:
    """ALiBi's scores (heads, n, n): each head loses a fixed amount for each position of distance; bias up to `most`."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-most / power * (h + 1)) for h in range(power)]
    slopes += [2.0 ** (-most / 2 / power * (2 * h + 1)) for h in range(heads - power)]
    distance = np.abs(np.arange(n)[:, None] - np.arange(n)[None, :])
    return -np.array(slopes)[:, None, None] * distance


def keys_values(model: ReferenceModel, x: np.ndarray, layer: int) -> KeysValues:
    """A layer's own keys and values (n, kv heads, head_dim) before rotation, from separate matrices."""
    prefix = f"blk.{layer}."
    k = model.linear(x, prefix + "attn_k")
    v = model.linear(x, prefix + "attn_v") if prefix + "attn_v.weight" in model.tensors else k
    return k, v


def unit_heads(model: ReferenceModel, q: np.ndarray, k: np.ndarray, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """Llama 4's queries and keys: normalised where they are rotated, else queries that grow with the position."""
    if uses_rope(model, layer):
        return (q, k) if model.experts == LLAMA4_LARGE else (model.normalize(q), model.normalize(k))
    chunks = np.floor((np.arange(len(q)) + 1) / model.window)
    return q * (1 + 0.1 * np.log(chunks + 1))[:, None, None], k


def temperatures(n: int, length: int, growth: float) -> np.ndarray:
    """Mistral's factors of queries, which grow with every `length` positions: (n,)."""
    found: np.ndarray = 1 + growth * np.log(1 + np.arange(n) // length)
    return found


def head_norm(model: ReferenceModel, x: np.ndarray, name: str) -> np.ndarray:
    """The norm of each head of x (n, heads, head_dim). Heads of K2 Horizon have weights of their own, Talkie's one."""
    if model.architecture == "chameleon":  # a layer norm with an epsilon of its own
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * model.tensors[name + ".weight"]
        return np.asarray(scaled + model.tensors.get(name + ".bias", 0.0))
    if model.architecture not in ("k2-horizon", "talkie"):
        return model.norm(x, name)
    return np.asarray(model.normalize(x) * model.tensors[name + ".weight"].reshape(x.shape[1], -1))


def attention(
    model: ReferenceModel, x: np.ndarray, layer: int, shared: dict[int, KeysValues], hidden: np.ndarray | None = None
) -> np.ndarray:
    """The attention's output (n, width). `shared` collects the layers' keys and values for those that have none.

    `hidden`: True where an index has not chosen a key (column) for a query (row).
    """
    prefix, n, arch = f"blk.{layer}.", len(x), model.architecture
    heads, kv_heads, size = model.layer_heads[layer], model.kv_heads[layer], model.head_dim(layer)
    turned = rotation(model, np.arange(n), layer) if uses_rope(model, layer) else None
    gate: np.ndarray | None = None
    if prefix + "attn_qkv.weight" in model.tensors:
        fused = model.linear(x, prefix + "attn_qkv")
        q, k, v = np.split(fused, [heads * size, (heads + kv_heads) * size], axis=1)
    else:
        q = model.linear(x, prefix + "attn_q")
        if q.shape[1] == 2 * heads * size:  # each head's queries, then its gates
            q, gate = (part.reshape(n, -1) for part in np.split(q.reshape(n, heads, -1), 2, axis=2))
        k, v = keys_values(model, x, layer) if prefix + "attn_k.weight" in model.tensors else (q, q)
    limit = model.key("attention.clamp_kqv")
    if limit:
        q, k, v = (np.clip(a, -limit, limit) for a in (q, k, v))
    if arch in WIDE_QK_NORM:
        q, k = model.norm(q, prefix + "attn_q_norm"), model.norm(k, prefix + "attn_k_norm")
    q, k = q.reshape(n, -1, size), k.reshape(n, -1, size)
    v = v.reshape(n, k.shape[1], -1)  # its heads may be shorter
    if turned and arch in ROTATED_FIRST:
        q, k, turned = rotate(model, q, turned), rotate(model, k, turned), None
    if arch not in WIDE_QK_NORM and prefix + "attn_q_norm.weight" in model.tensors:
        q = head_norm(model, q, prefix + "attn_q_norm")
    if arch not in WIDE_QK_NORM and prefix + "attn_k_norm.weight" in model.tensors:
        k = head_norm(model, k, prefix + "attn_k_norm")
    if arch == "talkie":
        k = model.normalize(k)
    if arch in ("gemma3n", "gemma4", "gemma-embedding2"):
        v = model.normalize(v)
    if turned:
        q, k = rotate(model, q, turned), rotate(model, k, turned)
    if arch == "llama4":
        q, k = unit_heads(model, q, k, layer)
    if growth := model.key("attention.temperature_scale"):
        q = q * temperatures(n, model.key("rope.scaling.original_context_length"), growth)[:, None, None]
    own = model.n_layer - model.key("attention.shared_kv_layers", 0)
    if layer < own:
        shared[layer] = k, v
    else:  # the last layer with keys of its own and the same kind of window
        k, v = shared[own - 2 if model.windowed(layer) else own - 1]
    own_scales = {"jais": 1 / size, "grok": model.key("attention.output_scale")}
    own_scales |= dict.fromkeys(("gemma3n", "gemma4", "gemma-embedding2"), 1.0)
    scale = model.key("attention.scale") or own_scales.get(arch, 1 / math.sqrt(size))
    k, v = (np.repeat(a, heads // kv_heads, axis=1) for a in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    bias = model.key("attention.max_alibi_bias", ALIBI.get(arch))
    if arch == "baichuan" and model.n_layer == BAICHUAN_13B:
        bias = 8.0
    if bias:
        scores += alibi(heads, n, bias)
    cap = model.key("attn_logit_softcapping")
    if cap:
        scores = cap * np.tanh(scores / cap)
    scores = np.where(mask(model, n, layer) | (False if hidden is None else hidden), -np.inf, scores)
    if prefix + "attn_sinks.weight" in model.tensors:  # a logit that takes probability and has no value
        sink = np.broadcast_to(model.tensors[prefix + "attn_sinks.weight"][:, None, None], (heads, n, 1))
        weights = softmax(np.concatenate([scores, sink], -1))[..., :-1]
    else:
        weights = softmax(scores)
    mixed = np.einsum("hqk,khd->qhd", weights, v).reshape(n, -1)
    mixed = mixed * model.key("attention.value_scale", 1.0)
    if gate is not None:
        mixed = mixed / (1 + np.exp(-gate))
    if prefix + "attn_gate.weight" in model.tensors:
        gates = model.linear(x, prefix + "attn_gate")
        if arch == "k2-horizon":
            gates = np.log2(1 + 2**gates)
        else:
            gates = np.log1p(np.exp(gates)) if arch == "laguna" else 1 / (1 + np.exp(-gates))
        mixed = mixed * np.repeat(gates, mixed.shape[1] // gates.shape[1], axis=1)
    if prefix + "attn_sub_norm.weight" in model.tensors:
        mixed = model.norm(mixed, prefix + "attn_sub_norm")
    return model.linear(mixed, prefix + "attn_output")
