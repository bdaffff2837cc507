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
        if norm and not ops.small_batch:  # a small batch's products normalise their input themselves
            h, norm = ops.normed_input(h, norm, cfg.eps), None
        router = w.matrix(b + "ffn_gate_inp.weight", n, n_embd)
        router_bias = w.optional_vector((b + "ffn_gate_inp.bias", n))
        logits = ops.normed_stack("router", h, Projection([router], router_bias, norm, cfg.eps))
        routing = experts.Routing(
            n,
            moe.expert_used_count,
            moe.normalised,
            cfg.residual_scale * moe.scale,
            moe.gating,
            w.optional_vector((b + "exp_probs_b.bias", n)),
        )
        gated, limit = b + "ffn_gate_exps.weight" in w, ops.device.max_binding
        inputs = [b + "ffn_gate_exps", b + "ffn_up_exps"] if gated else [b + "ffn_up_exps"]
        network = experts.ExpertNetwork(
            w.experts(inputs, n, n_ff, n_embd, limit),
            w.experts([b + "ffn_down_exps"], n, n_embd, n_ff, limit)[0],
            n_ff,
            cfg.activation,
            gated,
            norm,
            cfg.eps,
        )
        hidden = experts.hidden(ops, experts.route(ops, logits, routing), h, network)
        if n_ff_shared := w.rows(b + "ffn_up_shexp.weight"):
            self._add_shared(x, h, norm, n_ff_shared)
        experts.combine(ops, hidden, network.down, x)

    def _add_shared(self, x: Buffer, h: Buffer, norm: Weight | None, n_ff: int) -> None:
        """x += the shared expert's output for h (normalised), scaled by its own sigmoid gate if it has one."""
        cfg, w, ops, b = self.cfg, self.w, self.ops, self.b
        n_embd = cfg.embedding_length
        gated = b + "ffn_gate_shexp.weight" in w
        rows = [(f"{b}ffn_{name}_shexp.weight", n_ff) for name in (("gate", "up") if gated else ("up",))]
        projection = Projection(w.stack(rows, n_embd), None, norm, cfg.eps)
        hidden = (ops.gated if gated else ops.activated)(h, projection, cfg.activation)
        out = ops.project("out", hidden, w.matrix(b + "ffn_down_shexp.weight", n_embd, n_ff), None)
        gate = w.optional_vector((b + "ffn_gate_inp_shexp.weight", n_embd))
        opened = ops.normed_stack("shared_gate", h, Projection([gate], None, norm, cfg.eps)) if gate else None
        ops.add_scaled(out, cfg.residual_scale, x, opened)
