"""T5 (Raffel et al. 2020) in float64: scores get a bias by the bucket of the distance, and are not divided."""

from collections.abc import Sequence

import numpy as np

from tests.golden.make.reference_model import ReferenceModel, gelu, softmax

MOST = 128  # positions; all that are farther are in the last bucket


def bucket(relative: int, count: int, *, causal: bool = False) -> int:
    """The bucket of a key so many positions after the query: half of them are for keys after it, if any are."""
    half, distance = count if causal else count // 2, abs(relative)
    exact = half // 2
    if distance >= exact:
        scaled = np.log(np.float32(distance / exact)) * (half - exact) / np.log(MOST / exact)
        distance = min(half - 1, int(np.floor(exact + scaled)))
    return distance + (half if relative > 0 and not causal else 0)


def hidden(model: ReferenceModel, x: np.ndarray) -> np.ndarray:
    """All layers of the encoder on the embeddings x (n, width), before the output norm."""
    for layer in range(model.n_layer):
        prefix = f"enc.blk.{layer}."
        h = model.norm(x, prefix + "attn_norm")
        x = x + attention(model, prefix + "attn_", h, h, biases(model, f"enc.blk.{layer}.", len(x), causal=False))
        x = x + feed_forward(model, x, prefix)
    return x


def decoder_logits(model: ReferenceModel, prompt: Sequence[int], ids: Sequence[int]) -> np.ndarray:
    """Logits (len(ids), n_vocab) after each of the decoder's tokens, which attend to the encoder's for the prompt."""
    embeddings = model.tensors["token_embd.weight"]
    encoded = model.norm(hidden(model, embeddings[np.asarray(prompt)]), "enc.output_norm")
    x = embeddings[np.asarray(ids)]
    for layer in range(model.key("decoder_block_count", model.n_layer)):
        prefix = f"dec.blk.{layer}."
        h = model.norm(x, prefix + "attn_norm")
        bias = biases(model, prefix, len(x), causal=True)
        x = x + attention(model, prefix + "attn_", h, h, bias + np.triu(np.full(bias.shape[1:], -np.inf), 1))
        h = model.norm(x, prefix + "cross_attn_norm")
        x = x + attention(model, prefix + "cross_attn_", h, encoded, np.zeros(1))
        x = x + feed_forward(model, x, prefix)
    output = "output" if "output.weight" in model.tensors else "token_embd"
    return model.linear(model.norm(x, "dec.output_norm"), output)


def biases(model: ReferenceModel, prefix: str, n: int, *, causal: bool) -> np.ndarray:
    """(heads, queries, keys): of the layer's own table, or of the first layer's."""
    table = model.tensors.get(prefix + "attn_rel_b.weight")
    if table is None:
        table = model.tensors[prefix[:8] + "0.attn_rel_b.weight"]
    buckets = [[bucket(key - query, len(table), causal=causal) if key <= query or not causal else 0
                for key in range(n)] for query in range(n)]  # fmt: skip
    return np.asarray(table[np.array(buckets)].transpose(2, 0, 1))


def attention(
    model: ReferenceModel, prefix: str, queries: np.ndarray, keys: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """Attention of normed rows to others, times the output matrix."""
    q, k, v = (
        model.linear(rows, prefix + name).reshape(len(rows), model.heads, -1)
        for name, rows in (("q", queries), ("k", keys), ("v", keys))
    )
    weights = softmax(np.einsum("qhd,khd->hqk", q, k) + bias)
    return model.linear(np.einsum("hqk,khd->qhd", weights, v).reshape(len(queries), -1), prefix + "o")


def feed_forward(model: ReferenceModel, x: np.ndarray, prefix: str) -> np.ndarray:
    """The feed-forward network of a layer, of x before the norm."""
    h = model.norm(x, prefix + "ffn_norm")
    up = model.linear(h, prefix + "ffn_up")
    gated = prefix + "ffn_gate.weight" in model.tensors
    out = gelu(model.linear(h, prefix + "ffn_gate")) * up if gated else np.maximum(up, 0)
    return model.linear(out, prefix + "ffn_down")
