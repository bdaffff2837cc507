"""Latent attention (MLA) in float64, from the decompressed keys and values."""

import math

import numpy as np

from tests.golden.make.reference_attention import mask, rotate, rotation, temperatures
from tests.golden.make.reference_index import hidden_positions
from tests.golden.make.reference_model import ReferenceModel, softmax


def latent_attention(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    """The attention's output (n, width)."""
    prefix, n, tensors, heads = f"blk.{layer}.", len(x), model.tensors, model.layer_heads[layer]
    rank, rope = len(model.tensors[prefix + "attn_kv_a_norm.weight"]), model.key("rope.dimension_count")
    low: np.ndarray | None = None
    if prefix + "attn_q_a.weight" in tensors:
        low = model.norm(model.linear(x, prefix + "attn_q_a"), prefix + "attn_q_a_norm")
        q = model.linear(low, prefix + "attn_q_b")
    else:
        q = model.linear(x, prefix + "attn_q")
    q = q.reshape(n, heads, -1)
    nope = q.shape[2] - rope
    compressed = model.linear(x, prefix + "attn_kv_a_mqa")
    latent = model.norm(compressed[:, :rank], prefix + "attn_kv_a_norm")
    if prefix + "attn_k_b.weight" in tensors:
        k = np.einsum("hrc,nr->nhc", tensors[prefix + "attn_k_b.weight"], latent)
        v = np.einsum("hvr,nr->nhv", tensors[prefix + "attn_v_b.weight"], latent)
    else:
        kv = model.linear(latent, prefix + "attn_kv_b").reshape(n, heads, -1)
        k, v = kv[:, :, :nope], kv[:, :, nope:]
    turned = rotation(model, np.arange(n), layer)
    scale, magnitude = scales(model, nope + rope)
    turned = turned[0] * magnitude, turned[1] * magnitude
    q_rope, k_rope = q[:, :, nope:], compressed[:, None, rank:]
    if prefix + "attn_k_norm.weight" in tensors:
        k_rope = model.norm(k_rope, prefix + "attn_k_norm")
    if rope and model.architecture not in ("kimi-linear", "kimi-k3"):
        q_rope, k_rope = rotate(model, q_rope, turned), rotate(model, k_rope, turned)
    scores = np.einsum("qhc,khc->hqk", q[:, :, :nope], k) + np.einsum("qhc,kc->hqk", q_rope, k_rope[:, 0])
    if growth := model.key("attention.temperature_scale"):
        scores *= temperatures(n, model.key("attention.temperature_length"), growth)[:, None]
    scores = np.where(mask(model, n, layer), -np.inf, scores * scale)
    if low is not None and (hidden := hidden_positions(model, x, low, layer, turned)) is not None:
        scores[:, hidden] = -np.inf
    if prefix + "attn_sinks.weight" in tensors:  # a logit that takes probability and has no value
        sinks = np.broadcast_to(tensors[prefix + "attn_sinks.weight"][:, None, None], (heads, n, 1))
        scores = np.concatenate([scores, sinks], -1)
    weights = softmax(scores)[..., :n]
    mixed = np.einsum("hqk,khv->qhv", weights, v)
    if prefix + "attn_gate.weight" in tensors:
        mixed = mixed / (1 + np.exp(-model.linear(x, prefix + "attn_gate"))).reshape(n, heads, -1)
    return model.linear(mixed.reshape(n, -1), prefix + "attn_output")


def scales(model: ReferenceModel, key: int) -> tuple[float, float]:
    """(the scores' factor, what remains of the rotation's magnitude): YaRN with yarn_log_multiplier moves it."""
    if model.key("rope.scaling.type") != "yarn" or model.architecture in ("bailingmoe3", "dots3note", "hy_v4"):
        return 1 / math.sqrt(key), 1.0
    log = math.log(model.key("rope.scaling.factor"))
    multiplier = model.key("rope.scaling.yarn_log_multiplier", 0.0)
    divisor = 0.1 if model.architecture == "deepseek2" else multiplier
    magnitude = 1 / (1 + divisor * log) if multiplier else 1.0
    mscale = magnitude * (1 + 0.1 * log) * (1 + multiplier * log)
    return mscale * mscale / math.sqrt(key), magnitude
