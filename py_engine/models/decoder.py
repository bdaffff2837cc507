"""The layers that the families share: attention, then a feed-forward network, each added to the residual stream.

A layer has the biases, q and k norms, norms after a block, and gates that the file has tensors for. All else is in
Config, which the families fill in.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.models.config import Config
from py_engine.models.group_norm import group_norm
from py_engine.models.indexer import Reading, raw_positions
from py_engine.models.latent_attention import LatentLayer
from py_engine.models.mixture import ExpertLayer
from py_engine.models.qkv import key_value_rows, projected_bias, projected_rows
from py_engine.models.recurrent import RecurrentLayer
from py_engine.models.stored_heads import check_stored, is_stored, stored_rows
from py_engine.plan import alibi
from py_engine.plan.attention import scale_queries
from py_engine.plan.cache import Cache
from py_engine.plan.encoder_decoder import part_of
from py_engine.plan.ops import AttentionOptions, HeadNorm, Ops, Projection
from py_engine.plan.per_layer import Gates, gate, scale_by
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.relative_bias import RelativeBias, relative_bias
from py_engine.plan.rope import Rope
from py_engine.plan.rows import Parts, RowNorm, clamp, copy_columns, norm_into
from py_engine.plan.shortconv import shortconv, shortconv_all
from py_engine.plan.value_padding import unpadded
from py_engine.plan.weights import Weights

# architectures whose files may have the norm of queries or of keys alone
ONE_HEAD_NORM = ("glm4moe", "jina-bert-v2", "k2-horizon", "stablelm", "step35")
SUB_NORMS = {"attn_output": "attn_sub_norm", "ffn_down": "ffn_sub_norm"}  # norms before a block's last matrix


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    table = w.matrix("token_embd.weight", cfg.vocab, cfg.embedding_length)
    x = ops.embed(table, cfg.embedding_scale, media_row="scaled" if cfg.scaled_media else "given")
    if "position_embd.weight" in w:
        ops.embed(w.matrix("position_embd.weight", cfg.context_length, cfg.embedding_length), row="position")
    if cfg.unit_embeddings:
        x = plain_norm(cfg, ops, x, "stream")
    if cfg.embedding_norm:
        embedding_norm = w.vector((cfg.embedding_norm + ".weight", cfg.embedding_length))
        bias = w.optional_vector((cfg.embedding_norm + ".bias", cfg.embedding_length))
        x = ops.layer_norm("stream", x, embedding_norm, bias, cfg.eps)
    embeddings = copied(cfg, ops, x, "embeddings") if cfg.adds_embeddings else None
    for i in range(cfg.block_count):
        layer = Layer(cfg.layer(i), w, ops, f"blk.{i}.", ropes[i], cfg.windows[i])
        if cfg.parallel:
            mixed, hidden = layer.attention(x, caches[i]), layer.feed_forward(x)
            layer.add_attention(mixed, x)
            layer.add_feed_forward(hidden, x)
            ops.end_layer(x)
            continue
        routed = layer.router(x) if cfg.routes_input else None
        if cfg.conv_kernel_sizes and (size := cfg.conv_kernel_sizes[i]):
            layer.add_shortconv(x, caches[i], size)
        else:
            attended = layer.attention(x, caches[i]) if cfg.attends(i) else None
            stated = layer.recurrent(x, caches[i]) if cfg.has_state(i) else None
            if attended:
                layer.add_attention(attended, x)
            if stated:
                layer.add_recurrent(stated, x)
        if layer.cfg.mixture and layer.b + "ffn_gate_inp.weight" in w:
            h, norm = normed(cfg, w, ops, x, layer.b + cfg.ffn_norm)
            ExpertLayer(layer.cfg, layer.cfg.mixture, w, ops, layer.b).add(x, h, norm, routed)
        elif not cfg.recurrent or layer.b + "ffn_up.weight" in w:
            layer.add_feed_forward(layer.feed_forward(x), x)
        if embeddings:
            layer.add_embeddings(embeddings, x)
        ops.end_layer(x)
    return x


def output(cfg: Config, w: Weights, ops: Ops, x: Buffer, all_tokens: bool = False) -> Buffer:
    """Append the head; return the logits of the last token, or of all. Without output.weight, embeddings are tied."""
    tensor = "output.weight" if "output.weight" in w else "token_embd.weight"
    h, norm = normed(cfg, w, ops, x, cfg.output_norm)
    bias = w.optional_vector(("output.bias", cfg.vocab))
    matrix = w.matrix(tensor, cfg.vocab, cfg.embedding_length)
    logits = ops.head(h, Projection([matrix], bias, norm, cfg.eps), all_tokens)
    if cfg.final_soft_cap or cfg.logit_scale != 1:
        ops.soft_cap(logits, cfg.logit_scale, cfg.final_soft_cap)
    if cfg.banned[1]:
        ops.ban(logits, *cfg.banned)
    return logits


def normed(cfg: Config, w: Weights, ops: Ops, x: Buffer, name: str) -> tuple[Buffer, Weight | None]:
    """The input of a projection and the RMS norm to fuse with it: (x, norm), or (layer-normed x, None).

    (x, None) if the file has no such norm.
    """
    n = cfg.embedding_length
    if cfg.norm_groups > 1:
        return group_norm(cfg, w, ops, x, _norm_tensor(w, name)), None
    if cfg.plain_norms:
        return plain_norm(cfg, ops, x, "normed"), None
    if not cfg.layer_norm:
        norm = w.optional_vector((_norm_tensor(w, name), n))
        if norm and name + ".bias" in w:
            return ops.biased_rms_norm("normed", x, norm, w.vector((name + ".bias", n)), cfg.eps), None
        return x, norm
    if name + ".weight" not in w:
        return x, None
    norm, bias = w.vector((name + ".weight", n)), w.optional_vector((name + ".bias", n))
    return ops.layer_norm("normed", x, norm, bias, cfg.eps), None


def copied(cfg: Config, ops: Ops, x: Buffer, name: str) -> Buffer:
    """A copy of x in a buffer of this name: (n, n_embd)."""
    y = ops.buffer(f"{ops.name}.{name}", x.shape)
    copy_columns(ops, Parts(x), Parts(y), cfg.embedding_length)
    return y


def plain_norm(cfg: Config, ops: Ops, x: Buffer, name: str) -> Buffer:
    """The norm of x without weights: (n, n_embd)."""
    n, y = cfg.embedding_length, ops.buffer(f"{ops.name}.{name}", x.shape)
    norm_into(ops, x, RowNorm(ops.constant(f"ones.{n}", [1.0] * n), n, cfg.eps, mean=cfg.layer_norm), y)
    return y


def _norm_tensor(w: Weights, name: str) -> str:
    """The tensor of a norm's weights. Falcon-H1's and PLaMo's files have some without the usual ending."""
    return name if name in w else name + ".weight"


@dataclass(frozen=True)
class Layer:
    """One layer. `b`: the prefix of its tensors' names."""

    cfg: Config
    w: Weights
    ops: Ops
    b: str
    rope: Rope
    window: int
    mutual: bool = False  # as of AttentionOptions

    def attention(self, x: Buffer, cache: Cache) -> Buffer:
        """Attend to the cache, with x's keys and values appended: (n, n_head * head_dim).

        If the file has a gate, its activation for x scales the result.
        """
        cfg, w, b = self.cfg, self.w, self.b
        cols = cfg.attention_cols
        h, norm = normed(cfg, w, self.ops, x, b + cfg.attn_norm)
        if cfg.latent:
            return LatentLayer(cfg, w, self.ops, b, cfg.latent).attend(h, norm, cache, self.rope, self.window)
        mask = raw_positions(cfg, w, self.ops, b, Reading(h, norm, self.rope), cache)
        q, gates = self._queries(h, norm, cache)
        if cfg.temperature:
            scale_queries(self.ops, q, cfg.head_count * cfg.head_dim, cfg.temperature)
        sinks = w.optional_vector((b + "attn_sinks.weight", cfg.head_count))
        slopes = alibi.table(self.ops, cfg.head_count, cfg.alibi_max_bias) if cfg.alibi_max_bias else None
        whole = cfg.sees_whole_media(self.window) and mask is None
        part = part_of(self.ops.plan, "decoder") if cfg.decoder_start is not None else None
        options = AttentionOptions(
            cfg.attention_scale, self.window, soft_cap=cfg.attention_soft_cap, sinks=sinks, causal=cfg.causal,
            slopes=slopes, whole_media=whole, chunked=cfg.chunked, relative=self._relative_bias(), part=part,
            index_mask=mask, anchor=self.rope.anchor, mutual=self.mutual,
        )  # fmt: skip
        attn = self.ops.attention(q, cache, cfg.heads, options)
        if cfg.value_dim:
            attn = unpadded(self.ops, attn, cfg.heads, cfg.value_dim, cfg.value_scale)
        span = 1  # values that share a gate
        if b + "attn_gate.weight" in w:
            span = cols // cfg.head_count if w.rows(b + "attn_gate.weight") == cfg.head_count else 1
            matrix = w.matrix(b + "attn_gate.weight", cols // span, cfg.embedding_length)
            gates = self.ops.normed_stack("attn_gate", h, Projection([matrix], None, norm, cfg.eps))
        if gates is None:
            return attn
        return gate(self.ops, Gates(gates, cfg.gate_activation, span=span), attn, 0, cols, for_products=True)

    def _queries(self, h: Buffer, norm: Weight | None, cache: Cache) -> tuple[Buffer, Buffer | None]:
        """The queries of h, normalised with `norm`, and the gates that their matrix has, if any.

        The keys and values are appended to the cache.
        """
        cfg, w, ops = self.cfg, self.w, self.ops
        parts, gated = projected_rows(cfg, w, self.b)
        check_stored(cfg, w, self.b, gated=gated)
        bias = projected_bias(cfg, w, self.b, parts)
        if gated and not bias and len(parts) > 1:
            if norm and not ops.small_batch:  # a small batch's products normalise their input themselves
                h, norm = ops.normed_input(h, norm, cfg.eps), None
            queries, gate_rows = self._queries_and_gates()
            others = [w.part(t + ".weight", n, cfg.embedding_length, [(0, n)]) for t, n in parts[1:]]
            opened = ops.normed_stack("attn_gate", h, Projection(w.joined([gate_rows]), None, norm, cfg.eps))
            projection = Projection(w.joined([queries, *others]), None, norm, cfg.eps)
            return ops.qkv(h, projection, cache, cfg.heads, self.rope, self._qk_norm()), opened
        projection = Projection(self._stack(parts), bias, norm, cfg.eps)
        if not (gated or cfg.value_dim or cfg.qkv_limit):
            return ops.qkv(h, projection, cache, cfg.heads, self.rope, self._qk_norm()), None
        rows = ops.normed_stack("qkv", h, projection)
        stacked, gates = self._without_gates(rows) if gated else (rows, None)
        if limit := cfg.qkv_limit:
            limits = ops.constant(f"limits.{limit:g}", [limit, -limit])
            clamp(ops, stacked, limits, stacked, projection.rows)
        if cfg.value_dim:
            stacked = stored_rows(cfg, w, ops, self.b, stacked)
        q = ops.split_qkv(stacked, cache, cfg.heads, self.rope, None if is_stored(cfg) else self._qk_norm(), cfg.eps)
        ops.quantize_cache(cache, cfg.head_count_kv * cfg.head_dim)
        return q, gates

    def _stack(self, rows: list[tuple[str, int]]) -> list[Weight]:
        """The matrices of tensors with their rows, those of keys and values only where the layer has them."""
        n, w, ((name, count), *_) = self.cfg.embedding_length, self.w, rows
        q_rows = self.cfg.head_count * self.cfg.head_dim
        if self.cfg.shares_kv and count > q_rows:
            return w.joined([w.part(name + ".weight", count, n, [(0, q_rows)], name + ".queries")])
        return w.stack([(t + ".weight", n_rows) for t, n_rows in rows], n)

    def _without_gates(self, rows: Buffer) -> tuple[Buffer, Buffer]:
        """Queries, keys and values of rows that have each head's queries, then its gates; and the gates."""
        ops, (n_head, n_head_kv, size) = self.ops, self.cfg.heads
        queries, kv = n_head * size, 2 * n_head_kv * size
        qkv, gates = ops.rows("ungated_qkv", queries + kv), ops.rows("attn_gate", queries)
        for first, target in ((0, qkv), (size, gates)):
            copy_columns(ops, Parts(rows, first, 2 * size), Parts(target, 0, size, n_head), size)
        copy_columns(ops, Parts(rows, 2 * queries), Parts(qkv, queries), kv)
        return qkv, gates

    def append_keys(self, x: Buffer, cache: Cache, *, is_normed: bool = False) -> None:
        """Append x's keys and values to the cache, and compute nothing else. `is_normed`: x needs no norm."""
        cfg, w = self.cfg, self.w
        rows = key_value_rows(cfg, w, self.b)
        h, norm = (x, None) if is_normed else normed(cfg, w, self.ops, x, self.b + cfg.attn_norm)
        if cfg.latent:
            LatentLayer(cfg, w, self.ops, self.b, cfg.latent).append_keys(h, norm, cache, self.rope)
            return
        stack = w.stack([(t + ".weight", n) for t, n in rows], cfg.embedding_length)
        bias = w.optional_vector(*((t + ".bias", n) for t, n in rows))
        heads = (0, cfg.head_count_kv, cfg.head_dim)
        self.ops.qkv(h, Projection(stack, bias, norm, cfg.eps), cache, heads, self.rope, self._qk_norm())

    def _relative_bias(self) -> RelativeBias | None:
        """T5's bias of scores: the layer's own, or the first layer's."""
        if not (count := self.cfg.relative_buckets):
            return None
        own = self.b + "attn_rel_b.weight"
        tensor = own if own in self.w else self.b.partition("blk.")[0] + "blk.0.attn_rel_b.weight"
        return relative_bias(self.ops, self.w.matrix(tensor, count, self.cfg.head_count), causal=self.cfg.causal)

    def _queries_and_gates(self) -> tuple[Weight, Weight]:
        """The two halves of attn_q, whose rows are each head's queries and then its gates."""
        n_head, _, size = self.cfg.heads
        tensor, rows, cols = self.b + "attn_q.weight", 2 * n_head * size, self.cfg.embedding_length
        first, second = ([(2 * i * size + at, size) for i in range(n_head)] for at in (0, size))
        queries = self.w.part(tensor, rows, cols, first, tensor + ".queries")
        return queries, self.w.part(tensor, rows, cols, second, tensor + ".gates")

    def _qk_norm(self) -> HeadNorm | None:
        """The norm of queries and keys: per head, or across heads if the weights are that long.

        Weights of two dimensions hold a row for every head.
        """
        n_head, n_head_kv, head_dim = self.cfg.heads
        q, k = self.b + "attn_q_norm", self.b + "attn_k_norm"
        if self.cfg.unit_qk_norm:
            return HeadNorm(self.ops.constant(f"unit_heads.{head_dim}", [1.0] * 2 * head_dim), after_rotation=True)
        if self.cfg.single_query_norm:
            return HeadNorm(self.w.vector((q + ".weight", n_head)), after_rotation=True, single=True)
        if self.cfg.shares_kv and q + ".weight" in self.w:
            return HeadNorm(self.w.vector((q + ".weight", head_dim)))
        there = [name for name in (q, k) if name + ".weight" in self.w]
        if not there:
            return None
        alone = "" if len(there) > 1 else "queries" if there == [q] else "keys"
        size = self.w.size(there[0] + ".weight")
        lengths = (head_dim, head_dim) if size == head_dim else (head_dim * n_head, head_dim * n_head_kv)
        may_lack_one = self.w.header.architecture in ONE_HEAD_NORM
        vector = self.w.optional_vector if may_lack_one else self.w.vector
        weight = vector((q + ".weight", lengths[0]), (k + ".weight", lengths[1]))
        assert weight
        bias = self.w.optional_vector((q + ".bias", lengths[0]), (k + ".bias", lengths[1]))
        across_heads = size != head_dim and not self.w.rows(there[0] + ".weight") and not self.cfg.head_norms
        mean, eps = self.cfg.layer_norm or self.cfg.head_layer_norm_eps > 0, self.cfg.head_layer_norm_eps
        return HeadNorm(
            weight, bias, across_heads=across_heads, layer_norm=mean, norm_values=self.cfg.value_norm,
            after_rotation=self.cfg.norm_after_rope, alone=alone, eps=eps,
        )  # fmt: skip

    def router(self, x: Buffer) -> Buffer:
        """The router's logits for x, if the layer has experts."""
        assert self.cfg.mixture
        return ExpertLayer(self.cfg, self.cfg.mixture, self.w, self.ops, self.b).router(x, None)

    def project_attention(self, attn: Buffer) -> Buffer:
        """attn times the output matrix: (n, n_embd)."""
        return self.ops.project("out", attn, *self._matrix("attn_output", self.cfg.attention_cols))

    def add_attention(self, attn: Buffer, x: Buffer) -> None:
        """x += attn times the output matrix."""
        self._add(attn, "attn_output", self.cfg.attention_cols, self.cfg.post_norms[0], x)

    def add_shortconv(self, x: Buffer, cache: Cache, kernel_size: int) -> None:
        """x += the short convolution's output."""
        n, w, ops, b = self.cfg.embedding_length, self.w, self.ops, self.b + "shortconv."
        h, norm = normed(self.cfg, w, ops, x, self.b + "attn_norm")
        stack = w.stack([(b + "in_proj.weight", 3 * n)], n)
        conv = w.vector((b + "conv.weight", kernel_size * n))
        bcz = ops.normed_stack("bcz", h, Projection(stack, None, norm, self.cfg.eps))
        mixed = shortconv(ops, bcz, conv, cache, n) if self.cfg.causal else shortconv_all(ops, bcz, conv, n)
        ops.linear(mixed, w.matrix(b + "out_proj.weight", n, n), None, x)

    def recurrent(self, x: Buffer, cache: Cache) -> Buffer:
        """What a state makes of x: (n, inner_size)."""
        ssm, states = self.cfg.state_space, cache.states
        assert ssm is not None
        assert states is not None
        h, norm = normed(self.cfg, self.w, self.ops, x, self.b + self.cfg.attn_norm)
        layer = RecurrentLayer(ssm, self.w, self.ops, self.b, self.cfg.eps)
        return layer.mixed(h, norm, self.cfg.embedding_length, states)

    def project_recurrent(self, y: Buffer) -> Buffer:
        """y times a recurrent layer's output matrix: (n, n_embd)."""
        assert self.cfg.state_space is not None
        return self.ops.project("out", y, *self._matrix(self._recurrent_output(), self.cfg.state_space.inner_size))

    def add_recurrent(self, y: Buffer, x: Buffer) -> None:
        """x += y times a recurrent layer's output matrix."""
        assert self.cfg.state_space is not None
        self._add(y, self._recurrent_output(), self.cfg.state_space.inner_size, self.cfg.post_norms[0], x)

    def _recurrent_output(self) -> str:
        return "ssm_out" if self.b + "ssm_out.weight" in self.w else "attn_output"  # Kimi's

    def feed_forward(self, x: Buffer) -> Buffer:
        """The feed-forward network's hidden layer: (n, n_ff)."""
        cfg, w, b, ops = self.cfg, self.w, self.b, self.ops
        n_embd, n_ff = cfg.embedding_length, cfg.feed_forward_length
        own = b + cfg.ffn_norm
        h, norm = normed(cfg, w, ops, x, own if _norm_tensor(w, own) in w else self._shared_norm())
        rows = [(b + "ffn_up", n_ff)]
        joined = w.rows(b + "ffn_up.weight") == 2 * n_ff  # phi3: the gate's rows, then the up's
        if b + "ffn_gate.weight" in w or ("<" in cfg.activation and not joined):  # only gated activations have limits
            rows = [(b + "ffn_gate", n_ff), *rows]
        elif joined:
            rows = [(b + "ffn_up", 2 * n_ff)]
        stack = w.stack([(t + ".weight", n) for t, n in rows], n_embd)
        bias = w.optional_vector(*((t + ".bias", n) for t, n in rows))
        projection = Projection(stack, bias, norm, cfg.eps)
        if projection.rows == n_ff:
            return ops.activated(h, projection, cfg.xielu or cfg.activation)
        return ops.gated(h, projection, cfg.activation)

    def _sub_normed(self, y: Buffer, name: str, cols: int) -> Buffer:
        """The RMS norm of a block's result before its last matrix, if the file has such a norm (BitNet)."""
        if (tensor := f"{self.b}{name}.weight") not in self.w:
            return y
        norm = self.w.vector((tensor, cols))
        return self.ops.rms_norm(name, y, norm, self.cfg.eps, self.ops.input_dtype)

    def _shared_norm(self) -> str:
        """The norm of a feed-forward network without its own: attention's, if both run in parallel."""
        return self.b + "attn_norm" if self.cfg.parallel else ""

    def add_embeddings(self, embeddings: Buffer, x: Buffer) -> None:
        """x += the embeddings times the layer's factor of them."""
        scaled = copied(self.cfg, self.ops, embeddings, "scaled_embeddings")
        scale_by(self.ops, scaled, self.w.vector((self.b + "layer_output_scale.weight", 1)))
        self.ops.add_scaled(scaled, 1.0, x)

    def project_feed_forward(self, hidden: Buffer) -> Buffer:
        """hidden times the down matrix: (n, n_embd)."""
        return self.ops.project("out", hidden, *self._matrix("ffn_down", self.cfg.feed_forward_length))

    def add_feed_forward(self, hidden: Buffer, x: Buffer) -> None:
        """x += hidden times the down matrix."""
        self._add(hidden, "ffn_down", self.cfg.feed_forward_length, self.cfg.post_norms[1], x)

    def _add(self, y: Buffer, name: str, cols: int, post_norm: str, x: Buffer) -> None:
        cfg, w, ops, b = self.cfg, self.w, self.ops, self.b
        weight, bias = self._matrix(name, cols)
        if name in SUB_NORMS:
            y = self._sub_normed(y, SUB_NORMS[name], cols)
        if post_norm and (norm_tensor := _norm_tensor(w, b + post_norm)) in w:
            norm = w.vector((norm_tensor, cfg.embedding_length))
            ops.add_norm(ops.project("out", y, weight, bias), norm, x, cfg.post_norm_eps or cfg.eps)
        else:
            ops.linear(y, weight, bias, x, cfg.residual_scale)

    def _matrix(self, name: str, cols: int) -> tuple[Weight, Weight | None]:
        """A matrix back to the residual stream, and its bias if the file has it."""
        n_embd, tensor = self.cfg.embedding_length, self.b + name
        return self.w.matrix(tensor + ".weight", n_embd, cols), self.w.optional_vector((tensor + ".bias", n_embd))
