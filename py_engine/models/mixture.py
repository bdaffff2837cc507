"""The feed-forward network of a mixture of experts: a router, the experts' matrices, perhaps a shared expert."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.models.config import Config, Mixture
from py_engine.plan import experts
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.weights import Weights


@dataclass(frozen=True)
class ExpertLayer:
    """The experts of one layer. `b`: the prefix of its tensors' names."""

    cfg: Config
    moe: Mixture
    w: Weights
    ops: Ops
    b: str

    def add(self, x: Buffer, h: Buffer, norm: Weight | None) -> None:
        """x += the mixture's output for h (normalised with `norm`, if given)."""
        cfg, moe, w, ops, b = self.cfg, self.moe, self.w, self.ops, self.b
        n_embd, n_ff, n = cfg.embedding_length, moe.feed_forward_length, moe.expert_count
        if norm:
            h = ops.rms_norm("normed", h, norm, cfg.eps)
        router = w.matrix(b + "ffn_gate_inp.weight", n, n_embd)
        logits = ops.project("router", h, router, w.optional_vector((b + "ffn_gate_inp.bias", n)))
        routing = experts.Routing(
            n,
            moe.expert_used_count,
            moe.normalised,
            cfg.residual_scale * moe.scale,
            moe.gating,
            w.optional_vector((b + "exp_probs_b.bias", n)),
        )
        route = experts.route(ops, logits, routing)
        gate = w.experts(b + "ffn_gate_exps", n, n_ff, n_embd) if b + "ffn_gate_exps.weight" in w else None
        up = w.experts(b + "ffn_up_exps", n, n_ff, n_embd)
        down = w.experts(b + "ffn_down_exps", n, n_embd, n_ff)
        hidden = experts.hidden(ops, route, h, experts.ExpertNetwork(gate, up, n_ff, cfg.activation))
        if n_ff_shared := w.rows(b + "ffn_up_shexp.weight"):
            self._add_shared(x, h, n_ff_shared)
        experts.combine(ops, route, hidden, down, n_embd, x)

    def _add_shared(self, x: Buffer, h: Buffer, n_ff: int) -> None:
        """x += the shared expert's output for h, scaled by its own sigmoid gate if it has one."""
        cfg, w, ops, b = self.cfg, self.w, self.ops, self.b
        n_embd = cfg.embedding_length
        stack = w.stack([(b + "ffn_gate_shexp.weight", n_ff), (b + "ffn_up_shexp.weight", n_ff)], n_embd)
        hidden = ops.gated(h, Projection(stack, eps=cfg.eps), cfg.activation)
        out = ops.project("out", hidden, w.matrix(b + "ffn_down_shexp.weight", n_embd, n_ff), None)
        gate = w.optional_vector((b + "ffn_gate_inp_shexp.weight", n_embd))
        ops.add_scaled(out, cfg.residual_scale, x, ops.project("shared_gate", h, gate, None) if gate else None)
