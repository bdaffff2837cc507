"""Latent attention of one layer, its projections absorbed or latents expanded (plan/latent_attention.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.models.config import Config
from py_engine.models.indexer import Reading, chosen_positions
from py_engine.plan import latent_attention
from py_engine.plan.attention import scale_queries
from py_engine.plan.cache import Cache
from py_engine.plan.latent_attention import Appended, Columns, HeadMatrices, LatentShape, Projections
from py_engine.plan.ops import AttentionOptions, Ops, Projection
from py_engine.plan.per_layer import Gates, gate
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.rope import Rope
from py_engine.plan.rows import Parts, copy_columns
from py_engine.plan.weights import Weights

LATENT = "attn_kv_a_mqa.weight"


@dataclass(frozen=True)
class LatentLayer:
    """The latent attention of one layer. `b`: the prefix of its tensors' names."""

    cfg: Config
    w: Weights
    ops: Ops
    b: str
    shape: LatentShape

    def append_keys(self, h: Buffer, norm: Weight | None, cache: Cache, rope: Rope) -> None:
        """Append the latents of h (normalised with `norm`) to the cache, and compute nothing else.

        For MTP layers. attend() of the same layer may stack the matrix, which is then in memory twice.
        """
        ops, b = self.ops, self.b
        shape = replace(self.shape, heads=0)
        kv = self._latents(h, norm)
        given = Appended(kv.buffer, kv, self.w.vector((b + "attn_kv_a_norm.weight", shape.rank)), self.cfg.eps, rope)
        latent_attention.append(ops, given, cache, shape, ops.rows("no_queries", 1), whole=False)

    def attend(self, h: Buffer, norm: Weight | None, cache: Cache, rope: Rope, window: int) -> Buffer:
        """Attend to the cache, with the latents of h (normalised with `norm`) appended: (n, heads * value).

        If the file has a gate for each head or value, its activation for h scales the result.
        """
        cfg, ops, tensor = self.cfg, self.ops, self.b + "attn_gate.weight"
        if norm and not ops.small_batch:  # else the products apply it
            # The gate reads it, too, after the queries' latent was normalised, which may be as wide.
            h, norm = ops.rms_norm("normed_layer", h, norm, cfg.eps, ops.input_dtype), None
        attn = self._attend(h, norm, cache, rope, window)
        if tensor not in self.w:
            return attn
        span = self.shape.value if self.w.rows(tensor) == self.shape.heads else 1  # values that share a gate
        matrix = self.w.matrix(tensor, cfg.attention_cols // span, cfg.embedding_length)
        gates = ops.normed_stack("attn_gate", h, Projection([matrix], None, norm, cfg.eps))
        how = Gates(gates, cfg.gate_activation, span=span)
        return gate(ops, how, attn, 0, cfg.attention_cols, for_products=True)

    def _attend(self, h: Buffer, norm: Weight | None, cache: Cache, rope: Rope, window: int) -> Buffer:
        cfg, w, ops, b, shape = self.cfg, self.w, self.ops, self.b, self.shape
        q, kv = self._inputs(h, norm)
        # a stack of the queries' latent and kv, if the index needs that
        mask = chosen_positions(cfg, w, ops, b, Reading(h, norm, rope, kv.buffer), cache)
        if cfg.temperature:
            scale_queries(ops, q, shape.heads * (shape.nope + shape.rope), cfg.temperature)
        given = Appended(q, kv, w.vector((b + "attn_kv_a_norm.weight", shape.rank)), cfg.eps, rope)
        sinks = w.optional_vector((b + "attn_sinks.weight", shape.heads))
        options = AttentionOptions(
            cfg.attention_scale,
            window,
            sinks=sinks,
            whole_media=cfg.sees_whole_media(window) and mask is None,
            value_from=shape.rope,
            index_mask=mask,
        )
        matrices = self._projections()
        if latent_attention.expands(ops):
            whole = ops.rows("whole_q", shape.heads * (shape.nope + shape.rope))
            latent_attention.append(ops, given, cache, shape, whole, whole=True)
            return latent_attention.expanded_attention(ops, whole, cache, matrices, shape, options)
        y = ops.rows("q", shape.heads * shape.row)
        latent_attention.append(ops, given, cache, shape, y, whole=False)
        own, absorbed = Columns(q, 0, shape.nope + shape.rope), Columns(y, shape.rope, shape.row)
        latent_attention.products(ops, own, matrices.keys, absorbed, transposed=matrices.joined)
        attn = ops.attention(y, cache, cfg.heads, options)
        out = ops.rows("values", shape.heads * shape.value, ops.input_dtype)
        summed = Columns(attn, shape.rope, shape.row)
        latent_attention.products(ops, summed, matrices.values, Columns(out, 0, shape.value))
        return out

    def _latents(self, h: Buffer, norm: Weight | None) -> Columns:
        """The latent of h, normalised with `norm`, then the key that is rotated: (n, rank + rope)."""
        rows = self.shape.rank + self.shape.rope
        matrix = self.w.matrix(self.b + LATENT, rows, self.cfg.embedding_length)
        kv = Columns(self.ops.normed_stack("kv_a", h, Projection([matrix], None, norm, self.cfg.eps)))
        return self._with_normed_key(kv)

    def _with_normed_key(self, kv: Columns) -> Columns:
        """kv with the norm of the key that is rotated, if the file has one."""
        w, ops, shape, tensor = self.w, self.ops, self.shape, self.b + "attn_k_norm.weight"
        if tensor in w:
            key, place = ops.rows("rope_key", shape.rope), Parts(kv.buffer, kv.first + shape.rank)
            copy_columns(ops, place, Parts(key), shape.rope)
            normed = ops.rms_norm("normed_rope_key", key, w.vector((tensor, shape.rope)), self.cfg.eps)
            copy_columns(ops, Parts(normed), place, shape.rope)
        return kv

    def _inputs(self, h: Buffer, norm: Weight | None) -> tuple[Buffer, Columns]:
        """The query heads of h, normalised with `norm`, and its latent.

        The queries have one matrix, or two with a norm between them. The first of two is stacked with the latent's.
        """
        cfg, w, ops, b, shape = self.cfg, self.w, self.ops, self.b, self.shape
        rows, n = shape.heads * (shape.nope + shape.rope), cfg.embedding_length
        if not (rank := w.rows(b + "attn_q_a.weight")):
            matrix = w.matrix(b + "attn_q.weight", rows, n)
            return ops.normed_stack("q_heads", h, Projection([matrix], None, norm, cfg.eps)), self._latents(h, norm)
        stack = w.stack([(b + "attn_q_a.weight", rank), (b + LATENT, shape.rank + shape.rope)], n)
        low = ops.normed_stack("low", h, Projection(stack, None, norm, cfg.eps))
        own_norm = w.vector((b + "attn_q_a_norm.weight", rank))
        matrix = w.matrix(b + "attn_q_b.weight", rows, rank)
        q = ops.normed_stack("q_heads", low, Projection([matrix], None, own_norm, cfg.eps))
        return q, self._with_normed_key(Columns(low, rank))

    def _projections(self) -> Projections:
        """Every head's matrices. Older files join those of keys and values."""
        w, b, shape = self.w, self.b, self.shape
        heads, rank = shape.heads, shape.rank
        if b + "attn_k_b.weight" in w:
            limit = self.ops.device.max_binding
            ((keys, _),) = w.experts([b + "attn_k_b"], heads, rank, shape.nope, limit)
            ((values, _),) = w.experts([b + "attn_v_b"], heads, shape.value, rank, limit)
            of_keys = HeadMatrices(heads, keys, rank, shape.nope)
            return Projections(of_keys, HeadMatrices(heads, values, shape.value, rank), False)
        step = shape.nope + shape.value
        matrix = w.matrix(b + "attn_kv_b.weight", heads * step, rank)
        of_keys = HeadMatrices(heads, matrix, shape.nope, rank, 0, step)
        return Projections(of_keys, HeadMatrices(heads, matrix, shape.value, rank, shape.nope, step), True)
