"""DFlash models: layers that draft several tokens at once, from the hidden states of some of their model's layers.

A matrix `fc` and a norm make the states of a token one row, its fused state. Each layer's keys and values of the tokens
up to the newest one's predecessor are made of these rows, so the model's lists fill the layers' caches. A draft is one
pass over a block: the newest token, then masked tokens, which all have the embedding of one token of the vocabulary.
The block's tokens attend to the caches and to each other, also to later ones, unless the file says that they do not.
Row i of the logits predicts the masked token i itself, not the one after it.
Sources: DFlash (Chen and others 2026, arXiv 2602.06036) and llama.cpp's `dflash`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from py_engine.errors import WispError
from py_engine.files.draft_header import DFLASH, DRAFT, check_tokens, target_layers, unfit, unsupported
from py_engine.files.gguf_header import Header
from py_engine.models.common import natural, optional_number, rope_sections, switch, windows
from py_engine.models.config import Config
from py_engine.models.decoder import Layer
from py_engine.models.draft_file import DraftFile
from py_engine.models.rope_tables import rope_tables
from py_engine.plan.cache import Cache, make_cache, page_group
from py_engine.plan.features import Features
from py_engine.plan.mtp import map_logits, token_rows
from py_engine.plan.ops import Ops
from py_engine.plan.per_layer import scale_by
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights, missing_tensor

NEOX = True
BLOCK_SIZE = 16  # tokens of a block, where the file does not say
MASK = "tokenizer.ggml.mask_token_id"
ACTIVATIONS = {"silu": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu"}
TABLE, OUTPUT = "token_embd.weight", "output.weight"  # which a file may lack: then they are the model's
# Tensors that each layer has. Layers of models may do without some of these.
NEEDED = ("attn_norm", "attn_q_norm", "attn_k_norm", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
LAYER = re.compile(r"blk\.(\d+)\.")  # what the names of a layer's tensors begin with
# Tensors and metadata of relatives that draft in other ways, and what they have.
RELATIVES = {
    "markov_w1.weight": "has a Markov head (DSpark)",
    "selector_hidden.weight": "chooses among several drafts (DFlash 2)",
}
STREAMS = "hyper_connection_count"


@dataclass(frozen=True)
class Shape:
    """What a DFlash model's file says.

    `tokens`: the model's tokens that it knows, in the order of its logits; None: all.
    """

    cfg: Config
    layers: tuple[int, ...]  # of the model, whose inputs it reads
    mask: int  # the token whose embedding masked tokens have
    most: int  # tokens of a draft that it was trained for
    mutual: bool  # a block's tokens see later ones
    value_scale: float  # factor of attention's result
    tokens: Sequence[int] | None

    @property
    def width(self) -> int:
        """Columns of the residual stream."""
        return self.cfg.embedding_length


def make_dflash(file: DraftFile, model: Config, ops: Ops, w: Weights) -> DFlash:
    """A DFlash model in its model's plan. WispError draft_mismatch, or what is wrong with its file.

    `w`: all tensors; the DFlash model's begin with DRAFT.
    """
    header, tokens = file.header, file.tokens
    shape = _shape(header, w, tokens)
    _check_fits(header, shape, model)
    cfg, plan, kind = shape.cfg, ops.plan, "f32" if file.kv_type == "f32" else "f16"
    group, cols = page_group(plan, 0), cfg.head_count_kv * cfg.head_dim  # windows hide positions; they free no pages
    caches = [make_cache(plan, model.block_count + i, cols, kind, group) for i in range(cfg.block_count)]
    # With axes of positions, of which text has one, llama.cpp does not read the divisors.
    ropes = rope_tables(ops, cfg, NEOX, None if rope_sections(header) else file.factors, DRAFT)
    rows = token_rows(ops, DRAFT + "token_rows", tokens) if tokens is not None else None
    return DFlash(shape, model, w, ropes, caches, rows)


def _shape(header: Header, w: Weights, tokens: Sequence[int] | None) -> Shape:
    """What the file says. WispError missing_metadata, corrupt_header, missing_tensor or unsupported_architecture."""
    for tensor, why in RELATIVES.items():
        if tensor in header.tensors:
            raise unsupported(DFLASH, why)
    if natural(header, STREAMS):
        raise unsupported(DFLASH, "has the layers of DeepSeek V4")
    if TABLE not in header.tensors:  # the tokens are the model's, whatever the metadata say of their number
        header = replace(header, metadata=header.metadata | {f"{header.architecture}.vocab_size": 1})
    cfg, layers = Config.from_gguf(header), target_layers(header)
    _check_layers(header, cfg.block_count)
    for tensor in (f"{DRAFT}blk.{i}.{name}.weight" for i in range(cfg.block_count) for name in NEEDED):
        if tensor not in w:
            raise missing_tensor(tensor, DFLASH)
    cfg = replace(
        cfg,
        causal=True,  # what is after a block is not there
        attention_scale=optional_number(header, "attention.scale") or cfg.attention_scale,
        embedding_scale=optional_number(header, "embedding_scale") or 1.0,
        activation=_activation(header),
        windows=_windows(header, cfg),
    )
    most = natural(header, "block_size", BLOCK_SIZE) - 1
    if most < 1:
        raise unsupported(DFLASH, f"has blocks of {most + 1} tokens, the newest one among them")
    mutual = not switch(header, "attention.causal", False)
    scale = optional_number(header, "attention.value_scale") or 1.0
    return Shape(cfg, tuple(layers), _mask(header), most, mutual, scale, tokens)


def _check_layers(header: Header, count: int) -> None:
    """Raise WispError corrupt_header if the file has a layer after the first `count`: it would not be computed."""
    for name in header.tensors:
        layer = LAYER.match(name)
        if layer and int(layer[1]) >= count:
            raise WispError(
                f"{DFLASH}.block_count is {count}, but the file has the tensor {name}. Download the file again, or use "
                "another conversion of the draft model.",
                "corrupt_header",
            )


def _activation(header: Header) -> str:
    name = header.arch("hidden_activation", "silu")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise unsupported(DFLASH, f"has the activation {name!r:.100}")
    return ACTIVATIONS[name]


def _windows(header: Header, cfg: Config) -> tuple[int, ...]:
    """The window of each layer; 0: none. The metadata must say which layers have one."""
    if not natural(header, "attention.sliding_window"):
        return cfg.windows
    pattern = header.arch("attention.sliding_window_pattern")
    if not isinstance(pattern, list):
        raise WispError(
            f"{DFLASH}.attention.sliding_window_pattern is {pattern!r:.100}; it must be a list of truth values.",
            "corrupt_header",
        )
    return windows(header, cfg.block_count, 1)


def _mask(header: Header) -> int:
    """The token whose embedding masked tokens have."""
    mask = header.get(MASK)
    if mask is None:
        raise WispError(f"The draft model's file lacks the metadata key {MASK}.", "missing_metadata", param="draft")
    if type(mask) is not int or mask < 0:
        raise WispError(f"{MASK} is {mask!r:.100}; it must be a token's number.", "corrupt_header")
    return mask


def _check_fits(header: Header, shape: Shape, model: Config) -> None:
    """Raise WispError draft_mismatch if a DFlash model cannot read a model's hidden states, or has other tokens."""
    why, last = "", model.block_count - 1
    if shape.width != model.embedding_length:
        why = f"its rows are {shape.width} wide, the model's {model.embedding_length}"
    elif len(shape.layers) > model.block_count:
        why = f"it reads {len(shape.layers)} layers, the model has {model.block_count}"
    elif max(shape.layers) > last:
        why = f"it reads the inputs of the layers {list(shape.layers)}, Wisp has those of the layers 1 to {last}"
    elif TABLE in header.tensors and shape.cfg.vocab != model.vocab:
        why = f"it embeds {shape.cfg.vocab} tokens, the model has {model.vocab}"
    elif shape.mask >= model.vocab:
        why = f"its masked token is {shape.mask}, the model has {model.vocab} tokens"
    elif shape.tokens is not None and OUTPUT not in header.tensors:
        why = f"it has {len(shape.tokens)} tokens of its own, and no {OUTPUT} for them"
    why = why or check_tokens(shape.tokens, model.vocab)
    if why:
        raise unfit(DFLASH, why)


@dataclass(frozen=True)
class DFlash:
    """A DFlash model in the plan of its model. `w`: all tensors; the DFlash model's begin with DRAFT."""

    shape: Shape
    model: Config
    w: Weights
    ropes: list[Rope]  # of its layers
    caches: list[Cache]  # of its layers
    rows: Buffer | None  # the row of each of the model's tokens in its logits; None: they are in the model's order

    @property
    def context_length(self) -> int:
        """Positions that it was trained for."""
        return self.shape.cfg.context_length

    @cached_property
    def features(self) -> Features:
        """What it reads of the model's layers."""
        return Features(self.shape.layers, self.model.embedding_length)

    def fill(self, ops: Ops, x: Buffer) -> None:
        """Append the fused states of the batch, and each layer's keys and values of them. `x` is not read."""
        shape, joined = self.shape, self.features
        cols = len(joined.layers) * joined.cols
        fc = self.w.matrix(DRAFT + "fc.weight", shape.width, cols)
        fused = ops.project("dflash.fused", joined.buffer(ops), fc, None)
        normed = ops.normed_input(fused, self._vector("enc.output_norm"), shape.cfg.eps)
        for i, cache in enumerate(self.caches):
            self._layer(ops, i).append_keys(normed, cache, is_normed=True)

    def block(self, ops: Ops) -> Buffer:
        """Append the layers for the blocks of some sequences; return the hidden states (n, width)."""
        cfg = self.shape.cfg
        x = ops.embed(self._matrix(TABLE, TABLE), cfg.embedding_scale, name="dflash.x")
        for i, cache in enumerate(self.caches):
            layer = self._layer(ops, i)
            attending = replace(layer, cfg=self._scaled(layer.cfg))
            attending.add_attention(layer.attention(x, cache), x)
            layer.add_feed_forward(layer.feed_forward(x), x)
            if layer.b + "layer_output_scale.weight" in self.w:
                scale_by(ops, x, self.w.vector((layer.b + "layer_output_scale.weight", 1)))
        return x

    def logits(self, ops: Ops, x: Buffer, logits: Buffer) -> None:
        """Append the logits of the first tokens of block()'s rows x, into `logits`."""
        cfg, tokens = self.shape.cfg, self.shape.tokens
        hidden = ops.rms_norm("dflash.hidden", x, self._vector(cfg.output_norm), cfg.eps)
        if tokens is not None and self.rows is not None:
            output = self.w.matrix(DRAFT + OUTPUT, len(tokens), self.shape.width)
            map_logits(ops, ops.project("dflash.logits", hidden, output, None), len(tokens), self.rows, logits)
        else:
            ops.project_into(logits, hidden, self._matrix(OUTPUT, OUTPUT if OUTPUT in self.w else TABLE))

    def _layer(self, ops: Ops, i: int) -> Layer:
        b = f"{DRAFT}blk.{i}."
        cfg = self.shape.cfg
        if b + "attn_v.weight" not in self.w:  # keys, normalised without weights, are values
            cfg = replace(cfg, value_norm=True)
        return Layer(cfg, self.w, ops, b, self.ropes[i], cfg.windows[i], self.shape.mutual)

    def _scaled(self, cfg: Config) -> Config:
        """A layer's hyperparameters for what attention adds: its result is scaled."""
        scale = self.shape.value_scale  # a norm after it undoes the scale, but for its eps
        return replace(cfg, residual_scale=scale, post_norm_eps=cfg.eps / scale**2) if scale != 1 else cfg

    def _matrix(self, name: str, of_model: str) -> Weight:
        """The DFlash model's matrix (vocab, width) of this name. If it has none, the model's matrix `of_model`."""
        return self.w.matrix(DRAFT + name if DRAFT + name in self.w else of_model, self.model.vocab, self.shape.width)

    def _vector(self, name: str) -> Weight:
        return self.w.vector((f"{DRAFT}{name}.weight", self.shape.width))
