"""RWKV in float64, token by token: RWKV-6 "Finch" (Peng et al. 2024), RWKV-7 "Goose" (Peng et al. 2025), and Qwen 2's
networks with their time mixes.
"""

import numpy as np

from tests.golden.make.reference_model import ReferenceModel, silu

GROUP_EPSILON = 64e-5  # of the norm of each head
DECAY = -0.606531  # -exp(-1/2)


def hidden(model: ReferenceModel, x: np.ndarray) -> np.ndarray:
    """All layers on the embeddings x (n, width), before the output norm."""
    if "token_embd_norm.weight" in model.tensors:
        x = model.norm(x, "token_embd_norm")
    first_values: list[np.ndarray] = []
    rescale = model.key("rescale_every_n_layers", 0)
    for layer in range(model.n_layer):
        prefix = f"blk.{layer}."
        h = model.norm(x, prefix + "attn_norm")
        mixed = (
            time_mix_7(model, h, layer, first_values)
            if model.architecture.endswith("7")
            else time_mix_6(model, h, layer)
        )
        x = x + model.linear(mixed, prefix + "time_mix_output")
        if prefix + "attn_norm_2.weight" in model.tensors:
            x = x + channel_mix(model, model.norm(x, prefix + "attn_norm_2"), layer)
        else:
            h = model.norm(x, prefix + "ffn_norm")
            gated = silu(model.linear(h, prefix + "ffn_gate")) * model.linear(h, prefix + "ffn_up")
            x = x + model.linear(gated, prefix + "ffn_down")
        if rescale and (layer + 1) % rescale == 0:
            x = x / 2
    return x


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def change(x: np.ndarray) -> np.ndarray:
    """What leads from each token of x (n, width) to the one before; from the first one to zero."""
    return np.asarray(np.concatenate([np.zeros_like(x[:1]), x[:-1]]) - x)


def low_rank(model: ReferenceModel, x: np.ndarray, name: str, activation: object = None) -> np.ndarray:
    y = x @ model.tensors[f"{name}1.weight"].T
    if callable(activation):
        y = activation(y)
    return np.asarray(y @ model.tensors[f"{name}2.weight"].T)


def of_heads(model: ReferenceModel, x: np.ndarray) -> np.ndarray:
    """x (n, heads, head size)."""
    return x.reshape(len(x), -1, model.key("wkv.head_size"))


def head_norm(model: ReferenceModel, y: np.ndarray, name: str) -> np.ndarray:
    """The layer norm of each head of y (n, heads, size): (n, width)."""
    y = y - y.mean(-1, keepdims=True)
    y = y / np.sqrt((y * y).mean(-1, keepdims=True) + GROUP_EPSILON)
    return np.asarray(y.reshape(len(y), -1) * model.tensors[name + ".weight"] + model.tensors[name + ".bias"])


def time_mix_7(model: ReferenceModel, x: np.ndarray, layer: int, first_values: list[np.ndarray]) -> np.ndarray:
    name, tensors = f"blk.{layer}.time_mix_", model.tensors
    mixes = x + change(x) * tensors[name + "lerp_fused.weight"].reshape(-1, 1, x.shape[1])
    xr, xw, xk, xv, xa = mixes[:5]
    r, k, v = (model.linear(h, name + part) for h, part in ((xr, "receptance"), (xk, "key"), (xv, "value")))
    decay = np.exp(DECAY * sigmoid(low_rank(model, xw, name + "w", np.tanh) + tensors[name + "w0.weight"]))
    if layer == 0:
        first_values.append(v)
    else:
        v = v + (first_values[0] - v) * sigmoid(low_rank(model, xv, name + "v") + tensors[name + "v0.weight"])
    rate = sigmoid(low_rank(model, xa, name + "a") + tensors[name + "a0.weight"])
    removed = of_heads(model, k * tensors[name + "k_k.weight"])
    removed = removed / np.maximum(np.sqrt((removed**2).sum(-1, keepdims=True)), 1e-12)
    k = k * (1 + (rate - 1) * tensors[name + "k_a.weight"])
    r, k, v, decay, rate = (of_heads(model, part) for part in (r, k, v, decay, rate))
    state, out = np.zeros((*r.shape[1:], r.shape[2])), np.zeros_like(r)
    for t in range(len(x)):
        lost = (state * removed[t][:, None]).sum(-1)
        state = state * decay[t][:, None] + v[t][..., None] * k[t][:, None]
        state = state - lost[..., None] * (removed[t] * rate[t])[:, None]
        out[t] = (state * r[t][:, None]).sum(-1)
    own = name + "ln"
    y = head_norm(model, out, own) if own + ".weight" in tensors else out.reshape(len(x), -1)
    bonus = (k * r * tensors[name + "r_k.weight"].reshape(r.shape[1:])).sum(-1, keepdims=True) * v
    y = y + bonus.reshape(y.shape)
    return y * low_rank(model, mixes[5], name + "g", sigmoid) if name + "g1.weight" in tensors else y


def time_mix_6(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    name, tensors, width = f"blk.{layer}.time_mix_", model.tensors, x.shape[1]
    before = change(x)
    low = np.tanh((x + before * tensors[name + "lerp_x.weight"].reshape(-1)) @ tensors[name + "w1.weight"].T)
    own = np.einsum("npr,pwr->pnw", low.reshape(len(x), 5, -1), tensors[name + "w2.weight"])
    mixes = x + before * (own + tensors[name + "lerp_fused.weight"].reshape(5, 1, width))
    xw, xk, xv, xr, xg = mixes
    r, k, v = (model.linear(h, name + part) for h, part in ((xr, "receptance"), (xk, "key"), (xv, "value")))
    r, k, v = (of_heads(model, part) for part in (r, k, v))
    decay = np.exp(-np.exp(low_rank(model, xw, name + "decay_w", np.tanh) + tensors[name + "decay.weight"]))
    decay = of_heads(model, decay)
    k, v = (np.repeat(part, r.shape[1] // part.shape[1], axis=1) for part in (k, v))
    first = tensors.get(name + "first.weight")
    if first is None:
        k = k * (1 - decay)
    state, out = np.zeros((*r.shape[1:], r.shape[2])), np.zeros_like(r)
    for t in range(len(x)):
        added = v[t][..., None] * k[t][:, None]
        after = state * decay[t][:, None] + added
        if first is None:
            out[t] = (after * r[t][:, None]).sum(-1) / np.sqrt(r.shape[2])
        else:
            out[t] = ((state + added * first[:, None]) * r[t][:, None]).sum(-1)
        state = after
    g = model.linear(xg, name + "gate")
    if first is None:
        return np.asarray(out.reshape(len(x), -1) * sigmoid(g))
    return head_norm(model, out, name + "ln") * silu(g)


def channel_mix(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    name, before = f"blk.{layer}.channel_mix_", change(x)
    xk = x + before * model.tensors[name + "lerp_k.weight"].reshape(-1)
    y = model.linear(np.maximum(model.linear(xk, name + "key"), 0) ** 2, name + "value")
    if name + "receptance.weight" not in model.tensors:
        return y
    xr = x + before * model.tensors[name + "lerp_r.weight"].reshape(-1)
    return np.asarray(sigmoid(model.linear(xr, name + "receptance")) * y)
