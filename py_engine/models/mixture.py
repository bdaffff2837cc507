"""The feed-forward net of a mixture of experts: a router, the experts' stacked matrices, perhaps a shared expert."""

from __future__ import annotations

from py_engine.models.config import Config, Mixture
from py_engine.plan import experts
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.weights import Weights


def add_experts(
    cfg: Config, moe: Mixture, w: Weights, ops: Ops, b: str, x: Buffer, h: Buffer, norm: Weight | None
) -> None:
    """x += the mixture's answer to h (normalised with `norm`, where there is one)."""
    n_embd, n_ff, n = cfg.embedding_length, moe.feed_forward_length, moe.expert_count
    if norm:
        h = ops.rms_norm("normed", h, norm, cfg.eps)
    logits = ops.project(
        "router", h, w.matrix(b + "ffn_gate_inp.weight", n, n_embd), w.vector_if_there((b + "ffn_gate_inp.bias", n))
    )
    bias = w.vector_if_there((b + "exp_probs_b.bias", n))
    scale = cfg.residual_scale * moe.scale
    to = experts.route(ops, logits, n, moe.expert_used_count, moe.normalised, scale, moe.gating, bias)
    gate = w.experts(b + "ffn_gate_exps", n, n_ff, n_embd) if b + "ffn_gate_exps.weight" in w else None
    up = w.experts(b + "ffn_up_exps", n, n_ff, n_embd)
    down = w.experts(b + "ffn_down_exps", n, n_embd, n_ff)
    hidden = experts.hidden(ops, to, h, gate, up, n_ff, cfg.activation)
    if shared := w.rows(b + "ffn_up_shexp.weight"):
        _add_shared(cfg, w, ops, b, x, h, shared)
    experts.combine(ops, to, hidden, down, n_embd, x)


def _add_shared(cfg: Config, w: Weights, ops: Ops, b: str, x: Buffer, h: Buffer, n_ff: int) -> None:
    """x += the shared expert's answer to h, by the share that its own gate says."""
    n_embd = cfg.embedding_length
    stack = w.stack([(b + "ffn_gate_shexp.weight", n_ff), (b + "ffn_up_shexp.weight", n_ff)], n_embd)
    hidden = ops.gated(h, None, stack, None, cfg.eps, cfg.activation)
    out = ops.project("out", hidden, w.matrix(b + "ffn_down_shexp.weight", n_embd, n_ff), None)
    own = w.vector_if_there((b + "ffn_gate_inp_shexp.weight", n_embd))
    ops.add_scaled(out, cfg.residual_scale, x, ops.project("shared_gate", h, own, None) if own else None)
