"""The feed-forward network of a mixture of experts: a router, the experts' matrices, perhaps a shared expert."""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.models.config import Config, Mixture
from py_engine.plan import experts
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.rows import clamp
from py_engine.plan.weights import Weights


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
        cfg, moe, w, ops, b = self.cfg, self.moe, self.w, self.ops, self.b
        n_embd, n_ff, n = cfg.embedding_length, moe.feed_forward_length, moe.expert_count
        if norm and not ops.small_batch:  # a small batch's products normalise their input themselves
            h, norm = ops.normed_input(h, norm, cfg.eps), None
        logits = logits or self.router(h, norm)
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
        network = self._network("exps", n, n_ff, norm)
        hidden = experts.hidden(ops, experts.route(ops, logits, routing), h, network)
        n_ff_shared, post_norm = w.rows(b + "ffn_up_shexp.weight"), f"{b}{cfg.post_norms[1]}.weight"
        if cfg.post_norms[1] and post_norm in w:
            if not n_ff_shared:
                raise WispError("A norm after experts needs a shared expert.", "unsupported_architecture")
            out = self._shared(h, norm, n_ff_shared, "experts_out")
            experts.combine(ops, hidden, network.down, out)
            ops.add_norm(out, w.vector((post_norm, n_embd)), x, cfg.eps)
            return
        if n_ff_shared:
            gate = w.optional_vector((b + "ffn_gate_inp_shexp.weight", n_embd))
            opened = ops.normed_stack("shared_gate", h, Projection([gate], None, norm, cfg.eps)) if gate else None
            ops.add_scaled(self._shared(h, norm, n_ff_shared, "out"), cfg.residual_scale, x, opened)
        if moe.sharing > 1:
            out = self._add_output(x, hidden, network)
            shared = replace(routing, sharing=moe.sharing, scale=moe.shared_scale)
            shared = replace(shared, used=min(shared.used, shared.networks))
            network = self._network("chexps", shared.networks, moe.shared_length, None)
            hidden = experts.hidden(ops, experts.route(ops, logits, shared), out, network)
        experts.combine(ops, hidden, network.down, x)

    def _add_output(self, x: Buffer, hidden: experts.Hidden, network: experts.ExpertNetwork) -> Buffer:
        """x += the mixture's output, which is returned: (n, n_embd)."""
        ops, n_embd = self.ops, self.cfg.embedding_length
        out = ops.rows("experts_out", n_embd)
        clamp(ops, x, ops.constant("limits.0", [0.0, 0.0]), out, n_embd)  # to zeros
        experts.combine(ops, hidden, network.down, out)
        ops.add_scaled(out, 1.0, x)
        return out

    def _network(self, kind: str, n: int, n_ff: int, norm: Weight | None) -> experts.ExpertNetwork:
        """The n networks in the tensors `kind`, for an input normalised with `norm`, if given."""
        cfg, w, b, limit = self.cfg, self.w, self.b, self.ops.device.max_binding
        gated, n_embd = f"{b}ffn_gate_{kind}.weight" in w, cfg.embedding_length
        inputs = [f"{b}ffn_{part}_{kind}" for part in (("gate", "up") if gated else ("up",))]
        return experts.ExpertNetwork(
            w.experts(inputs, n, n_ff, n_embd, limit),
            w.experts([f"{b}ffn_down_{kind}"], n, n_embd, n_ff, limit)[0],
            n_ff,
            cfg.activation,
            gated,
            norm,
            cfg.eps,
        )

    def _shared(self, h: Buffer, norm: Weight | None, n_ff: int, name: str) -> Buffer:
        """The shared expert's output for h (normalised), without its own gate if it has one."""
        cfg, w, ops, b = self.cfg, self.w, self.ops, self.b
        n_embd = cfg.embedding_length
        gated = b + "ffn_gate_shexp.weight" in w
        rows = [(f"{b}ffn_{part}_shexp.weight", n_ff) for part in (("gate", "up") if gated else ("up",))]
        projection = Projection(w.stack(rows, n_embd), None, norm, cfg.eps)
        hidden = (ops.gated if gated else ops.activated)(h, projection, cfg.activation)
        return ops.project(name, hidden, w.matrix(b + "ffn_down_shexp.weight", n_embd, n_ff), None)
