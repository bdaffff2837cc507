"""EAGLE-3 heads: one layer that drafts for a model from the hidden states of three of the model's layers.

A matrix `fc` makes the three states of a token one row of the head's width: the token's fused state. The layer's input
joins the embedding of a token with the fused state of the token before, each normalised. Queries, keys and values read
both; the residual stream begins with the fused state. The model's lists fill the layer's cache, as with an MTP layer,
and the further tokens of a draft go on from the layer's own output. A sequence's first token has no state before it:
the layer attends from the second one on. A head may know some of the model's tokens only: `d2t` has theirs.
Sources: EAGLE-3 (Li and others 2025, arXiv 2503.01840) and llama.cpp's `eagle3`, which counts positions from the second
token on; RoPE sees their differences alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from py_engine.files.draft_header import DRAFT, EAGLE, check_tokens, target_layers, unfit, unsupported
from py_engine.files.gguf_header import Header
from py_engine.models.common import count, switch
from py_engine.models.config import Config
from py_engine.models.decoder import Layer
from py_engine.models.draft_file import DraftFile
from py_engine.models.rope_tables import rope_tables
from py_engine.plan.cache import Cache, make_cache, page_group
from py_engine.plan.features import Features
from py_engine.plan.mtp import InputNorms, Residual, map_logits, mtp_input, token_rows
from py_engine.plan.ops import AttentionOptions, Ops, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights, missing_tensor

LAYERS = 3  # of the model, that a head reads
FIRST = 1  # the first position that the layer attends to
NEOX = False  # GGUF's llama converter interleaves the rotated pairs
BLOCK = DRAFT + "blk.0."
TABLE, OUTPUT = "token_embd.weight", "output.weight"  # which a head may lack: then they are the model's
GATED = tuple(f"ffn_{name}.weight" for name in ("gate", "up", "down"))  # layers of models may do without some of these


@dataclass(frozen=True)
class Shape:
    """What a head's file says. `tokens`: the model's tokens that it knows, in the order of its logits; None: all."""

    cfg: Config
    layers: tuple[int, ...]  # of the model, whose inputs it reads
    normed_residual: bool  # the residual stream begins with the normalised state
    normed_features: bool  # the three states are normalised, as one row, before `fc`
    tokens: Sequence[int] | None

    @property
    def width(self) -> int:
        """Columns of the residual stream."""
        return self.cfg.embedding_length


def make_eagle(file: DraftFile, model: Config, ops: Ops, w: Weights) -> Eagle:
    """An EAGLE-3 head in its model's plan. WispError draft_mismatch, or what is wrong with the head's file.

    `w`: all tensors; the head's begin with DRAFT.
    """
    header, tokens = file.header, file.tokens
    shape = _shape(header, w, tokens)
    _check_fits(header, shape, model)
    cfg, plan, kind = shape.cfg, ops.plan, "f32" if file.kv_type == "f32" else "f16"
    cache = make_cache(plan, model.block_count, cfg.head_count_kv * cfg.head_dim, kind, page_group(plan, 0))
    (rope,) = rope_tables(ops, cfg, NEOX, file.factors, DRAFT)
    rows = token_rows(ops, DRAFT + "token_rows", tokens) if tokens is not None else None
    return Eagle(shape, model, w, rope, cache, rows)


def _shape(header: Header, w: Weights, tokens: Sequence[int] | None) -> Shape:
    """What the file says. WispError missing_metadata, corrupt_header, missing_tensor or unsupported_architecture."""
    if TABLE not in header.tensors:  # the tokens are the model's, whatever the metadata say of their number
        header = replace(header, metadata=header.metadata | {f"{header.architecture}.vocab_size": 1})
    cfg = Config.from_gguf(header)
    if cfg.block_count != 1:
        raise unsupported(EAGLE, f"has {cfg.block_count} layers; Wisp drafts with heads of one layer")
    layers = target_layers(header)
    if len(layers) != LAYERS:
        raise unsupported(EAGLE, f"reads {len(layers)} layers of its model; Wisp drafts with heads that read {LAYERS}")
    for name in GATED:
        if BLOCK + name not in w:
            raise missing_tensor(BLOCK + name, EAGLE)
    residual, features = (switch(header, f"norm_before_{what}", False) for what in ("residual", "fc"))
    return Shape(cfg, tuple(layers), residual, features, tokens)


def _check_fits(header: Header, shape: Shape, model: Config) -> None:
    """Raise WispError draft_mismatch if a head cannot read a model's hidden states, or has other tokens."""
    why, tokens = "", shape.tokens
    if (read := count(header, "target_hidden_size")) != model.embedding_length:
        why = f"it reads {read} values of a token's state, the model has {model.embedding_length}"
    elif max(shape.layers) > (last := model.block_count - 1):
        why = f"it reads the inputs of the layers {list(shape.layers)}, Wisp has those of the layers 1 to {last}"
    elif TABLE in header.tensors and shape.cfg.vocab != model.vocab:
        why = f"it embeds {shape.cfg.vocab} tokens, the model has {model.vocab}"
    elif lacks := [name for name in (TABLE, OUTPUT) if name not in header.tensors]:
        if shape.width != model.embedding_length:
            why = f"it has no {lacks[0]}, and the model's is {model.embedding_length} wide, not {shape.width}"
        elif tokens is not None and OUTPUT in lacks:
            why = f"it has {len(tokens)} tokens of its own, and no {OUTPUT} for them"
    why = why or check_tokens(tokens, model.vocab)
    if why:
        raise unfit(EAGLE, why)


@dataclass(frozen=True)
class Eagle:
    """An EAGLE-3 head in the plan of its model. `w`: all tensors; the head's begin with DRAFT."""

    shape: Shape
    model: Config
    w: Weights
    rope: Rope
    cache: Cache
    rows: Buffer | None  # the row of each of the model's tokens in its logits; None: they are in the model's order

    @property
    def context_length(self) -> int:
        """Positions that the head was trained for."""
        return self.shape.cfg.context_length

    @property
    def features(self) -> Features:
        """What it reads of the model's layers."""
        return Features(self.shape.layers, self.model.embedding_length)

    def fill(self, ops: Ops, x: Buffer) -> None:
        """Append the fused states of the batch, and the layer's keys and values. `x` is not read."""
        shape, joined = self.shape, self.features
        read, cols = joined.buffer(ops), LAYERS * joined.cols
        if shape.normed_features:
            read = ops.normed_input(read, self._vector("enc.output_norm", cols), shape.cfg.eps)
        fused = ops.project("eagle.fused", read, self.w.matrix(DRAFT + "fc.weight", shape.width, cols), None)
        _, n_head_kv, head_dim = shape.cfg.heads
        heads = 0, n_head_kv, head_dim
        ops.qkv(self._input(ops, fused), self._projection("attn_k", "attn_v"), self.cache, heads, self.rope)

    def predict(self, ops: Ops, logits: Buffer, previous: Buffer | None = None) -> Buffer:
        """Append the layer and its output matrix for a token of each sequence of a batch; return its hidden states.

        `logits`: where to put them. `previous`: the hidden states of the tokens before, as this returns them; None: the
        fused ones.
        """
        shape, cfg = self.shape, self.shape.cfg
        x = previous or ops.buffer(f"eagle.predicted.{ops.batch}", ops.rows("eagle.embedded", shape.width).shape)
        y = self._input(ops, previous, Residual(x, shape.normed_residual))
        q = ops.qkv(y, self._projection("attn_q", "attn_k", "attn_v"), self.cache, cfg.heads, self.rope)
        options = AttentionOptions(cfg.attention_scale, first=FIRST)
        layer = Layer(cfg, self.w, ops, BLOCK, self.rope, 0)
        layer.add_attention(ops.attention(q, self.cache, cfg.heads, options), x)
        layer.add_feed_forward(layer.feed_forward(x), x)
        hidden = ops.rms_norm("eagle.hidden", x, self._vector(cfg.output_norm, shape.width), cfg.eps)
        known = len(shape.tokens) if shape.tokens is not None else self.model.vocab
        output = self._matrix(OUTPUT, OUTPUT if OUTPUT in self.w else TABLE, known)
        if self.rows is None:
            ops.project_into(logits, hidden, output)
        else:
            map_logits(ops, ops.project("eagle.logits", hidden, output, None), known, self.rows, logits)
        return x

    def _input(self, ops: Ops, hidden: Buffer | None, residual: Residual | None = None) -> Buffer:
        """The layer's input (n, 2 * width).

        `hidden`, without `residual`: the batch's fused states, which also go to the ring. With `residual`: what the
        layer has computed of the tokens before. None: the fused states in the ring.
        """
        n = self.shape.width
        e = ops.embed(self._matrix(TABLE, TABLE, self.model.vocab), name="eagle.embedded")
        norms = self.w.vector(*((f"{BLOCK}{name}.weight", n) for name in ("attn_norm", "attn_norm_2")))
        from_layer = residual is not None and hidden is not None
        return mtp_input(
            ops, e, hidden, n, InputNorms(norms, self.shape.cfg.eps), from_layer=from_layer, residual=residual
        )

    def _projection(self, *names: str) -> Projection:
        """The layer's matrices for its input, stacked."""
        cfg = self.shape.cfg
        heads = [cfg.head_count if name == "attn_q" else cfg.head_count_kv for name in names]
        parts = [(f"{BLOCK}{name}.weight", n * cfg.head_dim) for name, n in zip(names, heads, strict=True)]
        return Projection(self.w.stack(parts, 2 * self.shape.width))

    def _matrix(self, name: str, of_model: str, rows: int) -> Weight:
        """The head's matrix (rows, width) of this name. If it has none, the model's matrix `of_model`."""
        return self.w.matrix(DRAFT + name if DRAFT + name in self.w else of_model, rows, self.shape.width)

    def _vector(self, name: str, length: int) -> Weight:
        return self.w.vector((f"{DRAFT}{name}.weight", length))
