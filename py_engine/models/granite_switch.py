"""Granite with adapters in the file, which control tokens of the text switch on (Granite Switch).

A control token counts for all tokens from it on; another token is embedded in its place. As llama.cpp has it, a text
with several control tokens has the adapter with the mean of their numbers. Source: llama.cpp's `graniteswitch`
architecture.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import decoder, granite
from py_engine.models.common import count, number
from py_engine.models.decoder import Layer, normed
from py_engine.plan.cache import Cache
from py_engine.plan.ops import AttentionOptions, Ops, Projection
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.switched import LowRank, Switch, add_low_rank, switch
from py_engine.plan.weights import Weights

NEOX = False
GAIN = 15.0  # of a control token's score, where the metadata has none
LEAST_WEIGHT = 1e-30  # of other tokens
MAX_ADAPTERS = 256


@dataclass(frozen=True)
class Config(granite.Config):
    """The hyperparameters."""

    rank: int = 0
    control: tuple[int, ...] = ()  # the tokens that switch on adapters 1, 2, ...
    substitutes: tuple[int, ...] = ()  # the tokens that are embedded in their place
    others: float = 0.0  # the weight of a token that is none of these

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        adapters = count(header, "adapters.count")
        base = super().from_gguf(header)
        lists = [_tokens(header, f"adapters.token_ids_{kind}", adapters, base.vocab) for kind in KINDS]
        own = {
            "rank": count(header, "adapters.lora_rank"),
            "control": lists[0],
            "substitutes": lists[1],
            "others": max(LEAST_WEIGHT, exp(-2 * number(header, "adapters.router_gain", GAIN))),
        }
        return cls(**{**vars(base), **own})


KINDS = ("activate", "substitute")


def _tokens(header: Header, key: str, adapters: int, vocab: int) -> tuple[int, ...]:
    found = header.arch(key)
    whole = isinstance(found, list) and all(type(token) is int and 0 <= token < vocab for token in found)
    if not whole or len(found) != adapters or adapters > MAX_ADAPTERS:
        raise WispError(f"{header.architecture}.{key} must have a token for each adapter.", "corrupt_header")
    return tuple(found)


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    found = switch(ops, cfg.control, cfg.substitutes, cfg.others)
    table = w.matrix("token_embd.weight", cfg.vocab, cfg.embedding_length)
    x = ops.embed(table, cfg.embedding_scale, tokens=found.tokens)
    for i in range(cfg.block_count):
        layer = SwitchedLayer(Layer(cfg, w, ops, f"blk.{i}.", ropes[i], 0), cfg, found)
        layer.add_attention(x, caches[i])
        layer.add_feed_forward(x)
        ops.end_layer(x)
    return x


@dataclass(frozen=True)
class SwitchedLayer:
    """One layer, whose products each token's adapter changes."""

    layer: Layer
    cfg: Config
    found: Switch

    def add_attention(self, x: Buffer, cache: Cache) -> None:
        """x += the attention's output."""
        cfg, ops = self.cfg, self.layer.ops
        q_rows, kv_rows = cfg.head_count * cfg.head_dim, cfg.head_count_kv * cfg.head_dim
        sizes = {"attn_q": q_rows, "attn_k": kv_rows, "attn_v": kv_rows}
        rows = self._projected("qkv", self._normed(x, "attn_norm"), {"attn_qkv": q_rows + 2 * kv_rows}, sizes)
        q = ops.split_qkv(rows, cache, cfg.heads, self.layer.rope, None, cfg.eps)
        ops.quantize_cache(cache, kv_rows)
        options = AttentionOptions(cfg.attention_scale, whole_media=cfg.sees_whole_media(0))
        self._add("attn_output", ops.attention(q, cache, cfg.heads, options), q_rows, x)

    def add_feed_forward(self, x: Buffer) -> None:
        """x += the feed-forward network's output."""
        ops, n_ff = self.layer.ops, self.cfg.feed_forward_length
        sizes = {"ffn_gate": n_ff, "ffn_up": n_ff}
        rows = self._projected("gate_up", self._normed(x, "ffn_norm"), sizes, sizes)
        hidden = ops.rows("hidden", n_ff, ops.input_dtype)
        ops.activate(rows, hidden, n_ff, self.cfg.activation, gated=True)
        self._add("ffn_down", hidden, n_ff, x)

    def _normed(self, x: Buffer, name: str) -> Buffer:
        layer = self.layer
        h, norm = normed(self.cfg, layer.w, layer.ops, x, layer.b + name)
        return layer.ops.normed_input(h, norm, self.cfg.eps) if norm else h

    def _projected(self, name: str, h: Buffer, matrices: dict[str, int], adapted: dict[str, int]) -> Buffer:
        """h times the stack of matrices, with their rows, and of the matrices that adapters see."""
        w, ops, b, n = self.layer.w, self.layer.ops, self.layer.b, self.cfg.embedding_length
        stack = w.stack([(f"{b}{part}.weight", rows) for part, rows in matrices.items()], n)
        y = ops.normed_stack(name, h, Projection(stack))
        self._add_low_rank(h, adapted, n, y)
        return y

    def _add(self, name: str, y: Buffer, cols: int, x: Buffer) -> None:
        """x += y times a matrix back to the residual stream."""
        w, ops, n = self.layer.w, self.layer.ops, self.cfg.embedding_length
        out = ops.project("out", y, w.matrix(f"{self.layer.b}{name}.weight", n, cols), None)
        self._add_low_rank(y, {name: n}, cols, out)
        ops.add_scaled(out, self.cfg.residual_scale, x)

    def _add_low_rank(self, x: Buffer, parts: dict[str, int], cols: int, y: Buffer) -> None:
        w, b, rank, slots = self.layer.w, self.layer.b, self.cfg.rank, len(self.cfg.control) + 1
        pairs, first = [], 0
        for part, rows in parts.items():
            a = w.flattened(f"{b}{part}.lora_a", slots, rank, cols)
            pairs.append(LowRank(a, w.flattened(f"{b}{part}.lora_b", slots, rows, rank), first))
            first += rows
        add_low_rank(self.layer.ops, self.found, x, pairs, y)


output = decoder.output
