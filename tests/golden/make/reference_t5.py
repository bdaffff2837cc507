"""T5's encoder (Raffel et al. 2020) in float64: scores get a bias by the bucket of the distance."""

import numpy as np

from tests.golden.make.reference_model import ReferenceModel, gelu, softmax

MOST = 128  # positions; all that are farther are in the last bucket


def bucket(relative: int, count: int) -> int:
    """The bucket of a key so many positions after the query: half of them are for keys after it."""
    half, distance = count // 2, abs(relative)
    exact = half // 2
    if distance >= exact:
        scaled = np.log(np.float32(distance / exact)) * (half - exact) / np.log(MOST / exact)
        distance = min(half - 1, int(np.floor(exact + scaled)))
    return distance + (half if relative > 0 else 0)


def hidden(model: ReferenceModel, x: np.ndarray) -> np.ndarray:
    """All layers on the embeddings x (n, width), before the output norm."""
    n, table = len(x), model.tensors["enc.blk.0.attn_rel_b.weight"]
    buckets = [[bucket(key - query, len(table)) for key in range(n)] for query in range(n)]
    bias = table[np.array(buckets)].transpose(2, 0, 1)  # (heads, queries, keys)
    for layer in range(model.n_layer):
        prefix = f"enc.blk.{layer}."
        h = model.norm(x, prefix + "attn_norm")
        q, k, v = (model.linear(h, f"{prefix}attn_{name}").reshape(n, model.heads, -1) for name in "qkv")
        weights = softmax(np.einsum("qhd,khd->hqk", q, k) + bias)
        x = x + model.linear(np.einsum("hqk,khd->qhd", weights, v).reshape(n, -1), prefix + "attn_o")
        h = model.norm(x, prefix + "ffn_norm")
        up = model.linear(h, prefix + "ffn_up")
        gated = prefix + "ffn_gate.weight" in model.tensors
        out = gelu(model.linear(h, prefix + "ffn_gate")) * up if gated else np.maximum(up, 0)
        x = x + model.linear(out, prefix + "ffn_down")
    return x
