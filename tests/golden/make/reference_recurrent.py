"""Layers with a state in float64: Mamba-2 and the gated delta rule, token by token."""

import numpy as np

from tests.golden.make.reference_feed_forward import short_convolution
from tests.golden.make.reference_model import ReferenceModel, silu


def mix(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    """What a layer without attention computes for x (n, width), normalised."""
    if f"blk.{layer}.ssm_f_a.weight" in model.tensors:
        return kda(model, x, layer)
    if model.architecture == "minimax-01":
        return fixed_decay(model, x, layer)
    if f"blk.{layer}.ssm_x.weight" in model.tensors:
        return plamo2(model, x, layer) if model.architecture == "plamo2" else mamba(model, x, layer)
    if f"blk.{layer}.ssm_in.weight" in model.tensors:
        return mamba2(model, x, layer)
    if f"blk.{layer}.ssm_conv1d.weight" in model.tensors:
        return delta_net(model, x, layer)
    return short_convolution(model, x, layer)


def convolution(model: ReferenceModel, x: np.ndarray, prefix: str, part: str = "") -> np.ndarray:
    """silu of the causal convolution of each channel of x (n, channels)."""
    kernel = model.tensors[f"{prefix}ssm_conv1d{part}.weight"]
    taps = kernel.shape[-1]
    kernel = kernel.reshape(-1, taps)
    padded = np.concatenate([np.zeros((taps - 1, x.shape[1])), x])
    y = sum(padded[j : j + len(x)] * kernel[:, j] for j in range(taps))
    return silu(np.asarray(y + model.tensors.get(prefix + "ssm_conv1d.bias", 0.0)))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x)


def gated(model: ReferenceModel, y: np.ndarray, z: np.ndarray, name: str, *, gate_first: bool) -> np.ndarray:
    """The RMS norm of each group of y (n, groups, size), gated by z, before or after the norm."""
    weight = model.tensors.get(name)
    if weight is None:
        return y * silu(z)
    if gate_first:
        return model.normalize(y * silu(z)) * weight
    if model.architecture == "qwen4exp":
        return model.normalize(y) * weight / (1 + np.exp(-z))
    return model.normalize(y) * weight * silu(z)


def mamba(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    """The output of a Mamba layer for x (n, width), normalised."""
    prefix, key = f"blk.{layer}.", model.key
    inner, size, rank = (key(f"ssm.{name}") for name in ("inner_size", "state_size", "time_step_rank"))
    values, z = np.split(model.linear(x, prefix + "ssm_in"), 2, axis=1)
    values = convolution(model, values, prefix)
    dt, keys, queries = np.split(model.linear(values, prefix + "ssm_x"), [rank, rank + size], axis=1)
    if prefix + "ssm_b_norm.weight" in model.tensors:
        parts = ((dt, "dt"), (keys, "b"), (queries, "c"))
        dt, keys, queries = (model.norm(part, f"{prefix}ssm_{name}_norm") for part, name in parts)
    dt = softplus(model.linear(dt, prefix + "ssm_dt"))
    state, out = np.zeros((inner, size)), np.zeros_like(values)
    for t in range(len(x)):
        state = state * np.exp(dt[t][:, None] * model.tensors[prefix + "ssm_a"])
        state = state + (dt[t] * values[t])[:, None] * keys[t]
        out[t] = state @ queries[t] + model.tensors[prefix + "ssm_d"] * values[t]
    return model.linear(out * silu(z), prefix + "ssm_out")


def plamo2(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    """The output of PLaMo 2's Mamba layer for x (n, width), normalised: Mamba-2's scan of what Mamba projects."""
    prefix, key, n = f"blk.{layer}.", model.key, len(x)
    inner, size, heads = (key(f"ssm.{name}") for name in ("inner_size", "state_size", "time_step_rank"))
    z, values = np.split(model.linear(x, prefix + "ssm_in").reshape(n, heads, -1), 2, axis=2)  # of each head
    mixed = convolution(model, values.reshape(n, inner), prefix)
    keys, queries, dt = np.split(model.linear(mixed, prefix + "ssm_x"), [size, 2 * size], axis=1)
    parts = ((keys, "b"), (queries, "c"), (dt, "dt"))
    keys, queries, dt = (model.norm(part, f"{prefix}ssm_{name}_norm") for part, name in parts)
    dt = softplus(model.linear(dt, prefix + "ssm_dt"))
    rate, skip = model.tensors[prefix + "ssm_a"].reshape(-1), model.tensors[prefix + "ssm_d"].reshape(-1, 1)
    values = mixed.reshape(n, heads, -1)
    state, out = np.zeros((heads, inner // heads, size)), np.zeros_like(values)
    for t in range(n):
        state = state * np.exp(dt[t] * rate)[:, None, None] + (dt[t][:, None] * values[t])[..., None] * keys[t]
        out[t] = state @ queries[t] + skip * values[t]
    return model.linear((out * silu(z)).reshape(n, inner), prefix + "ssm_out")


def mamba2(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    """The output of a Mamba-2 layer for x (n, width), normalised."""
    prefix, key = f"blk.{layer}.", model.key
    inner, size, heads, groups = (
        key(f"ssm.{name}") for name in ("inner_size", "state_size", "time_step_rank", "group_count")
    )
    n, channels = len(x), inner + 2 * groups * size
    z, mixed, dt = np.split(model.linear(x, prefix + "ssm_in"), [inner, inner + channels], axis=1)
    values, keys, queries = np.split(convolution(model, mixed, prefix), [inner, inner + groups * size], axis=1)
    values = values.reshape(n, heads, -1)
    keys, queries = (np.repeat(part.reshape(n, groups, size), heads // groups, axis=1) for part in (keys, queries))
    dt = softplus(dt + model.tensors[prefix + "ssm_dt.bias"])
    rate, skip = model.tensors[prefix + "ssm_a"].reshape(-1), model.tensors[prefix + "ssm_d"].reshape(-1, 1)
    state, out = np.zeros((heads, inner // heads, size)), np.zeros_like(values)
    for t in range(n):
        state = state * np.exp(dt[t] * rate)[:, None, None] + (dt[t][:, None] * values[t])[..., None] * keys[t][:, None]
        out[t] = (state * queries[t][:, None]).sum(-1) + skip * values[t]
    out, z = (part.reshape(n, groups, -1) for part in (out, z))
    y = gated(model, out, z, prefix + "ssm_norm.weight", gate_first=True)
    return model.linear(y.reshape(n, inner), prefix + "ssm_out")


def delta_net(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    """The output of a gated delta net for x (n, width), normalised.

    Value head h has the keys of head h % groups; in Qwen3-Next, neighbouring heads share keys.
    """
    prefix, key = f"blk.{layer}.", model.key
    inner, size, heads, groups = (
        key(f"ssm.{name}") for name in ("inner_size", "state_size", "time_step_rank", "group_count")
    )
    n = len(x)
    mixed = convolution(model, model.linear(x, prefix + "attn_qkv"), prefix)
    queries, keys, values = np.split(mixed, [groups * size, 2 * groups * size], axis=1)
    values = values.reshape(n, heads, -1)
    group = np.arange(heads) % groups
    if prefix + "ssm_ba.weight" in model.tensors:  # each group's inputs of beta, then of alpha
        group = np.arange(heads) // (heads // groups)
        both = model.linear(x, prefix + "ssm_ba").reshape(n, groups, 2, -1)
        beta, alpha = (both[:, :, i].reshape(n, heads) for i in (0, 1))
    else:
        alpha, beta = model.linear(x, prefix + "ssm_alpha"), model.linear(x, prefix + "ssm_beta")
    keys, queries = (unit(model, part.reshape(n, groups, size))[:, group] for part in (keys, queries))
    decay = np.exp(softplus(alpha + model.tensors[prefix + "ssm_dt.bias"]) * model.tensors[prefix + "ssm_a"])
    beta = 1 / (1 + np.exp(-beta))
    state, out = np.zeros((heads, inner // heads, size)), np.zeros_like(values)
    for t in range(n):
        state = state * decay[t][:, None, None]
        error = values[t] - (state * keys[t][:, None]).sum(-1)
        state = state + (beta[t][:, None] * error)[..., None] * keys[t][:, None]
        out[t] = (state * queries[t][:, None]).sum(-1) / np.sqrt(size)
    z = model.linear(x, prefix + "attn_gate").reshape(out.shape)
    y = gated(model, out, z, prefix + "ssm_norm.weight", gate_first=False)
    return model.linear(y.reshape(n, inner), prefix + "ssm_out")


def kda(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    """The output of Kimi's gated delta net for x (n, width), normalised: each dimension of a key has a decay.

    Ling 3's projects without low ranks, and its decays have a lower bound.
    """
    prefix, heads, size, n = f"blk.{layer}.", model.heads, model.key("kda.head_dim"), len(x)
    parts = (convolution(model, model.linear(x, f"{prefix}attn_{part}"), prefix, f"_{part}") for part in "qkv")
    queries, keys, values = (part.reshape(n, heads, size) for part in parts)
    queries, keys = unit(model, queries), unit(model, keys)

    def project(part: str) -> np.ndarray:
        if f"{prefix}ssm_{part}.weight" in model.tensors:
            return model.linear(x, f"{prefix}ssm_{part}")
        y = model.linear(x, f"{prefix}ssm_{part}_a")
        return model.linear(y, f"{prefix}ssm_{part}_b") if f"{prefix}ssm_{part}_b.weight" in model.tensors else y

    steps = (project("f") + model.tensors[prefix + "ssm_dt.bias"]).reshape(n, heads, size)
    rates, bound = model.tensors[prefix + "ssm_a"].reshape(heads, 1), model.key("kda.gate_lower_bound")
    sign = -1 if model.architecture in ("kimi-k3", "glm5-next") else 1  # of the rates in the file
    decay = np.exp(bound / (1 + np.exp(-sign * rates * steps)) if bound else softplus(steps) * rates)
    beta = 1 / (1 + np.exp(-model.linear(x, prefix + "ssm_beta")))
    state, out = np.zeros((heads, size, size)), np.zeros_like(values)
    for t in range(n):
        state = state * decay[t][:, None]
        error = values[t] - (state * keys[t][:, None]).sum(-1)
        state = state + (beta[t][:, None] * error)[..., None] * keys[t][:, None]
        out[t] = (state * queries[t][:, None]).sum(-1) / np.sqrt(size)
    gate = project("g").reshape(out.shape)
    y = model.norm(out, prefix + "ssm_norm") / (1 + np.exp(-gate))
    return model.linear(y.reshape(n, -1), prefix + "attn_output")


def fixed_decay(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    """The output of MiniMax's linear attention for x (n, width), normalised: each head's state decays at its rate."""
    prefix, heads, n = f"blk.{layer}.", model.heads, len(x)
    rows = silu(model.linear(x, prefix + "attn_qkv")).reshape(n, heads, 3, -1)
    queries, keys, values = (rows[:, :, part] for part in range(3))
    start = 2.0 ** -(2.0 ** -(np.log2(heads) - 3))
    slower = 1 - layer / (model.n_layer - 1) + 1e-5
    decay = np.exp(-slower * start ** np.arange(1, heads + 1))
    state, out = np.zeros((heads, keys.shape[2], keys.shape[2])), np.zeros_like(values)
    for t in range(n):
        state = state * decay[:, None, None] + values[t][..., None] * keys[t][:, None]
        out[t] = (state * queries[t][:, None]).sum(-1)
    gate = 1 / (1 + np.exp(-model.linear(x, prefix + "attn_gate")))
    return model.linear(model.norm(out.reshape(n, -1), prefix + "attn_norm_2") * gate, prefix + "attn_output")


def unit(model: ReferenceModel, x: np.ndarray) -> np.ndarray:
    """Rows of length 1."""
    epsilon = 1e-6 if model.architecture == "glm5-next" else model.epsilon
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + epsilon)
