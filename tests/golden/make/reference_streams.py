"""HY V4's and GLM 5.3's residual streams in float64: each block reads a weighted sum, its result is added to each.

Streams are (streams, n, width).
"""

import numpy as np

from tests.golden.make.reference_feed_forward import feed_forward
from tests.golden.make.reference_latent import latent_attention
from tests.golden.make.reference_model import ReferenceModel, softmax
from tests.golden.make.reference_recurrent import mix


def hidden(model: ReferenceModel, x: np.ndarray) -> np.ndarray:
    """All layers on the embeddings x (n, width), before the output norm."""
    streams = np.repeat(x[None], model.key("hyper_connection.count"), axis=0)
    for layer in range(model.n_layer):
        for kind, block in (("attn", latent_attention), ("ffn", feed_forward)):
            weights = stream_weights(model, streams, f"blk.{layer}.hc_{kind}")
            read, added = weights[:, : len(streams)], weights[:, len(streams) :]
            added = added + (model.key("hyper_connection.magnitude") - 1) * (added - epsilon(model))
            h = model.norm(np.einsum("nc,cnw->nw", read, streams), f"blk.{layer}.{kind}_norm")
            streams = streams + np.einsum("nc,nw->cnw", added, block(model, h, layer))
    return np.einsum("nc,cnw->nw", stream_weights(model, streams, "output_hc"), streams)


def epsilon(model: ReferenceModel) -> float:
    """What is added to a weight, so that no stream is left out."""
    return float(model.key("hyper_connection.epsilon"))


def stream_weights(model: ReferenceModel, streams: np.ndarray, name: str) -> np.ndarray:
    """Sigmoids of a product with all streams' norm, and an epsilon: (n, streams), or twice as many."""
    joined = streams.transpose(1, 0, 2).reshape(streams.shape[1], -1)
    products = model.linear(model.normalize(joined), f"{name}_fn")
    scales = np.repeat(model.tensors[f"{name}_scale.weight"], len(streams))
    return np.asarray(1 / (1 + np.exp(-products * scales - model.tensors[f"{name}_base.weight"])) + epsilon(model))


def mixed(model: ReferenceModel, x: np.ndarray) -> np.ndarray:
    """All layers of GLM 5.3, whose streams are also mixed with each other; the mean of the streams."""
    streams = np.repeat(x[None], model.key("hyper_connection.count"), axis=0)
    for layer in range(model.n_layer):
        for kind in ("attn", "ffn"):
            block = feed_forward if kind == "ffn" else latent_attention if model.kv_heads[layer] else mix
            read, added, weights = mixing_weights(model, streams, f"blk.{layer}.hc_{kind}")
            h = model.norm(np.einsum("nc,cnw->nw", read, streams), f"blk.{layer}.{kind}_norm")
            out = block(model, h, layer)
            streams = np.einsum("nsd,snw->dnw", weights, streams) + np.einsum("nc,nw->cnw", added, out)
    return np.asarray(streams.mean(0))


def mixing_weights(model: ReferenceModel, streams: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights to read streams, to add to them, (n, streams), and of each in every other, (n, streams, streams).

    The last ones are normalised over the streams that they go to, and over those that they come from, in turn.
    """
    count, n = streams.shape[:2]
    products = model.linear(model.normalize(streams.transpose(1, 0, 2).reshape(n, -1)), f"{name}_fn")
    scales = np.repeat(model.tensors[f"{name}_scale.weight"], (count, count, count * count))
    terms = products * scales + model.tensors[f"{name}_base.weight"]
    read, added = (1 / (1 + np.exp(-terms[:, part * count : (part + 1) * count])) for part in (0, 1))
    weights = softmax(terms[:, 2 * count :].reshape(n, count, count)) + epsilon(model)
    weights /= weights.sum(1, keepdims=True) + epsilon(model)
    for _ in range(1, model.key("hyper_connection.sinkhorn_iterations")):
        weights /= weights.sum(2, keepdims=True) + epsilon(model)
        weights /= weights.sum(1, keepdims=True) + epsilon(model)
    return read + epsilon(model), 2 * added, weights
