"""The index of sparse attention (DSA) in float64: the positions that each token attends to."""

import math

import numpy as np

from tests.golden.make.reference_attention import Rotation, rotate, rotation
from tests.golden.make.reference_model import ReferenceModel, softmax

EPSILON = 1e-6  # of the norm of the index's keys
HALVES = {"deepseek32", "dots3note"}  # whose index rotates dimension i with i + n / 2
KNOWN = {"deepseek32", "dots3note", "glm-dsa", "glm5-next", "hy_v4"}
ALL_FULL = 1 << 20  # a glm-dsa file for shorter contexts has an index in every layer if its metadata does not say


def hidden_positions(
    model: ReferenceModel, x: np.ndarray, low: np.ndarray, layer: int, turned: Rotation
) -> np.ndarray | None:
    """True where a query (row) is not to attend to a key (column), (n, n); None where the index chooses all.

    `low`: the latent of the queries. Some layers use the index of the last layer before that has one.
    """
    top_k = model.key("attention.indexer.top_k", 0)
    if model.architecture not in KNOWN or not top_k or len(x) <= top_k or model.windowed(layer):
        return None
    if layer >= model.key("block_count") - model.key("nextn_predict_layers", 0):  # it attends to all
        return None
    if has_index(model, layer):
        found, pool = scores(model, x, low, layer, turned), model.key("attention.indexer.kpool", 1)
        model.hidden_positions = ~choose(found, top_k // pool, pool)
        model.index_margin = min(model.index_margin, margin(found, top_k // pool, pool))
    assert model.hidden_positions is not None
    return model.hidden_positions


def raw_hidden_positions(model: ReferenceModel, x: np.ndarray, layer: int) -> np.ndarray | None:
    """As hidden_positions(), of Qwen 4, whose index joins keys by their mean, before their norm and rotation."""
    ratios, top_k = model.key("attention.compress_ratios", 0), model.key("attention.indexer.top_k", 0)
    pool = ratios[layer] if isinstance(ratios, list) else ratios
    if model.architecture != "qwen4exp" or not pool or len(x) <= top_k:
        return None
    prefix, size, count = f"blk.{layer}.indexer.", model.key("attention.indexer.key_length"), len(x) // pool
    q = model.norm(model.linear(x, prefix + "q_proj").reshape(len(x), -1, size), prefix + "q_norm")
    k = model.linear(x, prefix + "k_proj")[: count * pool].reshape(count, pool, size).mean(1)
    k = model.norm(k, prefix + "k_norm")
    q = rotate(model, q, rotation(model, np.arange(len(x)), layer))
    k = rotate(model, k[:, None], rotation(model, np.arange(count) * pool, layer))[:, 0]
    found = np.maximum(np.einsum("qhd,kd->qhk", q, k), 0).sum(1) / math.sqrt(size)
    model.index_margin = min(model.index_margin, margin(found, top_k // pool, pool))
    return ~choose(found, top_k // pool, pool)


def has_index(model: ReferenceModel, layer: int) -> bool:
    """Does the layer have an index of its own?"""
    if model.architecture in HALVES:
        return True
    types = model.key("attention.indexer.types")
    if types is None and model.architecture == "glm5-next":
        return True
    if types is None:  # GLM 5.2's
        return model.key("context_length") < ALL_FULL or layer < 2 or layer % 4 == 2
    return bool(types[layer])


def scores(model: ReferenceModel, x: np.ndarray, low: np.ndarray, layer: int, turned: Rotation) -> np.ndarray:
    """The score of each key (column) for each query (row): (n, n), or of joined keys, which are fewer."""
    prefix, size = f"blk.{layer}.indexer.", model.key("attention.indexer.key_length")
    q = model.linear(low, prefix + "attn_q_b").reshape(len(x), -1, size)
    k = model.linear(x, prefix + "attn_k")
    k = k - k.mean(-1, keepdims=True)
    epsilon = model.epsilon if model.architecture == "hy_v4" else EPSILON
    if model.architecture == "glm5-next":
        epsilon = model.key("attention.layer_norm_epsilon", 0.0)
    k = k / np.sqrt((k * k).mean(-1, keepdims=True) + epsilon) * model.tensors[prefix + "k_norm.weight"]
    k = k + model.tensors[prefix + "k_norm.bias"]
    if pool := model.key("attention.indexer.kpool"):
        k = joined(model, k, model.linear(x, f"blk.{layer}.indexer_compressor_gate"), layer, pool)
    else:
        q, k = rotated(model, q, turned), rotated(model, k[:, None], turned)[:, 0]
    weights = model.linear(x, prefix + "proj") / math.sqrt(size * q.shape[1])
    return np.asarray(np.einsum("qh,qhk->qk", weights, np.maximum(np.einsum("qhd,kd->qhk", q, k), 0)))


def joined(model: ReferenceModel, keys: np.ndarray, gates: np.ndarray, layer: int, pool: int) -> np.ndarray:
    """The keys of `pool` positions each, weighted by a softmax over their gates, column by column."""
    count = len(keys) // pool
    places = model.tensors[f"blk.{layer}.indexer_compressor_ape.weight"]
    weights = softmax((gates[: count * pool].reshape(count, pool, -1) + places).swapaxes(1, 2)).swapaxes(1, 2)
    return np.asarray((weights * keys[: count * pool].reshape(count, pool, -1)).sum(1))


def rotated(model: ReferenceModel, x: np.ndarray, turned: Rotation) -> np.ndarray:
    """x (n, heads, size) with its first dimensions rotated, or its last. Pairs may be others than attention's."""
    cos, sin = turned[0][:, None], turned[1][:, None]
    n, out = 2 * cos.shape[-1], x.copy()
    at = x.shape[-1] - n if model.architecture == "hy_v4" else 0
    halves = model.architecture in HALVES
    first = slice(at, at + n // 2) if halves else slice(at, at + n, 2)
    second = slice(at + n // 2, at + n) if halves else slice(at + 1, at + n, 2)
    a, b = x[..., first], x[..., second]
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out


def choose(scores: np.ndarray, top_k: int, pool: int = 1) -> np.ndarray:
    """True where a query's score is one of its `top_k` highest of the positions up to its own: (n, n).

    Of keys that `pool` positions share, all of these; and the newest ones, which share none yet.
    """
    n = len(scores)
    out = np.zeros((n, n), bool)
    for m, row in enumerate(scores):
        seen = (m + 1) // pool
        out[m, seen * pool : m + 1] = True
        for key in highest([float(score) for score in row[:seen]], top_k):
            out[m, key * pool : (key + 1) * pool] = True
    return out


def margin(scores: np.ndarray, top_k: int, pool: int = 1) -> float:
    """The smallest gap between the lowest score that is chosen and the next other one, in deviations of a row."""
    found = math.inf
    for m, row in enumerate(scores):
        if (m + 1) // pool <= top_k:
            continue
        ordered = np.sort(row[: (m + 1) // pool])[::-1]
        lowest = ordered[top_k - 1]
        gaps = np.abs(ordered - lowest)
        others = ordered < lowest
        if ordered[top_k] == lowest:  # equal scores, of which some are chosen
            others = gaps > 0
        if others.any():
            found = min(found, float(gaps[others].min() / ordered.std()))
    return found


def highest(scores: list[float], top_k: int) -> list[int]:
    """The indices of the `top_k` highest scores. Of equal ones, those that llama.cpp's std::partial_sort leaves.

    It keeps a heap whose root is the lowest score, and replaces the root by each higher one.
    """
    heap = list(range(min(top_k, len(scores))))
    for root in range(len(heap) // 2 - 1, -1, -1):
        sift(heap, scores, root, heap[root])
    for i in range(len(heap), len(scores)):
        if scores[i] > scores[heap[0]]:
            sift(heap, scores, 0, i)
    return heap


def sift(heap: list[int], scores: list[float], root: int, new: int) -> None:
    """Put `new` into the heap below `root`: first down to a leaf, along the lower scores, then up again."""
    at, n = root, len(heap)
    while 2 * at + 1 < n:
        child = 2 * at + 2
        if child == n or scores[heap[child]] > scores[heap[child - 1]]:
            child -= 1
        heap[at], at = heap[child], child
    while at > root and scores[heap[(at - 1) // 2]] > scores[new]:
        heap[at], at = heap[(at - 1) // 2], (at - 1) // 2
    heap[at] = new
