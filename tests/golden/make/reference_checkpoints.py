"""Kimi K3's attention over the results of earlier layers, in float64.

Every few layers the residual stream is stored, and begins again with attention's output alone. What a block reads is a
mean of the stored streams and the present one, with weights by softmax.
"""

import numpy as np

from tests.golden.make.reference_feed_forward import feed_forward
from tests.golden.make.reference_latent import latent_attention
from tests.golden.make.reference_model import ReferenceModel, softmax
from tests.golden.make.reference_recurrent import mix


def hidden(model: ReferenceModel, x: np.ndarray) -> np.ndarray:
    """All layers on the embeddings x (n, width), before the output norm."""
    stored: list[np.ndarray] = []
    for layer in range(model.n_layer):
        prefix = f"blk.{layer}."
        h = model.norm(mean(model, [*stored, x], prefix + "attn_res_score"), prefix + "attn_norm")
        out = latent_attention(model, h, layer) if model.kv_heads[layer] else mix(model, h, layer)
        if layer % model.key("attn_res.block_size") == 0:
            stored.append(x)
            x = out
        else:
            x = x + out
        h = model.norm(mean(model, [*stored, x], prefix + "ffn_res_score"), prefix + "ffn_norm")
        x = x + feed_forward(model, h, layer)
    return mean(model, [*stored, x], "output_res_score")


def mean(model: ReferenceModel, streams: list[np.ndarray], name: str) -> np.ndarray:
    """The mean of streams (n, width), weighted by softmax of their norms' products with a vector."""
    scores = np.stack([model.normalize(stream) @ model.tensors[name + ".weight"] for stream in streams], axis=1)
    return np.einsum("ns,snw->nw", softmax(scores), np.stack(streams))
