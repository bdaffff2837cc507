"""DeepSeek V4 in float64: attention to a window's keys and to compressed keys, which are also the values.

A compressed key is a mean of several positions' values, weighted by a softmax over their scores, column by column.
"""

import math

import numpy as np

from tests.golden.make.reference_attention import Rotation, rotate, rotation
from tests.golden.make.reference_feed_forward import feed_forward
from tests.golden.make.reference_index import choose, margin
from tests.golden.make.reference_model import ReferenceModel, softmax
from tests.golden.make.reference_streams import mixing_weights, stream_weights

OVERLAPPING = 4  # positions of a compressed key that also has those of the key before it


def hidden(model: ReferenceModel, ids: np.ndarray, x: np.ndarray) -> np.ndarray:
    """All layers; a weighted sum of the streams."""
    streams = np.repeat(x[None], model.key("hyper_connection.count"), axis=0)
    for layer in range(model.n_layer):
        for kind in ("attn", "ffn"):
            read, added, weights = mixing_weights(model, streams, f"blk.{layer}.hc_{kind}")
            h = model.norm(np.einsum("nc,cnw->nw", read, streams), f"blk.{layer}.{kind}_norm")
            out = attention(model, h, layer) if kind == "attn" else feed_forward(model, h, layer, ids=ids)
            streams = np.einsum("nsd,snw->dnw", weights, streams) + np.einsum("nc,nw->cnw", added, out)
    return np.einsum("nc,cnw->nw", stream_weights(model, streams, "output_hc"), streams)


def attention(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray:
    """The attention's output (n, width)."""
    prefix, n, heads, size = f"blk.{layer}.", len(x), model.heads, model.head_dim(layer)
    low = model.norm(model.linear(x, prefix + "attn_q_a"), prefix + "attn_q_a_norm")
    q = model.normalize(model.linear(low, prefix + "attn_q_b").reshape(n, heads, size))
    k = model.norm(model.linear(x, prefix + "attn_kv"), prefix + "attn_kv_a_norm")
    cos, sin = rotation(model, np.arange(n), layer)
    q, k = rotate_last(model, q, (cos, sin)), rotate_last(model, k[:, None], (cos, sin))[:, 0]
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    unseen = (distance < 0) | (distance >= model.key("attention.sliding_window"))
    ratio = model.key("attention.compress_ratios")[layer]
    if ratio and n >= ratio:
        k = np.concatenate([k, compressed(model, x, layer, ratio)])
        last = (1 + np.arange(n // ratio)) * ratio - 1
        later = last[None, :] > np.arange(n)[:, None]
        if ratio == OVERLAPPING:
            later |= ~chosen(model, x, low, layer, (cos, sin))[:, last]
        unseen = np.concatenate([unseen, later], axis=1)
    scores = np.where(unseen, -np.inf, np.einsum("qhc,kc->hqk", q, k) / math.sqrt(size))
    sinks = np.broadcast_to(model.tensors[prefix + "attn_sinks.weight"][:, None, None], (heads, n, 1))
    weights = softmax(np.concatenate([scores, sinks], -1))[..., :-1]
    mixed = rotate_last(model, np.einsum("hqk,kc->qhc", weights, k), (cos, -sin))
    groups = model.key("attention.output_group_count")
    matrices = model.tensors[prefix + "attn_output_a.weight"].reshape(groups, -1, heads * size // groups)
    out = np.einsum("grc,ngc->ngr", matrices, mixed.reshape(n, groups, -1))
    return model.linear(out.reshape(n, -1), prefix + "attn_output_b")


def chosen(model: ReferenceModel, x: np.ndarray, low: np.ndarray, layer: int, turned: Rotation) -> np.ndarray:
    """True where the index chooses the compressed key of a position (column) for a query (row): (n, n)."""
    prefix, size, top_k = f"blk.{layer}.indexer.", model.key("attention.indexer.key_length"), "attention.indexer.top_k"
    q = model.linear(low, prefix + "attn_q_b").reshape(len(x), -1, size)
    q, k = rotate_last(model, q, turned), compressed(model, x, layer, OVERLAPPING, "indexer")
    weights = model.linear(x, prefix + "proj") / math.sqrt(size * q.shape[1])
    scores = np.einsum("qh,qhk->qk", weights, np.maximum(np.einsum("qhd,kd->qhk", q, k), 0))
    model.index_margin = min(model.index_margin, margin(scores, model.key(top_k), OVERLAPPING))
    return choose(scores, model.key(top_k), OVERLAPPING)


def compressed(model: ReferenceModel, x: np.ndarray, layer: int, ratio: int, name: str = "attn") -> np.ndarray:
    """The compressed keys of all whole blocks of positions, of attention or of its index: (blocks, size)."""
    prefix, blocks = f"blk.{layer}.{name}_compressor_", len(x) // ratio
    size = len(model.tensors[prefix + "norm.weight"])
    keys, scores = (
        model.linear(x[: blocks * ratio], prefix + kind).reshape(blocks, ratio, -1) for kind in ("kv", "gate")
    )
    scores = scores + model.tensors[prefix + "ape.weight"]
    if ratio == OVERLAPPING:  # the first half of the values is for the next block's key
        before = np.zeros_like(keys[:1, :, :size])
        keys = np.concatenate([np.concatenate([before, keys[:-1, :, :size]]), keys[:, :, size:]], axis=1)
        scores = np.concatenate([np.concatenate([before - np.inf, scores[:-1, :, :size]]), scores[:, :, size:]], axis=1)
    weights = softmax(scores.transpose(0, 2, 1)).transpose(0, 2, 1)
    found = model.norm((keys * weights).sum(1), prefix + "norm")
    return rotate_last(model, found[:, None], rotation(model, np.arange(blocks) * ratio, layer))[:, 0]


def rotate_last(model: ReferenceModel, x: np.ndarray, turned: Rotation) -> np.ndarray:
    """Rotate the last dimensions of x (n, heads, size)."""
    first = x.shape[-1] - 2 * turned[0].shape[1]
    return np.concatenate([x[..., :first], rotate(model, x[..., first:], turned)], axis=-1)
