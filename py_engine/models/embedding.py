"""Embeddings of any model: the last hidden states, through dense layers if there are any, pooled.

Also the classification head of rerankers.
"""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models.common import natural
from py_engine.models.config import Config
from py_engine.models.decoder import normed
from py_engine.plan import lists
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, Embedding, Weight
from py_engine.plan.pooling import NAMES, normalize, pool, spread_means
from py_engine.plan.weights import Weights

DENSE = ("dense_2", "dense_3")  # of EmbeddingGemma
PROJECTIONS = {"gemma-embedding2": ("output",)}  # after the last norm, in place of these
SOFTMAX = ("qwen3", "qwen3vl")  # architectures whose labels' scores are normalised by softmax


def add_lists(cfg: Config, header: Header, w: Weights, layers: Ops, x: Buffer) -> Embedding:
    """Append the lists EMBED, from the hidden states x to embeddings, one per pooling, and NORMALIZE.

    `layers`: of the list that computes x. The lists apply its adapters.
    """
    plan = layers.plan

    def ops_of(name: str) -> Ops:
        return Ops(plan, name, plan.batch, layers.device, adapters=layers.adapters)

    ops = ops_of(lists.EMBED)
    h, norm = normed(cfg, w, ops, x, cfg.output_norm)
    if norm:
        h = ops.rms_norm("normed", h, norm, cfg.eps)
    rows, width = h, cfg.embedding_length
    for name in PROJECTIONS.get(header.architecture, DENSE):  # linear, so that pooling may follow
        if name + ".weight" in w:
            n = w.rows(name + ".weight")
            rows = ops.project(name, rows, w.matrix(name + ".weight", n, width), w.optional_vector((name + ".bias", n)))
            width = n
    if 0 < (first := natural(header, "embedding_length_out")) < width:  # llama.cpp gives as many values of each
        width = first
    for kind in NAMES[1:4]:
        pool(ops_of(lists.pool(kind)), rows, kind, "pooled")
    normalize(ops_of(lists.NORMALIZE), plan.buffers["pooled"], width)
    labels = _add_head(cfg, w, ops_of(lists.pool("rank")), h)
    return Embedding(rows.name, width, _pooling(header), labels, header.architecture in SOFTMAX)


def _add_head(cfg: Config, w: Weights, ops: Ops, h: Buffer) -> int:
    """Append the classification head of the first token (causal: the last); return the number of labels.

    Computes all tokens and keeps one, so segments of any length share a dispatch.
    """
    labels = 0
    modern = w.header.architecture == "modern-bert"  # whose head reads the mean
    if modern and ("cls.weight" in w or "cls.output.weight" in w):
        h = spread_means(ops, h)
    if "cls.weight" in w:
        weight, bias = _layer(w, "cls", cfg.embedding_length)
        rows, labels = ops.project("cls", h, weight, bias), weight.rows
        h = ops.rows("cls_activated", labels)  # f32, as pooling reads it
        ops.activate(rows, h, labels, "gelu" if modern else "tanh", gated=False)
        if "cls.norm.weight" in w:
            h = ops.layer_norm("cls_normed", h, w.vector(("cls.norm.weight", labels)), None, cfg.eps)
    if "cls.output.weight" in w:
        weight, bias = _layer(w, "cls.output", labels or cfg.embedding_length)
        h, labels = ops.project("labels", h, weight, bias), weight.rows
    if labels:
        pool(ops, h, "last" if cfg.causal or modern else "cls", "ranked")
    return labels


def _layer(w: Weights, name: str, cols: int) -> tuple[Weight, Weight | None]:
    rows = w.rows(name + ".weight")
    weight = w.matrix(name + ".weight", rows, cols) if rows else w.vector((name + ".weight", cols))
    return weight, w.optional_vector((name + ".bias", weight.rows))


def _pooling(header: Header) -> str | None:
    number = header.arch("pooling_type", None)
    if number is None or number == -1:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(NAMES):
        raise WispError(
            f"{header.architecture}.pooling_type is {number!r}; it must be a number from 0 to {len(NAMES) - 1}.",
            "corrupt_header",
        )
    return NAMES[number]
