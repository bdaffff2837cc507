"""Gemma 4's assistants: small models that draft for a Gemma 4 model, from its hidden states and its caches.

The input joins the model's embedding of a token with the model's hidden state of the token before, after its last norm.
The layers have queries only. Those with a window read the cache of the model's last layer but one, the others that of
its last. No cache has a drafted token's own keys and values. The further tokens of a draft go on from the assistant's
output, and are computed at the position of the first: the draft's anchor.
Source: llama.cpp's `gemma4-assistant`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from py_engine.files.draft_header import ASSISTANT, DRAFT, unfit
from py_engine.files.gguf_header import Header
from py_engine.models import gemma4
from py_engine.models.common import dimension
from py_engine.models.decoder import Layer
from py_engine.models.rope_tables import rope_tables
from py_engine.plan.cache import Cache
from py_engine.plan.mtp import mtp_input, store_hidden
from py_engine.plan.ops import Ops
from py_engine.plan.pages import shift_index
from py_engine.plan.per_layer import scale_by
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights


def _layer_read(model: gemma4.Config, window: int) -> int:
    """The layer of the model whose cache an assistant's layers read: those with a window, or those without."""
    return model.block_count - (2 if window else 1)


def make_assistant(
    header: Header, of_model: gemma4.Config, ops: Ops, w: Weights, caches: list[Cache],
    factors: Sequence[float] | None,
) -> Assistant:  # fmt: skip
    """An assistant of a model in the model's plan. WispError draft_mismatch.

    `w`: all tensors; the assistant's begin with DRAFT. `caches`: of the model's layers. `factors`: divisors of the
    assistant's RoPE frequencies.
    """
    cfg = gemma4.Config.from_gguf(header)
    _check_fits(header, cfg, of_model)
    anchor = shift_index(ops.plan.n_ctx, ops.plan.page)
    ropes = [replace(rope, anchor=anchor) for rope in rope_tables(ops, cfg, gemma4.NEOX, factors, DRAFT)]
    read = [caches[_layer_read(of_model, window)] for window in cfg.windows]
    return Assistant(cfg, of_model, w, ropes, read)


def _check_fits(header: Header, cfg: gemma4.Config, of_model: gemma4.Config) -> None:
    """Raise WispError draft_mismatch if an assistant cannot read a model's hidden states and caches."""
    why = ""
    if (width := dimension(header, "embedding_length_out")) != of_model.embedding_length:
        why = f"it reads {width} values of a token, the model has {of_model.embedding_length}"
    for i, window in enumerate(cfg.windows if not why else ()):
        j = _layer_read(of_model, window)
        own, read = cfg.layer(i), of_model.layer(j)
        sizes = [(c.head_count_kv, c.head_dim) for c in (own, read)]
        if (
            j < 0
            or window == 1
            or window != of_model.windows[j]
            or sizes[0] != sizes[1]
            or own.head_count % own.head_count_kv
        ):
            why = f"its layer {i} cannot read the cache of the model's layer {j}"
            break
    if cfg.vocab != of_model.vocab:  # the logits of other tokens would be the model's
        why = f"it has {cfg.vocab} tokens, the model has {of_model.vocab}"
    if why:
        raise unfit(ASSISTANT, why)


@dataclass(frozen=True)
class Assistant:
    """An assistant in the plan of its model. `w`: all tensors; the assistant's begin with DRAFT."""

    cfg: gemma4.Config
    model: gemma4.Config
    w: Weights
    ropes: list[Rope]  # of its layers
    caches: list[Cache]  # that its layers read

    def fill(self, ops: Ops, x: Buffer) -> None:
        """Append what stores the model's last hidden states. `x`: the batch's, before the last norm (n, n_embd)."""
        store_hidden(ops, x, self._vector(self.model.output_norm, self.model.embedding_length), self.model.eps)

    def predict(self, ops: Ops, logits: Buffer, previous: Buffer | None = None) -> Buffer:
        """Append the assistant for a token of each sequence of a batch; return its hidden states for the next token.

        `logits`: where to put them. `previous`: the hidden states of the tokens before, as this returns them; None: the
        model's.
        """
        cfg, n, wide = self.cfg, self.cfg.embedding_length, self.model.embedding_length
        table = self.w.matrix("token_embd.weight", self.model.vocab, wide)
        e = ops.embed(table, self.model.embedding_scale, name="assistant.embedded")
        joined = mtp_input(ops, e, previous, wide, from_layer=previous is not None)
        pre = self.w.matrix(DRAFT + "nextn.pre_projection.weight", n, 2 * wide)
        x = ops.project("assistant", joined, pre, None)
        for i, window in enumerate(cfg.windows):
            layer = Layer(cfg.layer(i), self.w, ops, f"{DRAFT}blk.{i}.", self.ropes[i], window)
            layer.add_attention(layer.attention(x, self.caches[i]), x)
            layer.add_feed_forward(layer.feed_forward(x), x)
            scale_by(ops, x, self.w.vector((layer.b + "layer_output_scale.weight", 1)))
        hidden = ops.rms_norm("assistant.hidden", x, self._vector(DRAFT + cfg.output_norm, n), cfg.eps)
        ops.project_into(logits, hidden, self.w.matrix(DRAFT + "token_embd.weight", cfg.vocab, n))
        following = ops.buffer(f"assistant.following.{ops.batch}", e.shape)
        ops.project_into(following, hidden, self.w.matrix(DRAFT + "nextn.post_projection.weight", wide, n))
        return following

    def _vector(self, name: str, length: int) -> Weight:
        return self.w.vector((name + ".weight", length))
