"""The inputs that every layer of Gemma 3n and Gemma 4 gets in addition to the residual stream."""

from __future__ import annotations

from py_engine.models.config import Config
from py_engine.models.decoder import Layer
from py_engine.plan.ops import Ops
from py_engine.plan.per_layer import Gates, gate, group_norm
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.weights import Weights

PROJECTED = "gemma-embedding2"  # the architecture whose files may have no embeddings for layers
POST_NORM = "post_norm.weight"  # the tensor of the norm of what a layer's input gives


def layer_inputs(cfg: Config, width: int, w: Weights, ops: Ops, x: Buffer) -> Buffer:
    """The inputs of all layers (n, n_layer * width): a projection of x and, but for EmbeddingGemma 2, embeddings."""
    n_embd = cfg.embedding_length
    projection = w.matrix("per_layer_model_proj.weight", width * cfg.block_count, n_embd)
    projected = ops.project("per_layer_projected", x, projection, None)
    norm = w.vector(("per_layer_proj_norm.weight", width))
    # llama.cpp divides the projection by sqrt(n_embd); for a norm that only scales epsilon
    normed = group_norm(ops, projected, norm, cfg.block_count, cfg.eps * n_embd)
    table_name = "per_layer_token_embd.weight"
    if w.header.architecture == PROJECTED and table_name not in w:
        return normed
    table = w.matrix(table_name, cfg.vocab, width * cfg.block_count)
    inputs = ops.embed(table, (width / 2) ** 0.5, name="per_layer", media_row="first")
    ops.add_scaled(normed, 0.5**0.5, inputs)
    return inputs


def layer_output(layer: Layer, i: int, width: int, x: Buffer, inputs: Buffer) -> Buffer:
    """proj(activation(gate(x)) * layer i's input) (n, n_embd). post_norm() has the norm to apply to it."""
    w, ops, b, n_embd = layer.w, layer.ops, layer.b, layer.cfg.embedding_length
    matrix, activation = w.matrix(b + "inp_gate.weight", width, n_embd), layer.cfg.activation
    gated = ops.gating(x, matrix, activation, inputs, i * width)
    if gated is None:
        gates = Gates(ops.project("per_layer_gate", x, matrix, None), activation)
        gated = gate(ops, gates, inputs, i * width, width)
    return ops.project("out", gated, w.matrix(b + "proj.weight", n_embd, width), None)


def post_norm(layer: Layer) -> Weight:
    """The weights of the norm of layer_output()."""
    return layer.w.vector((layer.b + POST_NORM, layer.cfg.embedding_length))
