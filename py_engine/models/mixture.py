"""The feed-forward network of a mixture of experts: a router, the experts' matrices, perhaps a shared expert."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.models.config import Config, Mixture
from py_engine.plan import experts
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.weights import ExpertMatrices, Weights


@dataclass(frozen=True)
class ExpertLayer:
    """The experts of one layer. `b`: the prefix of its tensors' names."""

    cfg: Config
    moe: Mixture
    w: Weights
    ops: Ops
    b: str

    def router(self, h: Buffer, norm: Weight | None) -> Buffer:
        """The router's logits (n, experts) for h (normalised with `norm`, if given)."""
        n, name = self.moe.expert_count, self.b + "ffn_gate_inp"
        matrix = self.w.matrix(name + ".weight", n, self.cfg.embedding_length)
        bias = self.w.optional_vector((name + ".bias", n))
        return self.ops.normed_stack("router", h, Projection([matrix], bias, norm, self.cfg.eps))

    def add(self, x: Buffer, h: Buffer, norm: Weight | None, logits: Buffer | None = None) -> None:
        """x += the mixture's output for h (normalised with `norm`, if given). `logits`: the router's, if not for h."""
        cfg, w, ops, b = self.cfg, self.w, self.ops, self.b
        n_embd = cfg.embedding_length
        if norm and not ops.small_batch:  # a small batch's products normalise their input themselves
            h, norm = ops.normed_input(h, norm, cfg.eps), None
        hidden, down = self.hidden(h, norm, logits)
        n_ff_shared, post_norm = w.rows(b + "ffn_up_shexp.weight"), f"{b}{cfg.post_norms[1]}.weight"
        if cfg.post_norms[1] and post_norm in w:
            if not n_ff_shared:
                raise WispError("A norm after experts needs a shared expert.", "unsupported_architecture")
            out = self._shared(h, norm, n_ff_shared, "experts_out")
            experts.combine(ops, hidden, down, out)
            ops.add_norm(out, w.vector((post_norm, n_embd)), x, cfg.eps)
            return
        if n_ff_shared:
            gate = w.optional_vector((b + "ffn_gate_inp_shexp.weight", n_embd))
            opened = ops.normed_stack("shared_gate", h, Projection([gate], None, norm, cfg.eps)) if gate else None
            ops.add_scaled(self._shared(h, norm, n_ff_shared, "out"), cfg.residual_scale, x, opened)
        experts.combine(ops, hidden, down, x)

    def hidden(
        self, h: Buffer, norm: Weight | None, logits: Buffer | None = None
    ) -> tuple[experts.Hidden, ExpertMatrices]:
        """The chosen experts' hidden layers for h (normalised with `norm`, if given), and the matrices after them."""
        cfg, moe, w, ops, b = self.cfg, self.moe, self.w, self.ops, self.b
        n_embd, n_ff, n = cfg.embedding_length, moe.feed_forward_length, moe.expert_count
        routing = experts.Routing(
            n,
            moe.expert_used_count,
            moe.normalised,
            cfg.residual_scale * moe.scale,
            moe.gating,
            w.optional_vector((b + "exp_probs_b.bias", n)),
            moe.groups,
            moe.groups_used,
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
            moe.weighs_inputs,
        )
        route = experts.route(ops, logits or self.router(h, norm), routing)
        return experts.hidden(ops, route, h, network), network.down

    def _shared(self, h: Buffer, norm: Weight | None, n_ff: int, name: str) -> Buffer:
        """The shared expert's output for h (normalised), without its own gate if it has one."""
        cfg, w, ops, b = self.cfg, self.w, self.ops, self.b
        n_embd = cfg.embedding_length
        gated = b + "ffn_gate_shexp.weight" in w
        rows = [(f"{b}ffn_{part}_shexp.weight", n_ff) for part in (("gate", "up") if gated else ("up",))]
        projection = Projection(w.stack(rows, n_embd), None, norm, cfg.eps)
        hidden = (ops.gated if gated else ops.activated)(h, projection, cfg.activation)
        return ops.project(name, hidden, w.matrix(b + "ffn_down_shexp.weight", n_embd, n_ff), None)
