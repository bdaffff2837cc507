"""Gemma 3n in float64: alternating updates of several residual streams (AltUp), low-rank residuals (Laurel), and sparse
activations. Streams are (n_streams, n, width); the first is the active one.
"""

import math

import numpy as np

from tests.golden.make.reference_attention import KeysValues, attention
from tests.golden.make.reference_model import ReferenceModel, gelu

SPARSE_LAYERS = 10  # the first ones
DEVIATIONS = 1.6448533535003662  # above the mean: where 5 in 100 of normally distributed gates are


def hidden(model: ReferenceModel, x: np.ndarray, extra: np.ndarray) -> np.ndarray:
    """All layers on the embeddings x (n, width), before the output norm. `extra`: the layers' inputs."""
    others = [as_long(x @ matrix.T, x) for matrix in model.tensors["altup_proj.weight"]]
    streams, shared = np.stack([x, *others]), dict[int, KeysValues]()
    for layer in range(model.n_layer):
        streams = one_layer(model, streams, layer, extra[:, layer], shared)
    pairs = zip(streams[1:], model.tensors["altup_unembd_proj.weight"], strict=True)
    others = [as_long(stream @ matrix.T, streams[0]) for stream, matrix in pairs]
    return np.asarray(np.mean([streams[0], *others], axis=0))


def as_long(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """x (n, width) with the rows' lengths of `like`."""
    return np.asarray(x * np.linalg.norm(like, axis=-1, keepdims=True) / np.linalg.norm(x, axis=-1, keepdims=True))


def one_layer(
    model: ReferenceModel, streams: np.ndarray, layer: int, extra: np.ndarray, shared: dict[int, KeysValues]
) -> np.ndarray:
    """Predict the streams, compute the layer on the active one, correct all by what came of it."""
    prefix, tensors, count = f"blk.{layer}.", model.tensors, len(streams)
    mixed = route(model, streams[0], prefix) @ tensors[prefix + "altup_predict_coef.weight"].T
    predicted = streams + np.einsum("nij,jnw->inw", mixed.reshape(-1, count, count), streams)
    x = predicted[0]
    h = model.norm(x, prefix + "attn_norm")
    low = model.linear(model.linear(h, prefix + "laurel_l"), prefix + "laurel_r")
    laurel = h + model.norm(low, prefix + "laurel_post_norm")
    x = x + model.norm(attention(model, h, layer, shared), prefix + "post_attention_norm")
    x = (x + laurel) / math.sqrt(2)
    x = x + model.norm(feed_forward(model, model.norm(x, prefix + "ffn_norm"), layer), prefix + "post_ffw_norm")
    factors = 1 + route(model, x, prefix) @ tensors[prefix + "altup_correct_coef.weight"].T
    streams = predicted + factors.T[:, :, None] * (x - predicted[0])
    gated = gelu(model.linear(streams[0] * tensors[prefix + "altup_correct_scale.weight"], prefix + "inp_gate")) * extra
    streams[1:] += model.norm(model.linear(gated, prefix + "proj"), prefix + "post_norm")
    return streams


def route(model: ReferenceModel, x: np.ndarray, prefix: str) -> np.ndarray:
    """A number for each stream (n, n_streams), from the active one."""
    return np.tanh(model.linear(model.norm(x, prefix + "altup_router_norm") / model.width, prefix + "altup_router"))


def feed_forward(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    """A gated network; in the first layers, only gates far above their mean count."""
    prefix = f"blk.{layer}."
    gate = model.linear(x, prefix + "ffn_gate")
    if layer < SPARSE_LAYERS:
        least = gate.mean(1, keepdims=True) + DEVIATIONS * gate.std(1, keepdims=True, ddof=1)
        gate = np.maximum(gate - least, 0)
    return model.linear(gelu(gate) * model.linear(x, prefix + "ffn_up"), prefix + "ffn_down")
