"""HY V4's residual streams in float64: each block reads a weighted sum of them, and its result is added to each.

Streams are (streams, n, width).
"""

import numpy as np

from tests.golden.make.reference_feed_forward import feed_forward
from tests.golden.make.reference_latent import latent_attention
from tests.golden.make.reference_model import ReferenceModel


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
