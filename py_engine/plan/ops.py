"""The vocabulary that models/*.py are written in, and its lowering to dispatches.

A model's layer is a sequence of calls: embed, qkv, attention, linear, gated, head. `Ops` lowers them by batch size:

    batch 1                one token, with fused kernels: mostly five to eight dispatches a layer (the DECODE list)
    state_per_token        up to Plan.max_small_batch tokens of one or several sequences, with fused kernels
    otherwise              many tokens, with tiled kernels (the PREFILL list)

Shapes here are (tokens, columns). An activation row is padded to whole groups of 32.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from py_engine.plan import attention, decode_attention, low_rank, mixed_types, products, quants, tiles
from py_engine.plan.activations import Xielu, activation_params
from py_engine.plan.adapters import NO_ADAPTERS, Adapters
from py_engine.plan.attention import AttentionOptions, HeadNorm
from py_engine.plan.cache import Cache
from py_engine.plan.features import Features
from py_engine.plan.kernels import Device
from py_engine.plan.linear_ops import LinearOps, Projection
from py_engine.plan.op_list import pad
from py_engine.plan.plan import Buffer, PerToken, Plan, Weight
from py_engine.plan.products import Epilogue, Product
from py_engine.plan.rope import Rope
from py_engine.plan.shared_constants import BANNED, THREADS

__all__ = ["AttentionOptions", "HeadNorm", "Ops", "Projection", "Xielu", "pad"]

EMBED_THREADS = 32  # threads of a workgroup of embed.wgsl
SOFT_CAP_THREADS = 256  # threads of a workgroup of soft_cap.wgsl


@dataclass(frozen=True)
class TokenRows:
    """The rows that an op has for each token. `factors` (n, count): the gate of each is multiplied by its factor."""

    count: int = 1
    factors: Buffer | None = None


ONE_ROW = TokenRows()


class Ops(LinearOps):
    """A builder that lowers a model's layers to the ops of one list."""

    def __init__(
        self, plan: Plan, name: str, batch: int, device: Device, state_per_token: bool = False,
        adapters: Adapters = NO_ADAPTERS,
    ) -> None:  # fmt: skip
        super().__init__(plan, name, batch, device, state_per_token, adapters)
        self.reads_media = False  # the list is MEDIA, of a model that computes tokens of media in another way
        self._staged: Cache | None = None  # attention reads its newest keys and values as f32
        self.layer_ends: list[tuple[int, Buffer]] = []  # the index of the op after each layer, and the hidden state
        self.features: Features | None = None  # what is copied of the layers' hidden states

    def end_layer(self, x: Buffer) -> None:
        """Record that x is the hidden state after a layer. Control vectors add to it."""
        for direction in self.adapters.directions.get(len(self.layer_ends), ()):
            low_rank.add_direction(self, x, direction)
        self.layer_ends.append((len(self.ops), x))
        if self.features is not None:
            self.features.collect(self, len(self.layer_ends), x)

    # -- embeddings ----------------------------------------------------------------------------------------------------

    def embed(
        self, table: Weight, scale: float = 1.0, row: str = "token", name: str = "x", media_row: str = "given",
        tokens: Buffer | None = None,
    ) -> Buffer:  # fmt: skip
        """Embed the batch: x (n, cols) = scale * the table's rows of the batch's tokens, into the buffer `name`.

        `row` "position" adds the rows of the tokens' positions to x, "first" adds the table's first row. `media_row`:
        what x is for tokens of media: "given", their embeddings; "scaled", scale * these; "first", scale * the
        table's first row. `tokens`: others than the plan's, in a buffer of the same shape.
        """
        x = self.rows(name, table.cols)
        for row0, part in table.split(self.device.max_binding):
            self.add(
                "embed",
                {"QUANT": part.layout.fragment, "COLS": table.cols, "ROW": row, "TOKENS": self.tokens.shape[1]}
                | {"WG": EMBED_THREADS, "MEDIA_ROW": media_row}
                | self.state_params,
                {"row0": row0, "rows": part.rows, "scale": scale},
                {"state": self.state, "tokens": tokens or self.tokens, "w": part, "x": x},
                -(-quants.groups(table.cols) // EMBED_THREADS),
                PerToken(),
            )
        if row == "token":
            for pair in self.adapters.of(table.name):
                rows, name = low_rank.embedding_table(self.plan, pair), f"lora_embd.{pair.adapter}"
                h = self.embed(rows, scale, name=name, tokens=tokens)
                low_rank.add_embedding(self, x, h, pair)
        return x

    # -- attention ----------------------------------------------------------------------------------------------------

    def qkv(
        self, x: Buffer, projection: Projection, cache: Cache, heads: tuple[int, int, int], rope: Rope,
        qk_norm: HeadNorm | None = None,
    ) -> Buffer:  # fmt: skip
        """Project x to queries, keys and values, rotate, append keys and values to the cache; return the queries.

        `heads` is (n_head, n_head_kv, head_dim); n_head 0: keys and values only. `qk_norm` normalises before the
        rotation. A row of the result holds the queries first; if the steps are not fused, the keys and values follow.
        """
        n_head, n_head_kv, head_dim = heads
        if projection.rows == n_head * head_dim:  # queries only: another layer fills the cache
            n_head_kv = 0
        heads = n_head, n_head_kv, head_dim
        q = None if qk_norm else self._fused_qkv(x, projection, cache, heads, rope)
        if q is None:
            epilogue = attention.qkv_epilogue(heads, cache, rope)
            bound = 2 + mixed_types.buffers_of(epilogue.bindings)  # with the state and the rows
            hold = bound if self.small_batch and qk_norm is None else 0
            rows, left = self._held_stack("qkv", *self._normed(x, projection), hold=hold)
            if left:
                attention.rope_append(self, rows, epilogue, left)
                q = rows
            else:
                q = self.split_qkv(rows, cache, heads, rope, qk_norm, projection.eps)
        self.quantize_cache(cache, n_head_kv * head_dim)
        return q

    def _fused_qkv(
        self, x: Buffer, projection: Projection, cache: Cache, heads: tuple[int, int, int], rope: Rope
    ) -> Buffer | None:
        """The rotated queries, by one dispatch that also fills the cache; None if the matrices do not allow it."""
        is_single, stack, head_dim = self._fusible(projection), projection.stack, heads[2]
        whole = not any(low_rank.adapted(self, weight) or weight.rows % head_dim for weight in stack)
        if not is_single and not (whole and mixed_types.threads(self, stack)):
            return None
        q = self.rows("q", max(1, heads[0]) * head_dim)
        parts = self._products(x, projection, q, attention.qkv_epilogue(heads, cache, rope))
        if not is_single:
            return q if mixed_types.append(self, parts) else None
        begin = len(self.ops)
        products.matvec(self, *parts)
        if mixed_types.storage_buffers(self.ops[-1]) > self.device.max_storage_buffers:
            del self.ops[begin:]
            return None
        return q

    def split_qkv(
        self, rows: Buffer, cache: Cache, heads: tuple[int, int, int], rope: Rope, norm: HeadNorm | None, eps: float
    ) -> Buffer:
        """Normalise and rotate rows of stacked queries, keys and values; store keys and values; return the queries."""
        epilogue = attention.qkv_epilogue(heads, cache, rope)
        if norm is None:
            attention.rope_append(self, rows, epilogue)
            return rows
        q = self.rows("q", max(1, heads[0]) * heads[2])
        attention.norm_rope_append(self, rows, q, norm, eps, epilogue)
        return q

    def staging(self, cache: Cache) -> Cache:
        """The cache as this list sees it: with buffers for a batch's keys and values, before they are quantized."""
        if cache.kind != "q8_0":
            return cache
        return replace(cache, staged=(self.rows("k.staged", cache.cols), self.rows("v.staged", cache.cols)))

    def quantize_cache(self, cache: Cache, cols: int) -> None:
        """Quantize the batch's staged keys and values into a q8_0 cache. `cols`: values of a key row."""
        if cache.staged is None or not cols:
            return
        if self.small_batch:
            self._staged = cache
        if self.batch > 1:  # else attention_combine.wgsl does it, which saves a dispatch
            attention.quantize_cache(self, cache, cols)

    def attention(self, q: Buffer, cache: Cache, heads: tuple[int, int, int], options: AttentionOptions) -> Buffer:
        """Attend over the cache: (n, n_head * head_dim). `heads` is (n_head, n_head_kv, head_dim)."""
        y = self.rows("attn", heads[0] * heads[2], self.input_dtype)
        share = tiles.attention_share(self.device, heads[2], heads[0] // heads[1])
        call = attention.Call(q, cache, y, heads, options, share=share)
        if self.small_batch:
            assert self._staged in (None, cache), "staged keys and values are for the attention over their own cache"
            staged, self._staged = self._staged is not None, None
            decode_attention.decode(self, call, staged)
        else:
            attention.prefill(self, call)
        return y

    # -- feed-forward and head ----------------------------------------------------------------------------------------

    def gated(self, x: Buffer, projection: Projection, activation: str = "silu") -> Buffer:
        """activation(gate) * up of the projected x. The projection stacks the gate's rows, then the up's."""
        cols = projection.rows // 2
        x, projection = self._normed(x, projection)
        y = self.rows("hidden", cols, self.input_dtype)
        if self._fusible(projection):
            products.matvec(self, *self._products(x, projection, y, _activating("gated", activation)))
            return y
        if self._stores_halves(projection):
            products.append(self, *self._products(x, projection, y, _activating("gated", activation)))
            return y
        if any(low_rank.adapted(self, weight) for weight in projection.stack):
            rows, left = self._held_stack("gate_up", x, projection, low_rank.Gate(y, cols, activation))
            return self.activate(rows, y, cols, activation, gated=True) if left else y
        return self.activate(self._stack("gate_up", x, projection), y, cols, activation, gated=True)

    def gating(self, x: Buffer, weight: Weight, activation: str, up: Buffer, first: int) -> Buffer | None:
        """activation(x W^T) * up[:, first : first + rows], by one dispatch; None if the list has none for that."""
        if not self._fusible(Projection([weight])):
            return None
        y, consts = self.rows("gated", weight.rows), {"up_stride": up.shape[1], "up_first": first}
        epilogue = Epilogue("gate", activation_params(activation), consts, {"up": up})
        products.matvec(self, Product(x, weight, y, epilogue=epilogue))
        return y

    def activated(self, x: Buffer, projection: Projection, activation: str | Xielu) -> Buffer:
        """activation(up) of the projected x."""
        x, projection = self._normed(x, projection)
        y = self.rows("hidden", projection.rows, self.input_dtype)
        if isinstance(activation, str) and self._fusible(projection):
            products.matvec(self, *self._products(x, projection, y, _activating("activate", activation)))
            return y
        if isinstance(activation, str) and self._stores_halves(projection):
            products.append(self, *self._products(x, projection, y, _activating("activate", activation)))
            return y
        return self.activate(self._stack("up", x, projection), y, projection.rows, activation, gated=False)

    def activate(
        self, x: Buffer, y: Buffer, cols: int, activation: str | Xielu, *, gated: bool, rows: TokenRows = ONE_ROW
    ) -> Buffer:
        """y = activation(x), or, gated, activation(gate) * up of stacked rows."""
        name, terms = ("xielu", asdict(activation)) if isinstance(activation, Xielu) else (activation, {})
        assert gated or "<" not in name, "limits are of gated activations"
        self.add(
            "activate",
            {"COLS": cols, **activation_params(name), "GATED": int(gated), "Y16": int(y.dtype == "f16")}
            | ({"WEIGHTED": 1} if rows.factors else {}),
            {"x_stride": x.shape[1], "y_stride": y.shape[1]} | terms,
            {"state": self.state, "x": x, "y": y} | ({"factors": rows.factors} if rows.factors else {}),
            -(-cols // THREADS),
            PerToken(),
            rows.count,
        )
        return y

    def head(self, x: Buffer, projection: Projection, all_tokens: bool = False, logits: Buffer | None = None) -> Buffer:
        """Logits of the batch's last token (vocab,), or of all tokens (n, padded vocab). One matrix, not a stack.

        `logits`: where to put those of a small batch, without a norm.
        """
        if logits is not None:
            low_rank.append(self, [Product(x, projection.stack[0], logits, projection.bias)])
            return logits
        if self.state_params["STATE_PER_TOKEN"]:
            return self._logits_rows(x, projection)
        (weight,) = projection.stack
        if all_tokens:
            logits = self.rows("logits", weight.rows)
            normed = self.normed_input(x, projection.norm, projection.eps) if projection.norm else x
            low_rank.append(self, [Product(normed, weight, logits, projection.bias)])
            return logits
        logits = self.buffer("logits", (weight.rows,))
        low_rank.append(self, [Product(x, weight, logits, projection.bias, norm=projection.norm, eps=projection.eps)])
        return logits

    def _logits_rows(self, x: Buffer, projection: Projection) -> Buffer:
        """Logits of each token of a small batch (n, padded vocab); a draft model's in rows as long as the model's."""
        both = self.plan.drafts_for
        logits = self.rows("logits", both.n_vocab if both else projection.rows)
        low_rank.append(self, self._products(*self._normed(x, projection), logits))
        return logits

    def soft_cap(self, logits: Buffer, scale: float, cap: float) -> None:
        """logits *= scale; then, with a cap, logits = cap * tanh(logits / cap)."""
        cols = logits.shape[-1]
        self.add(
            "soft_cap",
            {"COLS": cols, "CAP": float(cap), "WG": SOFT_CAP_THREADS},
            {"scale": scale},
            {"y": logits},
            -(-cols // SOFT_CAP_THREADS),
            PerToken() if len(logits.shape) > 1 else 1,
        )

    def ban(self, logits: Buffer, first: int, count: int) -> None:
        """logits[..., first : first + count] = the logit of tokens that cannot be sampled."""
        rows = logits if len(logits.shape) > 1 else replace(logits, shape=(1, *logits.shape))
        self.add(
            "clamp",
            {"COLS": count, "IN_PLACE": 1, "X16": 0, "Y16": 0},
            {"x_stride": rows.shape[1], "y_stride": rows.shape[1], "first": first},
            {"state": self.state, "limits": self.constant("banned", [BANNED, BANNED]), "y": rows},
            -(-count // THREADS),
            PerToken() if rows is logits else 1,
        )


def _activating(name: str, activation: str) -> Epilogue:
    return Epilogue(name, activation_params(activation))
