"""A layer of a Q-Former (Li et al. 2023): rows attend to the rows of their group, then to the rows of their window.

A norm follows each addition. Source: granite-speech.cpp and granite4-vision.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.models.projectors.block import Norms
from py_engine.models.projectors.heads import hidden
from py_engine.models.projectors.stages import Stages
from py_engine.plan import products
from py_engine.plan.cache import UNPAGED, Cache
from py_engine.plan.ops import AttentionOptions
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.products import Product

EPS = 1e-12  # of the norms, whatever the metadata says


@dataclass(frozen=True)
class QFormerLayer:
    """One layer. `b`: the prefix of its tensors' names; `group`, `window`: tables of segments."""

    s: Stages
    b: str
    heads: int
    group: str
    window: str
    activation: str

    def add(self, y: Buffer, window: Cache) -> Buffer:
        """The layer's result of the rows y. `window`: the keys and values of the windows."""
        s, n, norms = self.s, self.s.tower.embedding_length, Norms(self.s, rms=False, eps=EPS)
        self._attend(y, "self_attn", self._keys_and_values(y, "self_attn", "own", n), self.group)
        y = norms.apply(self.b + "self_attn_norm", y, "queries")
        self._attend(y, "cross_attn", window, self.window)
        y = norms.apply(self.b + "cross_attn_norm", y, "attended_norm")
        mid, width = hidden(s, y, self.b + "ffn_up", n, self.activation)
        s.ops.linear(mid, *weight_and_bias(s, self.b + "ffn_down", n, width), y)
        return norms.apply(self.b + "ffn_norm", y, "queries_norm")

    def windows(self, x: Buffer, cols: int, name: str = "windows") -> Cache:
        """The keys and values of the windows' rows x, which has `cols` columns, in buffers of that name."""
        return self._keys_and_values(x, "cross_attn", name, cols)

    def _shape(self, count: int) -> tuple[int, int, int]:
        return count, self.heads, self.s.tower.embedding_length // self.heads

    def _keys_and_values(self, x: Buffer, name: str, buffer: str, cols: int) -> Cache:
        s, ops, n = self.s, self.s.ops, self.s.tower.embedding_length
        both = ops.rows("keys_values", 2 * n)
        bias = s.w.vector(*((f"{self.b}{name}_{part}.bias", n) for part in "kv"))
        for i, part in enumerate("kv"):
            weight = s.w.matrix(f"{self.b}{name}_{part}.weight", n, cols)
            products.append(ops, Product(x, weight, both, bias, row0=i * n))
        k, v = (ops.buffer(f"{s.tower.modality}.{part}.{buffer}", (ops.batch, n), ops.input_dtype) for part in "kv")
        cache = Cache(k, v, ops.input_dtype, UNPAGED)
        ops.split_qkv(both, cache, self._shape(0), s.no_rope(), None, EPS)
        return cache

    def _attend(self, x: Buffer, name: str, cache: Cache, table: str) -> None:
        """x += attention to a cache's rows of the same segment."""
        s, ops, n = self.s, self.s.ops, self.s.tower.embedding_length
        q, first = ops.project("q", x, *weight_and_bias(s, f"{self.b}{name}_q", n, n)), len(ops.ops)
        shape = self._shape(self.heads)
        attended = ops.attention(q, cache, shape, AttentionOptions(shape[2] ** -0.5, causal=False))
        s.segments(first, table)
        ops.linear(attended, *weight_and_bias(s, f"{self.b}{name}_out", n, n), x)


def weight_and_bias(s: Stages, name: str, count: int, cols: int) -> tuple[Weight, Weight]:
    """The matrix `name` and what is added to its product."""
    return s.w.matrix(name + ".weight", count, cols), s.w.vector((name + ".bias", count))
